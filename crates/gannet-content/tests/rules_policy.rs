//! Default fields: how long content is kept, security fields, policies of pages, digests.

use gannet_content::policy::cache::{
    Lifetime, Reason, Releases, Verdict, lifetime, lifetime_of_status,
};
use gannet_content::policy::csp::{Policy, PolicyOptions, hash_source, policy};
use gannet_content::policy::digest::{self, Extent};
use gannet_content::policy::page::{self, FindingKind};
use gannet_content::policy::security::{
    AnswerKind, Cors, SecurityOptions, cors_fields, fields, preflight_fields,
};

fn is_immutable(path: &str) -> bool {
    let content_type = gannet_content::mime::content_type(path.as_bytes());
    lifetime(path, content_type, None).0 == Lifetime::Immutable
}

#[test]
fn names_with_a_content_hash_are_recognised() {
    for path in [
        // webpack, Create React App, Parcel, Docusaurus
        "app.3f2a9c1b.js",
        "main.abcdef12.chunk.js",
        "static/js/2.4e1f9a7c.chunk.js",
        "static/js/main.787c3ba9.js.map",
        "static/js/main.787c3ba9.js.LICENSE.txt",
        "static/media/logo.6ce24c58023cc2f8fd88fe9d219db6c6.svg",
        "vendors~main.9f8e7d6c.chunk.js",
        "index.1a2b3c4d.css",
        "assets/js/runtime~main.0f1e2d3c.js",
        "assets/images/cover-5f6a7b8c9d0e1f2a3b4c5d6e7f8a9b0c.png",
        "dist/3f2a9c1b4d5e6f708192.png",
        "dist/d41d8cd98f00b204e9800998ecf8427e.woff2",
        "style_3f2a9c1b.css",
        // Angular, older and newer
        "main.7e2a5c0f6d8b4a1e.js",
        "polyfills-5AHMD2TL.js",
        "chunk-7XK2L3QZ.js",
        "styles-5INURTSO.css",
        // Rails, Django, Hugo
        "assets/application-0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0.js",
        "static/base.27e20196a850.js",
        "css/style.min.d86e3d4f0c8a5b1f2e3d4c5b6a79880f1e2d3c4b5a69788796a5b4c3d2e1f012.css",
        // Vite, Rollup
        "assets/index-BxY3k9Zq.css",
        "assets/index-D_s-9Kx1.js",
        "assets/index-DkXzaBpQ.js",
        "assets/inter-latin-wght-normal-Dx4kXJAl.woff2",
        "assets/logo-3f2a9c1b.svg",
        "assets/app.BxY3k9Zq.js",
        "assets/chunks/theme.DQx7bM2k.js",
        "assets/index.md.CSNPNcoX.lean.js",
        "index-BxY3k9Zq.css",
        // Next, Nuxt, SvelteKit, Astro, Gatsby
        "_next/static/chunks/framework-2c79e2a64abdb08b.js",
        "_next/static/ZxT9/_buildManifest.js",
        "_next/static/media/inter.p.woff2",
        "docs/_next/static/css/app.css",
        "_nuxt/DC5HVSK5.js",
        "_nuxt/entry.js",
        "_app/immutable/entry/start.js",
        "_astro/index.DkXz1a2B.css",
        "_astro/hero.png",
        "component---src-pages-index-js-4f0c6e1b2a3d5c7e9f81.js",
    ] {
        assert!(is_immutable(path), "{path}");
    }
}

