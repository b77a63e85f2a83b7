//! Default fields: how long content is stored, security fields, policies of pages, digests.

use gannet_content::policy::cache::Lifetime;
use gannet_content::policy::csp::{Policy, PolicyOptions, ScriptNeeds, hash_source, policy};
use gannet_content::policy::digest::{self, Extent};
use gannet_content::policy::page::{self, FindingKind};
use gannet_content::policy::security::{Cors, cors_fields, fields, preflight_fields};
use gannet_content::policy::tokens::CostlyMarkup;

fn read(bytes: &[u8]) -> page::PageParts {
    page::read(bytes).expect("no excess")
}

#[test]
fn lifetimes_are_cache_control_values() {
    for (lifetime, value) in [
        (Lifetime::Revalidate, "max-age=1"),
        (Lifetime::NoCache, "no-cache"),
        (Lifetime::Nothing, "no-store"),
        (Lifetime::Immutable, "max-age=31536000, immutable"),
    ] {
        assert_eq!(lifetime.cache_control(), value);
    }
}

fn lines(fields: &[(&str, String)]) -> String {
    let lines: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    lines.join("\n")
}

#[test]
fn security_fields_break_no_site() {
    let common =
        "x-content-type-options: nosniff\nreferrer-policy: strict-origin-when-cross-origin";
    assert_eq!(lines(&fields(None)), common);
    let of_page = |is_enforced| Policy {
        value: "script-src 'self'".to_owned(),
        is_enforced,
    };
    assert_eq!(
        lines(&fields(Some(&of_page(false)))),
        format!("{common}\ncontent-security-policy-report-only: script-src 'self'")
    );
    assert_eq!(
        lines(&fields(Some(&of_page(true)))),
        format!("{common}\ncontent-security-policy: script-src 'self'")
    );
}

#[test]
fn a_policy_allows_what_the_scripts_of_the_site_need() {
    let of = |html: &str, scripts: ScriptNeeds| {
        let options = PolicyOptions {
            scripts,
            ..PolicyOptions::default()
        };
        let policy = policy(&read(html.as_bytes()), &options);
        policy.expect("short enough").value
    };
    let plain = of("<p>", ScriptNeeds::default());
    assert!(
        !plain.contains("wasm") && !plain.contains("worker-src"),
        "{plain}"
    );
    let needs = ScriptNeeds::of_script(
        b"x=new Worker(URL.createObjectURL(new Blob([t])));WebAssembly.instantiate(b)",
    );
    assert!(needs.has_wasm && needs.has_blob_workers && !needs.has_eval);
    let inline = "<script>WebAssembly.compile(x)</script>";
    for value in [of("<p>", needs), of(inline, ScriptNeeds::default())] {
        assert!(value.starts_with("script-src 'self' ") && value.contains("'wasm-unsafe-eval'"));
    }
    assert!(of("<p>", needs).ends_with("; worker-src 'self' blob:"));
    let own = PolicyOptions {
        scripts: needs,
        directives: vec!["worker-src 'none'".to_owned()],
        ..PolicyOptions::default()
    };
    let own = policy(&read(b"<p>"), &own).expect("short enough").value;
    assert!(
        own.ends_with("; worker-src 'none'") && !own.contains("blob:"),
        "{own}"
    );
    for (script, has_eval) in [
        ("eval('x')", true),
        ("(0,eval)('x')", false),
        ("retrieval('x')", false),
        ("a.eval(x)", false),
        ("new Function('x')", true),
        ("", false),
    ] {
        assert_eq!(
            ScriptNeeds::of_script(script.as_bytes()).has_eval,
            has_eval,
            "{script}"
        );
    }
}

#[test]
fn cors_is_off_for_all_or_for_one() {
    assert_eq!(cors_fields(&Cors::Off), []);
    assert_eq!(preflight_fields(&Cors::Off), []);
    let any = lines(&cors_fields(&Cors::Any));
    assert!(any.starts_with("access-control-allow-origin: *\n"), "{any}");
    assert!(!any.contains("credentials"));
    let one = lines(&preflight_fields(&Cors::Origin(
        "https://app.example".to_owned(),
    )));
    assert!(one.starts_with("access-control-allow-origin: https://app.example\n"));
    assert!(one.contains("access-control-allow-methods: GET, HEAD, OPTIONS\n"));
    assert!(one.contains("range"));
}

