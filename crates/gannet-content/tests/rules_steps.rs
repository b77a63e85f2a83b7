//! What the most expensive rules cost: bounded for each request, and linear to read.

use gannet_content::rules::evaluation::TooMuch;
use gannet_content::rules::limits::{EVALUATION_STEPS_MAX, LINE_MAX, RULES_FILE_MAX, RULES_MAX};
use gannet_content::rules::matcher::RuleInput;
use gannet_content::rules::pattern::Scheme;
use gannet_content::rules::redirects::Redirects;
use gannet_content::rules::steps::{OutOfSteps, Steps};
use gannet_content::rules::table::{Decision, HeaderTable, RedirectTable, Ruled, TableError};
use gannet_content::rules::{Compat, SourceFile, headers, redirects};
use gannet_testkit::hostile::{Asked, Shape, shapes, sites, sources};

fn input(asked: &Asked) -> RuleInput<'_> {
    RuleInput {
        prefix: b"",
        scheme: Scheme::Https,
        host: asked.host.as_bytes(),
        path: asked.path.as_bytes(),
        query: asked.query.as_deref().map(str::as_bytes),
        language: asked.language.as_bytes(),
    }
}

fn redirects(shape: &Shape) -> Redirects {
    let file = SourceFile {
        path: "_redirects",
        text: shape.redirects.as_bytes(),
    };
    let (rules, problems) = redirects::parse(&[file], Compat::Netlify);
    assert!(problems.is_empty(), "{}: {}", shape.name, problems[0]);
    rules
}

fn fields(shape: &Shape) -> HeaderTable {
    let file = SourceFile {
        path: "_headers",
        text: shape.headers.as_bytes(),
    };
    let (rules, problems) = headers::parse(&file, Compat::Netlify);
    assert!(problems.is_empty(), "{}: {}", shape.name, problems[0]);
    HeaderTable::new(rules)
}

/// The decision of the rules when they are tried one after the other.
fn naive(redirects: &Redirects, input: &RuleInput<'_>) -> Decision {
    let mut out = Vec::new();
    let mut passed_over = 0;
    for (index, rule) in (0..).zip(&redirects.rules) {
        let alone = RedirectTable::new(Redirects {
            compat: redirects.compat,
            rules: vec![rule.clone()],
        });
        match alone.decide(input, false, &Steps::default(), &mut out) {
            Decision::Redirect { status, .. } => {
                return Decision::Redirect {
                    status,
                    rule: index,
                };
            }
            Decision::Content { status, .. } => {
                return Decision::Content {
                    status,
                    rule: index,
                };
            }
            Decision::Unknown => unreachable!("one rule"),
            Decision::Pass => passed_over += usize::from(alone.find(input).is_some()),
        }
        if passed_over == 8 {
            break;
        }
    }
    Decision::Pass
}

/// Redirects are found within the bound, live or packed. Only thousands of texts of different
/// lengths at one place, all of which suit the request, take more: then none applies. None applies
/// anyway where eight locations in a row are too long, which may take more, too.
#[test]
fn the_most_expensive_redirects_are_found_within_the_bound() {
    for shape in shapes(1500) {
        let rules = redirects(&shape);
        let live = RedirectTable::new(rules.clone());
        let packed = RedirectTable::parse(&live.compile()).expect("what was compiled is read");
        for asked in &shape.asked {
            let input = input(asked);
            let mut out = Vec::new();
            let expect = naive(&rules, &input);
            for table in [&live, &packed] {
                let steps = Steps::new(EVALUATION_STEPS_MAX);
                let found = table.decide_within(&input, false, &steps, &mut out);
                let may_be_over = match shape.name {
                    "lengths of suffixes" => true,
                    "targets that become too long" => expect == Decision::Pass,
                    _ => false,
                };
                if may_be_over && found == Err(OutOfSteps) {
                    assert_eq!(
                        table.decide(&input, false, &Steps::default(), &mut out),
                        Decision::Pass
                    );
                    assert_eq!(table.overruns().seen().0, 1);
                    continue;
                }
                assert_eq!(found, Ok(expect), "{}: {}", shape.name, steps.taken());
                let speaks = !shape.name.starts_with("languages");
                assert!(speaks || table.varies_by_language(&input, false, &Steps::default()));
            }
        }
    }
}

