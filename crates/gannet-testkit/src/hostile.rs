//! Rules files that cost as much as an author can make them cost.
//!
//! Each shape is as large as its caller wants, and has the requests that suit it best. All are valid:
//! what exceeds a limit is refused, and costs nothing more.

/// A site's rules, and requests that they cost the most.
#[derive(Clone, Debug)]
pub struct Shape {
    /// What is repeated in it.
    pub name: &'static str,
    /// The text of `_redirects`, of Netlify's dialect.
    pub redirects: String,
    /// The text of `_headers`.
    pub headers: String,
    /// The requests.
    pub asked: Vec<Asked>,
}

/// A request to such a site.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Its host.
    pub host: String,
    /// Its path, decoded.
    pub path: String,
    /// Its query.
    pub query: Option<String>,
    /// The first of its languages.
    pub language: String,
}

impl Asked {
    fn path(path: impl Into<String>) -> Self {
        Self {
            host: "example.org".into(),
            path: path.into(),
            ..Self::default()
        }
    }

    fn query(self, query: impl Into<String>) -> Self {
        Self {
            query: Some(query.into()),
            ..self
        }
    }
}

/// All shapes with about so many rules each, in both files.
#[must_use]
pub fn shapes(count: usize) -> Vec<Shape> {
    let mut shapes = sources(count);
    shapes.extend(queries(count));
    shapes.extend(effects(count));
    shapes.extend(fields(count));
    shapes
}

/// The `_redirects` and `_headers` of sites of each kind whose rules nearly all suit any request, so that
/// each one costs about as many steps as it may have.
#[must_use]
pub fn sites() -> Vec<[String; 2]> {
    let lines = |count, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    vec![
        // In a language that none of the clients speaks; the answer varies by it nevertheless.
        [
            lines(490, &|number| {
                format!(
                    "/:a{number}/* /t 302! Language=de-{number}\n/* /t 302! Language=fr-{number}\n"
                )
            }),
            String::new(),
        ],
        // Each location is written, and is where the request is. Users of other paths are looked for.
        [
            lines(1900, &|_| "/* /:splat 301!\n".into()),
            lines(300, &|number| {
                format!(
                    "/{}*/index.html\n  Basic-Auth: u{number}:{HASH}\n",
                    "a".repeat(1 + number % 30)
                )
            }),
        ],
        // Fields by rules that are found one by one.
        [
            lines(1500, &|number| {
                format!("/:a{} /t 301!\n", "-".repeat(1 + number % 700))
            }),
            lines(900, &|number| format!("/*\n  ! x-{number}\n")),
        ],
    ]
}

/// A shape whose sources are in both files.
fn of_sources(
    name: &'static str,
    sources: impl Iterator<Item = String>,
    asked: impl IntoIterator<Item = String>,
) -> Shape {
    let sources: Vec<String> = sources.collect();
    let redirects = sources.iter().map(|source| format!("{source} /t 301!\n"));
    let headers = sources.iter().map(|it| format!("{it}\n  X-A: b\n"));
    Shape {
        name,
        redirects: redirects.collect(),
        headers: headers.collect(),
        asked: asked.into_iter().map(Asked::path).collect(),
    }
}

/// The digits of a number to a base, the last first.
fn digits(number: usize, base: usize, len: usize) -> Vec<usize> {
    let places = 0..len as u32;
    places
        .map(|place| number / base.pow(place) % base)
        .collect()
}

/// Sources that share as much as they can, and paths that suit as many as they can.
#[must_use]
pub fn sources(count: usize) -> Vec<Shape> {
    let levels = |number: usize| -> String {
        let lens = digits(number, 6, 6).into_iter().enumerate();
        lens.map(|(at, len)| format!("/:n{at}{}", ".".repeat(len + 1)))
            .collect()
    };
    let either = |number: usize| -> String {
        let bits = digits(number, 2, 16).into_iter().enumerate();
        bits.map(|(at, bit)| {
            if bit == 0 {
                "/a".into()
            } else {
                format!("/:a{at}")
            }
        })
        .collect()
    };
    let dots = |len: usize| format!("/x{}", ".".repeat(len));
    vec![
        of_sources(
            "placeholders on all levels",
            (0..count).map(|number| levels(number) + "/end!zz"),
            [
                dots(6).repeat(6) + "/x",
                dots(6).repeat(6) + "/end!zz",
                dots(1).repeat(6) + "/end!zz",
            ],
        ),
        of_sources(
            "names or placeholders on all levels",
            (0..count).map(|number| either(number) + "/z"),
            [
                "/a".repeat(16),
                "/a".repeat(16) + "/z",
                "/a".repeat(15) + "/b/z",
            ],
        ),
        of_sources(
            "lengths of suffixes",
            (0..count).map(|number| format!("/:a{}", "-".repeat(1 + number % 2000))),
            [format!("/x{}", "-".repeat(2000)), "/x".into()],
        ),
        of_sources(
            "stars with texts around",
            (0..count).map(|number| {
                let [before, after] = [number % 40, number / 40 % 40].map(|len| "a".repeat(len));
                format!("/{before}*{after}/{number}")
            }),
            [
                format!("/{}/7", "a".repeat(60)),
                format!("/{}", "a/".repeat(500)),
            ],
        ),
        of_sources(
            "stars whose texts overlap",
            (0..count).map(|number| format!("/aaa*{}", "a".repeat(1 + number % 7))),
            ["/aaa".into(), "/aaaaaaaaaaa".into()],
        ),
        of_sources(
            "the longest names",
            (0..count).map(|number| format!("/{}{number}", "a".repeat(60))),
            [
                format!("/{}7", "a".repeat(60)),
                format!("/{}", "a".repeat(7000)),
            ],
        ),
        of_sources(
            "sources of any depth",
            (0..count).map(|number| "/a".repeat(number % 64) + "/*"),
            ["/a".repeat(64), "/a".repeat(3500)],
        ),
        of_sources(
            "hosts",
            (0..count).map(|number| format!("https://h{number}.example.org/*")),
            ["/a".into()],
        ),
        Shape {
            asked: vec![Asked {
                host: "a.a.a.a.a.a".into(),
                ..Asked::path("/p")
            }],
            ..of_sources(
                "the same host",
                (0..count).map(|_| "https://a.a.a.a.a.a/q".into()),
                [],
            )
        },
    ]
}