#[test]
fn digests_are_right_for_every_extent() {
    // RFC 9530 appendix B: the digest of no bytes.
    let empty = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
    let mut bytes = [0; 32];
    let digits = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[index * 2..index * 2 + 2], 16).expect("hexadecimal");
    }
    let value = format!("sha-256=:{empty}:");
    assert_eq!(digest::value(&bytes), value);
    let part = [7; 32];
    for (extent, of_content) in [
        (Extent::Whole, Some(value.clone())),
        (Extent::Range(Some(&part)), Some(digest::value(&part))),
        (Extent::Range(None), None),
        (Extent::Ranges, None),
        (Extent::Nothing, None),
    ] {
        let mut expect = vec![("repr-digest", value.clone())];
        expect.extend(of_content.map(|value| ("content-digest", value)));
        assert_eq!(digest::fields(&bytes, extent), expect, "{extent:?}");
    }
    for (value, expect) in [
        ("sha-256=1", true),
        ("sha-512=3, sha-256=10, unixsum=0", true),
        ("sha-256=0", false),
        ("sha-512=10", false),
        ("sha-256", false),
        ("sha-256=11", false),
        ("sha-256x=3", false),
        ("sha-256=3;a=b", true),
        ("sha-256=3, sha-256=0", false),
        ("", false),
    ] {
        assert_eq!(digest::wants_sha256(value.as_bytes()), expect, "{value}");
    }
}

#[test]
fn inline_scripts_and_styles_are_hashed_as_browsers_do() {
    // The example of the CSP specification.
    assert_eq!(
        hash_source("alert('Hello, world.');"),
        "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='"
    );
    for (html, scripts, styles) in [
        (
            "<script>a</script><script>b</script><script>a</script>",
            "a|b",
            "",
        ),
        (
            "<style>p{}</style><svg><style>a&amp;b</style></svg>",
            "",
            "p{}|a&b",
        ),
        ("<style>a&amp;b</style>", "", "a&amp;b"),
        ("<script>\r\nx\r\ny\rz</script>", "\nx\ny\nz", ""),
        ("<script>a\0b</script>", "a\u{fffd}b", ""),
        (
            "<script><!-- <script>a</script> --></script>",
            "<!-- <script>a</script> -->",
            "",
        ),
        ("<script type=application/ld+json>{}</script>", "", ""),
        (
            "<script type=module>m</script><script type=\"\">e</script>",
            "m|e",
            "",
        ),
        (
            "<script type=importmap>{}</script><script type=' Text/JavaScript '>t</script>",
            "{}|t",
            "",
        ),
        ("<script type=speculationrules>{}</script>", "{}", ""),
        ("<script src=/a.js>ignored</script>", "", ""),
        (
            "<svg><script>a&lt;b</script></svg><svg><script href=x>c</script></svg>",
            "a<b",
            "",
        ),
        (
            "<!-- <script>no</script> --><textarea><script>no</script></textarea>",
            "",
            "",
        ),
        ("<template><script>t</script></template>", "t", ""),
        (
            "<table><script>t</script><tr><td><style>s</style></table>",
            "t",
            "s",
        ),
        ("<b><p><script>x</script></b></p>", "x", ""),
        ("<noscript><style>n</style></noscript>", "", "n"),
        ("<noscript><script>n</script></noscript>", "", ""),
        ("<iframe srcdoc=\"<script>i</script>\"></iframe>", "i", ""),
        ("<script>unclosed", "unclosed", ""),
        ("\u{feff}<script>é</script>", "é", ""),
        ("<script></script>", "", ""),
    ] {
        let page = read(html.as_bytes());
        assert_eq!(page.scripts.join("|"), scripts, "{html}");
        assert_eq!(page.styles.join("|"), styles, "{html}");
    }
}

#[test]
fn what_a_policy_would_break_is_found() {
    let html = "<html onload=\"a()\">\n<body style=\"color: red\" onclick=b()>\n\
                <a href=' java\tscript:void(0)'>x</a><a href=/javascript:>y</a>\n\
                <svg><a xlink:href=JavaScript:1 /></svg><form action=javascript:f()></form>\n\
                <p style=''></p><base href=https://cdn.example/x/>";
    let page = read(html.as_bytes());
    let found: Vec<(FindingKind, &str, u64)> = page
        .findings
        .iter()
        .map(|finding| (finding.kind, finding.element.as_str(), finding.line))
        .collect();
    assert_eq!(
        found,
        [
            (FindingKind::EventHandler, "html", 1),
            (FindingKind::StyleAttribute, "body", 2),
            (FindingKind::EventHandler, "body", 2),
            (FindingKind::ScriptUrl, "a", 3),
            (FindingKind::ScriptUrl, "a", 4),
            (FindingKind::ScriptUrl, "form", 4),
            (FindingKind::Base, "base", 5),
        ]
    );
    assert_eq!(page.event_handlers, ["a()", "b()"]);
    assert_eq!(page.style_attributes, ["color: red"]);
    let page = read(b"<p>\xff<script>a</script>");
    assert_eq!(page.findings[0].kind, FindingKind::Encoding);
    let many = "<p onclick=x>".repeat(1000);
    assert_eq!(read(many.as_bytes()).findings.len(), 100);
}