/// Tables have no keys that collide: names of which only the last bytes differ are found in as many steps
/// as others, a number that grows with the logarithm of theirs.
#[test]
fn no_names_make_a_table_slow() {
    let file = |names: &dyn Fn(usize) -> String| {
        let lines = (0..45_000).map(|at| format!("/{} /t\n", names(at)));
        let shape = Shape {
            name: "names",
            redirects: lines.collect(),
            headers: String::new(),
            asked: Vec::new(),
        };
        RedirectTable::new(redirects(&shape))
    };
    for names in [
        &|at: usize| format!("{}{at:05}", "a".repeat(59)),
        &|at: usize| format!("{:0>64}", at.wrapping_mul(0x9e37_79b9)),
    ] as [&dyn Fn(usize) -> String; 2]
    {
        let table = file(names);
        for at in [0, 1, 22_500, 44_999, 45_000] {
            let asked = Asked {
                path: format!("/{}", names(at)),
                ..Asked::default()
            };
            let steps = Steps::default();
            let found = table.for_missing(&input(&asked), &steps);
            assert_eq!(found.is_some(), at < 45_000);
            assert!(steps.taken() < 64, "{at}: {}", steps.taken());
        }
    }
}

/// A rule that precedes files may keep visitors from one: out of steps, that is not sent.
#[test]
fn out_of_steps_no_file_is_sent_that_a_rule_may_precede() {
    let mut shapes = shapes(1500);
    let shape = shapes
        .iter_mut()
        .find(|it| it.name == "lengths of suffixes");
    let shape = shape.expect("it is there");
    shape.redirects.push_str("/private/* /login 302!\n");
    let table = RedirectTable::new(redirects(shape));
    let [long, short] = [
        format!("/private/x{}", "-".repeat(2000)),
        "/private/x".into(),
    ];
    let ruled = |path: &str| {
        let asked = Asked {
            path: path.into(),
            ..Asked::default()
        };
        table.before_files(&input(&asked), &Steps::default())
    };
    assert!(matches!(ruled(&short), Some(Ruled::Elsewhere { .. })));
    assert!(matches!(ruled(&long), Some(Ruled::Elsewhere { .. })));
    assert_eq!(ruled(&shape.asked[0].path), Some(Ruled::Unknown));
    assert_eq!(table.overruns().seen().0, 1);
}

/// At their full size, too, only what no site has is left out.
#[test]
fn rules_on_all_levels_are_found_at_full_size() {
    for shape in shapes(46_656).into_iter().take(2) {
        let table = RedirectTable::new(redirects(&shape));
        for asked in &shape.asked {
            let steps = Steps::new(EVALUATION_STEPS_MAX);
            let found = table.decide_within(&input(asked), false, &steps, &mut Vec::new());
            let matches = asked.path.ends_with("zz") || asked.path.ends_with("/z");
            let is_found = found.map(|found| found != Decision::Pass);
            assert_eq!(is_found, Ok(matches), "{} {}", shape.name, asked.path);
            assert!(
                steps.taken() <= EVALUATION_STEPS_MAX / 2,
                "{}",
                steps.taken()
            );
        }
    }
}

/// The rules of a shape, as many as a file may have: a text as long as it may be, up to the first line that is
/// refused.
fn largest(shape: &Shape) -> (Redirects, usize) {
    let path = "_redirects";
    let mut text = shape.redirects.as_bytes();
    if let Some(longest) = text.get(..RULES_FILE_MAX as usize) {
        let end = longest.iter().rposition(|byte| *byte == b'\n');
        text = &text[..=end.expect("many lines")];
    }
    let (rules, _) = redirects::parse(&[SourceFile { path, text }], Compat::Netlify);
    (rules, text.len())
}

/// Whichever limit ends a file, that of rules, of memory or of bytes, a request for it is answered within its
/// steps. Those for fields are fewer: they are refused if one request would take too many steps.
#[test]
fn the_largest_files_cost_a_request_no_more_than_it_may() {
    let mut ends = Vec::new();
    for shape in sources(RULES_MAX + 1).into_iter().take(3) {
        let (rules, len) = largest(&shape);
        ends.push(match rules.rules.len() {
            RULES_MAX => "rules",
            _ if len + LINE_MAX > RULES_FILE_MAX as usize => "bytes",
            _ => "memory",
        });
        let table = RedirectTable::new(rules);
        let mut most = 0;
        for asked in &shape.asked {
            let (input, steps) = (input(asked), Steps::default());
            let _ = table.for_missing(&input, &steps);
            most = most.max(steps.taken());
        }
        let bounds = 100..=EVALUATION_STEPS_MAX;
        assert!(bounds.contains(&most), "{}: {most} steps", shape.name);
        // Thousands of texts of different lengths at one place, all of which suit the request.
        let may_be_over = shape.name == "lengths of suffixes";
        assert_eq!(table.overruns().seen().0 > 0, may_be_over, "{}", shape.name);
    }
    assert_eq!(ends, ["rules", "memory", "bytes"]);
}

