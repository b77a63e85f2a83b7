//! Statements about `_headers`.

use crate::{COMPATS, REFUSED, both, observe, site, write_site};
use gannet_testkit::client::Client;
use gannet_testkit::{Folder, Gannet};

/// A row has document, statement, file, target, and the values of `x-row` in the three dialects;
/// `REFUSED` if the file is rejected.
type FieldRow = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    [Option<&'static str>; 3],
);

#[test]
fn fields_by_path() {
    let rows: &[FieldRow] = &[
        (
            "Netlify; Cloudflare",
            "a path and its fields, indented",
            "/b\n  X-Row: v\n",
            "/b",
            [Some("v"); 3],
        ),
        (
            "Netlify; Cloudflare",
            "* matches everything below, pages that do not exist as well",
            "/*\n  X-Row: all\n",
            "/nothing",
            [Some("all"); 3],
        ),
        (
            "Netlify; Cloudflare",
            "lines that begin with # are comments",
            "# one\n/b\n  # two\n  X-Row: v\n",
            "/b",
            [Some("v"); 3],
        ),
        (
            "Cloudflare; Netlify's library",
            "all rules that match apply: in one line with commas, or the last one overwrites",
            "/*\n  X-Row: a\n/b\n  X-Row: b\n",
            "/b",
            [Some("b"), Some("a, b"), Some("b")],
        ),
        (
            "Netlify",
            "equal names within a rule are joined",
            "/b\n  X-Row: a\n  X-Row: b\n",
            "/b",
            [Some("a, b"); 3],
        ),
        (
            "Cloudflare",
            "'! Name' takes a field of an earlier rule away",
            "/*\n  X-Row: a\n/b\n  ! X-Row\n",
            "/b",
            [None; 3],
        ),
        (
            "Cloudflare",
            "what * matched goes into values; Netlify: plain text",
            "/b/*\n  X-Row: x:splat\n",
            "/b/c",
            [Some("x:splat"), Some("xc"), Some("x:splat")],
        ),
        (
            "Cloudflare",
            "placeholders go into values; Netlify: plain text",
            "/b/:n\n  X-Row: x:n\n",
            "/b/c",
            [Some("x:n"), Some("xc"), Some("x:n")],
        ),
        (
            "Netlify; Cloudflare",
            "placeholders stand for segments",
            "/:p/c\n  X-Row: v\n",
            "/b/c",
            [Some("v"); 3],
        ),
        (
            "Netlify, Trailing slash",
            "a slash at the end makes no difference",
            "/b\n  X-Row: v\n",
            "/b/",
            [Some("v"), None, None],
        ),
        (
            "Cloudflare",
            "a URL limits a rule to a host, whatever the scheme of the request",
            "https://h.example/*\n  X-Row: v\n",
            "/b",
            [Some("v"); 3],
        ),
        (
            "Cloudflare",
            "other hosts do not have it",
            "https://i.example/*\n  X-Row: v\n",
            "/b",
            [None; 3],
        ),
        (
            "Cloudflare",
            "URLs begin with https; gannet takes http, too, on purpose",
            "http://h.example/*\n  X-Row: v\n",
            "/b",
            [Some("v"); 3],
        ),
        (
            "Cloudflare",
            "ports are not supported",
            "https://h.example:8080/*\n  X-Row: v\n",
            "/b",
            [Some(REFUSED); 3],
        ),
        (
            "Netlify",
            "some fields are the server's; gannet refuses them",
            "/b\n  Content-Length: 1\n",
            "/b",
            [Some(REFUSED); 3],
        ),
        (
            "Netlify, Basic-Auth",
            "gannet refuses it for a host on purpose: clients choose the host that they name",
            "https://h.example/b\n  Basic-Auth: a:b\n",
            "/b",
            [Some(REFUSED); 3],
        ),
        (
            "Netlify's library; Cloudflare",
            "white space before the colon does not count",
            "/b\n  X-Row : v\n",
            "/b",
            [Some("v"); 3],
        ),
        (
            "Cloudflare",
            "a line without a colon is skipped; gannet refuses it on purpose",
            "/b\n  X-Row v\n",
            "/b",
            [Some(REFUSED); 3],
        ),
        (
            "all",
            "the file itself is not served, and no rule changes that",
            "/_headers\n  X-Row: v\n",
            "/_headers",
            [Some("v"); 3],
        ),
        (
            "Cloudflare",
            "redirects go before fields; gannet gives them theirs on purpose",
            "/moved\n  X-Row: v\n",
            "/moved",
            [Some("v"); 3],
        ),
    ];
    let mut wrong = Vec::new();
    for (at, compat) in COMPATS.into_iter().enumerate() {
        let is_refused: Vec<_> = rows.iter().map(|it| it.4[at] == Some(REFUSED)).collect();
        let write = |folder: &Folder, prefix: &str, number: usize, host: &str| {
            write_site(folder, prefix, "/moved /x 302");
            let file = rows[number].2.replace("h.example", host);
            folder.write(format!("{prefix}_headers"), file);
        };
        let ask = |server: &Gannet, number: usize, host: &str| field(server, host, rows[number].3);
        let all = observe(compat, &is_refused, write, ask);
        for ((of, says, file, target, expect), got) in rows.iter().zip(all) {
            let expect = expect[at];
            let got = got.unwrap_or_else(|cause| {
                assert!(cause.contains("_headers:"), "{file}: {cause}");
                [REFUSED; 2].map(|it| Some(it.to_owned()))
            });
            if got.iter().any(|got| got.as_deref() != expect) {
                wrong.push(format!(
                    "{of}: {says}\n  {compat}: {file:?}: {target}: {got:?}, not {expect:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn field(server: &Gannet, host: &str, target: &str) -> Option<String> {
    let mut client = Client::new(server);
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.response().field("x-row").map(str::to_owned)
}

#[test]
fn fields_of_the_server_are_replaced_and_taken_away() {
    let site = site("");
    site.write(
        "_headers",
        "/*\n  Cache-Control: public, max-age=60\n  ! X-Content-Type-Options\n/kept\n  \
         Set-Cookie: a=1\n  Set-Cookie: b=2\n",
    );
    let out = Folder::new();
    for compat in COMPATS {
        for server in both(&site, &out, compat).expect("sound") {
            let mut client = Client::new(&server);
            client.send("GET /kept HTTP/1.1\r\nHost: h.example\r\n\r\n");
            let response = client.response();
            assert_eq!(response.field("cache-control"), Some("public, max-age=60"));
            assert_eq!(response.field("x-content-type-options"), None);
            let fields = response.fields.iter();
            let cookies = fields.filter(|(name, _)| name == "set-cookie");
            let cookies: Vec<_> = cookies.map(|(_, value)| value.as_str()).collect();
            assert_eq!(cookies, ["a=1", "b=2"], "{compat}");
        }
    }
}