#[test]
fn a_policy_names_what_the_page_has() {
    let html = "<script>a</script><script src=https://cdn.example/x.js></script>\
                <script src=//CDN2.example:8443/x.js></script><script src=/own.js></script>\
                <link rel='Stylesheet' href=https://fonts.example/css?x><link rel=icon href=https://no.example/>\
                <link rel=modulepreload href=https://esm.example/m.js>\
                <style>s</style><p style=x onclick=y>";
    let page = read(html.as_bytes());
    let made = policy(&page, &PolicyOptions::default()).expect("a short policy");
    assert!(!made.is_enforced);
    assert_eq!(
        made.value,
        format!(
            "script-src 'self' {} https://cdn.example cdn2.example:8443 https://esm.example; \
             style-src 'self' {} https://fonts.example; object-src 'none'; base-uri 'self'",
            hash_source("a"),
            hash_source("s"),
        )
    );
    let options = PolicyOptions {
        is_enforced: true,
        allows_attributes: true,
        script_sources: vec!["'wasm-unsafe-eval'".to_owned()],
        style_sources: Vec::new(),
        directives: vec!["connect-src 'self'".to_owned()],
        ..PolicyOptions::default()
    };
    let made = policy(&page, &options).expect("a short policy");
    assert!(made.is_enforced);
    assert!(
        made.value
            .starts_with("script-src 'self' 'wasm-unsafe-eval' 'sha256-")
    );
    assert!(
        made.value
            .contains(&format!("'unsafe-hashes' {}", hash_source("y")))
    );
    assert!(
        made.value
            .contains(&format!("'unsafe-hashes' {}", hash_source("x")))
    );
    assert!(made.value.ends_with("; connect-src 'self'"));

    let many: String = (0..200).map(|n| format!("<script>{n}</script>")).collect();
    assert_eq!(
        policy(&read(many.as_bytes()), &PolicyOptions::default()),
        None
    );
}

#[test]
fn pages_of_any_shape_are_read() {
    let deep = "<div>".repeat(2_000) + "<script>deep</script>";
    assert_eq!(read(deep.as_bytes()).scripts, ["deep"]);
    let nested = |text: &str| {
        format!(
            "<iframe srcdoc='{}'>",
            text.replace('&', "&amp;").replace('\'', "&#39;")
        )
    };
    let mut html = "<script>in</script>".to_owned();
    for _ in 0..3 {
        html = nested(&html);
    }
    assert_eq!(read(html.as_bytes()).scripts, ["in"]);
    assert_eq!(read(nested(&html).as_bytes()).scripts, Vec::<String>::new());
    let html = "<!doctype html><html><head><style>a</style><script>b</script><svg><![CDATA[x]]></svg>\
                <table><td><template><tr></template><select><option></select><math>\
                <annotation-xml encoding=text/html><p><frameset><plaintext></script>";
    for end in 0..html.len() {
        let scripts = read(&html.as_bytes()[..end]).scripts;
        assert!(
            scripts
                .iter()
                .all(|script| "b</script".starts_with(script.as_str())),
            "{end}"
        );
    }
}

#[test]
fn pages_made_to_be_costly_are_refused_and_large_ones_are_read() {
    let attributes = |count: usize| -> String { (0..count).map(|it| format!(" a{it}")).collect() };
    let excess = |html: &str| page::read(html.as_bytes()).map(|_| ());
    assert_eq!(excess(&format!("<p{}>", attributes(512))), Ok(()));
    assert_eq!(
        excess(&format!("<p{}>", attributes(513))),
        Err(CostlyMarkup::Attributes)
    );
    let nested = format!("<svg><style><a{}>", attributes(513));
    assert_eq!(excess(&nested), Err(CostlyMarkup::Attributes));
    let inner = format!("<iframe srcdoc='<p{}>'>", attributes(513));
    assert_eq!(excess(&inner), Err(CostlyMarkup::Attributes));
    let deep = "<div>".repeat(200_000);
    assert_eq!(excess(&deep), Err(CostlyMarkup::Nesting));
    assert_eq!(excess(&deep[..5000]), Ok(()));
    // Each is compared with those before it, unless it ends first.
    for (after, is_read) in [
        ("</code>", false),
        ("</b>", true),
        ("<object></b></object>", false),
        ("</p><p>", false),
    ] {
        let tags = (0..20_000).map(|it| format!("<b a{it}>{after}"));
        assert_eq!(
            excess(&tags.collect::<String>()).is_ok(),
            is_read,
            "{after}"
        );
    }
    for row in [
        "<p>a<b>c</b>",
        "<li><a href=x>y</a>",
        "<tr><td>1<td>2",
        "<option>a",
        "<br><img src=a>",
    ] {
        let long = format!("<ul><table><select>{}", row.repeat((1 << 18) / row.len()));
        assert_eq!(excess(&long), Ok(()), "{row}");
    }
    // Texts and attributes are compared with all others at once.
    let mut html: String = (0..200)
        .map(|it| format!("<html{}>", attributes(500 + it % 10)))
        .collect();
    html.extend((0..50_000).map(|it| format!("<p onclick=a{it} style=b{it}>")));
    html.push_str("<p onclick=a7 style=b7>");
    let page = read(html.as_bytes());
    assert_eq!(
        (page.event_handlers.len(), page.style_attributes.len()),
        (50_000, 50_000)
    );
}