#[test]
fn other_names_are_not_taken_for_hashed_ones() {
    for path in [
        "index.html",
        "index-BxY3k9Zq.html",
        "_next/static/page.html",
        "app.js",
        "style.css",
        "sw.js",
        "favicon.ico",
        // versions
        "jquery-3.7.1.min.js",
        "jquery.3.7.1.js",
        "assets/jquery-ui-1.13.2.min.js",
        "bootstrap-5.3.0-alpha1.css",
        "font-awesome-v6.4.2.css",
        "lib-1.0.0-beta.12345678.js",
        "d3.v7.min.js",
        "three.r128.js",
        // dates and numbers
        "report-20240131.pdf",
        "report.20240131.csv",
        "backup-2024-01-31.tar.gz",
        "app.1706700000.js",
        "photo-20240131T120000.jpg",
        "assets/photo-IMG_1234.jpg",
        "assets/photo-DSC_0042.jpg",
        "assets/scan-RGB_2024.png",
        "assets/file-A4_print.pdf",
        "invoice-12345678.pdf",
        "assets/tour-20240131.jpg",
        // identifiers
        "users/550e8400-e29b-41d4-a716-446655440000.json",
        "img/photo-550e8400-e29b-41d4-a716-44665544abcd.png",
        "550e8400-e29b-41d4-a716-44665544abcd.js",
        "507f1f77bcf86cd799439011.jpg",
        "avatars/205e460b479e2e5b48aec07710c08d50.jpg",
        "3f2a9c1b.js",
        // words
        "facade.defaced.js",
        "the-effaced.css",
        "cafe-deadbeef.js",
        "my-decade80.js",
        "assets/widget-LinkList.js",
        "assets/widget-linklist.js",
        "assets/widget-MyBigApp.js",
        "assets/font-MyFont24.woff2",
        "assets/data-report24.json",
        "assets/README-LICENSES.js",
        "assets/app-VERSION2.js",
        "assets/lang-pt_BR_v2.js",
        "assets/icon-iPhone12.png",
        "main-PRODUCTS.css",
        "assets/some-software.js",
        "hello-Software.js",
        // too short, or no suffix
        "app.3f2a9c.js",
        "app-3f2a9c1b",
        ".3f2a9c1b",
        "_nuxt/builds/latest.json",
        "_nuxt/builds/meta/3f2a.json",
        "assets/-BxY3k9Z.js",
        "é-BxY3k9Zq",
    ] {
        assert!(!is_immutable(path), "{path}");
    }
}

#[test]
fn two_releases_tell_which_names_change_with_their_content() {
    let digest = |byte: u8| [byte; 32];
    let previous = [
        ("app.k3x9z1q7.js", digest(1), Lifetime::Revalidate),
        ("app.3f2a9c1b.css", digest(2), Lifetime::Revalidate),
        ("lib.q8w2e4r6.js", digest(3), Lifetime::Revalidate),
        ("lib.fixed99x.js", digest(4), Lifetime::Revalidate),
        ("moved.a1b2c3x.js", digest(5), Lifetime::Revalidate),
        ("same.js", digest(6), Lifetime::Immutable),
        ("kept.x1y2z3w4.js", digest(8), Lifetime::Immutable),
        ("once.1f2e3d4c.js", digest(9), Lifetime::Revalidate),
        ("docs-1.0.1.js", digest(7), Lifetime::Revalidate),
    ];
    let current = [
        ("app.m7n5b3v1.js", digest(11)),
        ("app.3f2a9c1b.css", digest(12)),
        ("lib.z9x8c7v6.js", digest(13)),
        ("lib.fixed99x.js", digest(14)),
        ("moved.d4e5f6x.js", digest(5)),
        ("same.js", digest(6)),
        ("docs-1.0.2.js", digest(17)),
        ("new.p0o9i8u7.js", digest(18)),
        ("kept.x1y2z3w4.js", digest(8)),
        ("once.1f2e3d4c.js", digest(9)),
    ];
    let releases = Releases::compare(previous, current);
    let verdicts = current.map(|(path, _)| (path, releases.verdict(path)));
    assert_eq!(
        verdicts,
        [
            ("app.m7n5b3v1.js", Verdict::RenamedWithContent),
            ("app.3f2a9c1b.css", Verdict::ChangedUnderName),
            // A name of the same form kept its name while its content changed.
            ("lib.z9x8c7v6.js", Verdict::Unknown),
            ("lib.fixed99x.js", Verdict::ChangedUnderName),
            ("moved.d4e5f6x.js", Verdict::Unknown),
            ("same.js", Verdict::Unknown),
            ("docs-1.0.2.js", Verdict::Unknown),
            ("new.p0o9i8u7.js", Verdict::Unknown),
            // What was found before holds on; a name without a token proves nothing ("same.js").
            ("kept.x1y2z3w4.js", Verdict::StillImmutable),
            ("once.1f2e3d4c.js", Verdict::StillAskedFor),
        ]
    );
    let check = |path, expect| {
        let found = lifetime(path, "text/javascript", Some(&releases));
        assert_eq!(found, expect, "{path}");
    };
    check(
        "app.m7n5b3v1.js",
        (Lifetime::Immutable, Reason::RenamedWithContent),
    );
    check(
        "app.3f2a9c1b.css",
        (Lifetime::Revalidate, Reason::ChangedUnderName),
    );
    check(
        "other.3f2a9c1b.css",
        (Lifetime::Immutable, Reason::HashedName),
    );
    check("same.js", (Lifetime::Revalidate, Reason::PlainName));
    let page = lifetime("a.3f2a9c1b", "text/html; charset=utf-8", Some(&releases));
    assert_eq!(page, (Lifetime::Revalidate, Reason::Page));
}