/// Rules for parameters and languages.
fn queries(count: usize) -> Vec<Shape> {
    let of_lines = |name, line: &dyn Fn(usize) -> String, asked| Shape {
        name,
        redirects: (0..count).map(|number| line(number) + "\n").collect(),
        headers: String::new(),
        asked,
    };
    let many =
        |parameter: &dyn Fn(usize) -> String| (0..200).map(parameter).collect::<Vec<_>>().join("&");
    let p = || Asked::path("/p");
    vec![
        of_lines(
            "values of a parameter",
            &|number| format!("/p id={number} /t"),
            vec![
                p().query("id=7"),
                p().query("id=x"),
                p().query(many(&|it| format!("id={it}"))),
            ],
        ),
        of_lines(
            "names of parameters",
            &|number| format!("/p a{number}=:x /t"),
            vec![p().query("a7=1"), p().query(many(&|it| format!("a{it}=1")))],
        ),
        of_lines(
            "pairs of parameters",
            &|number| format!("/p a{}=1 b{}=:x /t", number % 100, number / 100),
            vec![
                p().query("a7=1&b7=1"),
                p().query(many(&|it| format!("a{it}=2&b{it}="))),
            ],
        ),
        of_lines(
            "languages",
            &|number| match number < 900 {
                true => format!("/p /t 302 Language=de-{number},fr-{number}"),
                false => format!("/p{number} /t"),
            },
            vec![
                Asked {
                    language: "de-899".into(),
                    ..p()
                },
                p(),
            ],
        ),
    ]
}

/// Rules whose effect costs, or that match and do nothing.
fn effects(count: usize) -> Vec<Shape> {
    let names: String = (0..15).map(|at| format!("/:a{at}")).collect();
    // As long a path as a request may have.
    let long = format!("/{}", "x".repeat(270)).repeat(15);
    let of_line = |name, line: String, asked| Shape {
        name,
        redirects: line.repeat(count),
        headers: String::new(),
        asked: vec![Asked::path(asked)],
    };
    vec![
        of_line(
            "rules that lead to where they are",
            "/* /:splat 301!\n".into(),
            "/a".repeat(50),
        ),
        of_line(
            "targets that become too long",
            format!("{names} {} 301!\n", names.repeat(3)),
            long,
        ),
    ]
}

/// A hash that no password has, by bcrypt.
const HASH: &str = "$2y$04$abcdefghijklmnopqrstuu5Lov2AhDWvVYYyvLdBpTVQmXsXHUeOu";

/// Rules for fields and for users.
fn fields(count: usize) -> Vec<Shape> {
    let of_lines = |name, line: &dyn Fn(usize) -> String, asked: &[&str]| Shape {
        name,
        redirects: String::new(),
        headers: (0..count).map(line).collect(),
        asked: asked.iter().map(|path| Asked::path(*path)).collect(),
    };
    vec![
        of_lines(
            "fields that all match",
            &|number| {
                let fields = (0..20).map(|at| format!("  X-{number}-{at}: a\n"));
                "/*\n".to_owned() + &fields.collect::<String>()
            },
            &["/a"],
        ),
        of_lines(
            "the same field",
            &|_| "/*\n  X-A: a\n  ! X-B\n".into(),
            &["/a"],
        ),
        of_lines(
            "long values",
            &|_| format!("/*\n  X-A: {}\n", "a".repeat(1000)),
            &["/a"],
        ),
        of_lines(
            "cookies",
            &|_| "/*\n  Set-Cookie: a=b\n  Set-Cookie: b=c\n".into(),
            &["/a"],
        ),
        of_lines(
            "users of many paths",
            &|number| {
                format!(
                    "/{}*/index.html\n  Basic-Auth: u{number}:{HASH}\n",
                    "a".repeat(number % 30)
                )
            },
            &["/aaa/a/index", "/b"],
        ),
        of_lines(
            "users of the same paths",
            &|number| format!("/*\n  Basic-Auth: u{number}:{HASH}\n"),
            &["/a", "/a/index.html"],
        ),
    ]
}