/// A path may only be had by nobody if that cannot be decided, and fields are an error then. What is
/// too much for an answer is read from no archive.
#[test]
fn out_of_steps_paths_are_protected_and_fields_are_unknown() {
    let (mut overruns, mut unknown) = (0, 0);
    for shape in shapes(5000) {
        let live = fields(&shape);
        let packed = HeaderTable::parse(&live.compile());
        let packed = match live.excess() {
            None => packed.expect("what was compiled is read"),
            Some(_) => {
                assert_eq!(packed.err(), Some(TableError::TooMuch), "{}", shape.name);
                live.clone()
            }
        };
        for (table, asked) in [&live, &packed].into_iter().zip(shape.asked.iter().cycle()) {
            let before = table.overruns().seen().0;
            let users: Vec<_> = table
                .users(asked.path.as_bytes(), &Steps::default())
                .collect();
            let is_over = table.overruns().seen().0 > before;
            assert_eq!(is_over, users == [[].as_slice()], "{}", shape.name);
            if shape.name == "users of the same paths" {
                assert!(is_over, "{} lists", users.len());
            }
            overruns += usize::from(is_over);
            let before = table.overruns().seen().0;
            let changes = table.changes(&input(asked), &Steps::default());
            if table.overruns().seen().0 > before {
                assert_eq!(changes.err().map(|it| it.what), Some(TooMuch::Steps));
                unknown += 1;
            }
        }
    }
    assert!(overruns > 0 && unknown > 0);
}

/// A client chooses how long a path is. Going through it costs little for each rule that matches
/// whatever follows.
#[test]
fn long_paths_take_no_fields_away() {
    let sources = ["/*", "/app/*", "/*", "/:a/*"];
    let rules = (0..200).map(|at| format!("{}\n  X-{at}: a\n", sources[at % sources.len()]));
    let table = fields(&Shape {
        name: "policies",
        redirects: String::new(),
        headers: rules.collect(),
        asked: Vec::new(),
    });
    for path in ["/app/a".to_owned(), format!("/app/{}", "a/".repeat(4000))] {
        let asked = Asked {
            path,
            ..Asked::default()
        };
        let changes = table.changes(&input(&asked), &Steps::default());
        assert_eq!(changes.map(|it| it.set.len()), Ok(200));
    }
}

/// The sites of the floods answer any request, and each takes many steps.
#[test]
fn sites_of_the_floods_are_just_within_the_bounds() {
    for [redirects_text, headers] in sites() {
        let shape = Shape {
            name: "a site",
            redirects: redirects_text,
            headers,
            asked: Vec::new(),
        };
        let redirects = RedirectTable::new(redirects(&shape));
        let fields = fields(&shape);
        assert_eq!(fields.excess(), None);
        let asked = Asked {
            path: "/small".into(),
            ..Asked::default()
        };
        let (input, steps) = (input(&asked), Steps::default());
        let has_file = redirects.wins_over_files();
        assert_eq!(redirects.before_files(&input, &steps), None);
        assert_eq!(redirects.for_missing(&input, &steps), None);
        let _ = redirects.varies_by_language(&input, has_file, &steps);
        assert_eq!(fields.users(input.path, &steps).count(), 0);
        assert!(fields.changes(&input, &steps).is_ok());
        let overruns = [redirects.overruns(), fields.overruns()].map(|it| it.seen().0);
        assert_eq!(overruns, [0, 0], "{}", steps.taken());
        assert!(steps.taken() > 200, "{}", steps.taken());
    }
}

#[test]
fn twice_the_rules_cost_twice_to_read() {
    for (small, large) in shapes(1000).iter().zip(&shapes(2000)) {
        let steps = [small, large].map(|it| RedirectTable::new(redirects(it)).read_steps());
        let more = [small, large].map(|it| fields(it).read_steps());
        for [small_steps, large_steps] in [steps, more] {
            let bound = small_steps * 5 / 2 + 64;
            assert!(
                large_steps <= bound,
                "{}: {large_steps} > {bound}",
                small.name
            );
        }
    }
}