#[test]
fn lifetimes_are_cache_control_values() {
    for (status, expect) in [
        (200, "no-cache"),
        (301, "no-cache"),
        (308, "no-cache"),
        (404, "no-store"),
        (416, "no-store"),
        (503, "no-store"),
    ] {
        assert_eq!(
            lifetime_of_status(status).cache_control(),
            expect,
            "{status}"
        );
    }
    assert_eq!(
        Lifetime::Immutable.cache_control(),
        "public, max-age=31536000, immutable"
    );
}

fn lines(fields: &[(&str, String)]) -> String {
    let lines: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    lines.join("\n")
}

#[test]
fn security_fields_depend_on_the_answer_and_on_tls() {
    let plain = SecurityOptions::default();
    let tls = SecurityOptions {
        has_tls: true,
        ..plain
    };
    let common =
        "x-content-type-options: nosniff\nreferrer-policy: strict-origin-when-cross-origin";
    assert_eq!(lines(&fields(AnswerKind::Part, &plain, None)), common);
    assert_eq!(
        lines(&fields(AnswerKind::Document, &plain, None)),
        format!(
            "{common}\ncontent-security-policy: frame-ancestors 'self'\n\
             cross-origin-opener-policy: same-origin"
        )
    );
    assert_eq!(
        lines(&fields(AnswerKind::Redirect, &tls, None)),
        format!("{common}\nstrict-transport-security: max-age=31536000")
    );
    let of_page = |is_enforced| Policy {
        value: "script-src 'self'".to_owned(),
        is_enforced,
    };
    let reported = lines(&fields(AnswerKind::Document, &tls, Some(&of_page(false))));
    assert!(reported.contains("content-security-policy-report-only: script-src 'self'\n"));
    assert!(reported.contains(
        "\ncontent-security-policy: frame-ancestors 'self'; upgrade-insecure-requests\n"
    ));
    let enforced = lines(&fields(AnswerKind::Document, &plain, Some(&of_page(true))));
    assert!(
        enforced.contains("\ncontent-security-policy: script-src 'self'; frame-ancestors 'self'\n")
    );
    assert!(!enforced.contains("report-only"));
    for (content_type, expect) in [
        ("text/html; charset=utf-8", AnswerKind::Document),
        ("image/svg+xml", AnswerKind::Document),
        ("text/css", AnswerKind::Part),
    ] {
        assert_eq!(AnswerKind::of_content_type(content_type), expect);
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
        let page = page::read(html.as_bytes());
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
    let page = page::read(html.as_bytes());
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
    let page = page::read(b"<p>\xff<script>a</script>");
    assert_eq!(page.findings[0].kind, FindingKind::Encoding);
    let many = "<p onclick=x>".repeat(1000);
    assert_eq!(page::read(many.as_bytes()).findings.len(), 100);
}

#[test]
fn a_policy_names_what_the_page_has() {
    let html = "<script>a</script><script src=https://cdn.example/x.js></script>\
                <script src=//CDN2.example:8443/x.js></script><script src=/own.js></script>\
                <link rel='Stylesheet' href=https://fonts.example/css?x><link rel=icon href=https://no.example/>\
                <link rel=modulepreload href=https://esm.example/m.js>\
                <style>s</style><p style=x onclick=y>";
    let page = page::read(html.as_bytes());
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
        policy(&page::read(many.as_bytes()), &PolicyOptions::default()),
        None
    );
}

#[test]
fn pages_of_any_shape_are_read() {
    let deep = "<div>".repeat(2_000) + "<script>deep</script>";
    assert_eq!(page::read(deep.as_bytes()).scripts, ["deep"]);
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
    assert_eq!(page::read(html.as_bytes()).scripts, ["in"]);
    assert_eq!(
        page::read(nested(&html).as_bytes()).scripts,
        Vec::<String>::new()
    );
    let html = "<!doctype html><html><head><style>a</style><script>b</script><svg><![CDATA[x]]></svg>\
                <table><td><template><tr></template><select><option></select><math>\
                <annotation-xml encoding=text/html><p><frameset><plaintext></script>";
    for end in 0..html.len() {
        let scripts = page::read(&html.as_bytes()[..end]).scripts;
        assert!(
            scripts
                .iter()
                .all(|script| "b</script".starts_with(script.as_str())),
            "{end}"
        );
    }
}
