use gannet_http::semantics::fields::Fields;
use gannet_http::semantics::request::{Content, Method, RequestTarget, TargetForm, Version};

use super::*;
use crate::limits::LISTING_ROWS_MAX;

fn entry(name: &[u8], is_directory: bool, len: u64, modified: i64) -> Entry {
    Entry {
        name: name.to_vec(),
        is_directory,
        len,
        modified: Some(modified),
    }
}

fn html(request: &ListingRequest<'_>, entries: Vec<Entry>) -> String {
    String::from_utf8(render(request, entries).content).expect("a page is UTF-8")
}

fn json(entries: Vec<Entry>) -> String {
    let request = ListingRequest {
        format: Format::Json,
        ..Default::default()
    };
    String::from_utf8(render(&request, entries).content).expect("JSON is UTF-8")
}

#[track_caller]
fn has(page: &str, part: &str) {
    assert!(page.contains(part), "{part:?} is not in\n{page}");
}

/// The names of a listing's entries in the order of its links.
fn order(sort: Sort, is_descending: bool, entries: &[Entry]) -> Vec<String> {
    let request = ListingRequest {
        sort,
        is_descending,
        ..Default::default()
    };
    let page = html(&request, entries.to_vec());
    let rows = page.split("<td><a href=\"./").skip(1);
    rows.filter_map(|row| Some(row.split_once('"')?.0.to_string()))
        .collect()
}

#[test]
fn how_a_listing_is_wanted_is_read_strictly() {
    let check = |query: Option<&str>, accept: &str, expect: (Sort, bool, Format)| {
        let section = format!("accept: {accept}\r\n");
        let request = Request {
            method: Method::Get,
            method_name: b"GET",
            target: RequestTarget {
                raw: b"/",
                form: TargetForm::Origin,
                path: b"/",
                query: query.map(str::as_bytes),
            },
            authority: None,
            version: Version::Http11,
            fields: Fields::parse(section.as_bytes()).expect("fields of the test"),
            content: Content::None,
        };
        let found = ListingRequest::of(&request, b"x");
        assert_eq!(
            (found.sort, found.is_descending, found.format),
            expect,
            "{query:?} {accept}"
        );
        assert_eq!((found.path, found.dotfiles), (&b"x"[..], false));
    };
    let usual = (Sort::Name, false, Format::Html);
    check(None, "*/*", usual);
    check(Some(""), "*/*", usual);
    check(Some("sort=size"), "*/*", (Sort::Size, false, Format::Html));
    check(
        Some("sort=modified&order=desc"),
        "*/*",
        (Sort::Modified, true, Format::Html),
    );
    check(
        Some("order=desc&x=y&sort=name"),
        "*/*",
        (Sort::Name, true, Format::Html),
    );
    check(Some("sort=Size&order=down&format=xml&sort"), "*/*", usual);
    check(Some("sort=size%00"), "*/*", usual);
    check(
        Some("format=json"),
        "text/html",
        (Sort::Name, false, Format::Json),
    );
    check(
        Some("sort=size&format=json&order=desc"),
        "text/html",
        (Sort::Name, false, Format::Json),
    );
    check(None, "application/json", (Sort::Name, false, Format::Json));
    check(
        None,
        "Application/JSON;q=0.9, text/plain, */*",
        (Sort::Name, false, Format::Json),
    );
    check(Some("format=html"), "application/json", usual);
    check(None, "text/html, application/json;q=0.9", usual);
    check(None, "application/jsonx", usual);
}

#[test]
fn directories_come_first_and_numbers_count() {
    let entries = [
        entry(b"b10", false, 1, 30),
        entry(b"B9", false, 3, 10),
        entry(b"a", false, 2, 20),
        entry(b"z", true, 9, 40),
        entry(b"c", true, 4096, 50),
        entry(b"b09", false, 3, 10),
    ];
    let check = |sort, is_descending, expect: &[&str]| {
        assert_eq!(
            order(sort, is_descending, &entries),
            expect,
            "{sort:?} {is_descending}"
        );
    };
    check(Sort::Name, false, &["c/", "z/", "a", "B9", "b09", "b10"]);
    check(Sort::Name, true, &["z/", "c/", "b10", "b09", "B9", "a"]);
    check(Sort::Size, false, &["c/", "z/", "b10", "a", "B9", "b09"]);
    check(Sort::Size, true, &["c/", "z/", "B9", "b09", "a", "b10"]);
    check(
        Sort::Modified,
        false,
        &["z/", "c/", "B9", "b09", "a", "b10"],
    );
    check(Sort::Modified, true, &["c/", "z/", "b10", "a", "B9", "b09"]);
}

/// All pairs and triples of awkward names: antisymmetric, transitive, equal only if the same.
#[test]
fn the_order_of_names_is_total() {
    let names: [&[u8]; 14] = [
        b"", b"0", b"00", b"1", b"01", b"10", b"9", b"a", b"A", b"a1", b"a01", b"a1b", b"\xff",
        b"a-",
    ];
    for a in names {
        for b in names {
            let order = compare_names(a, b);
            assert_eq!(order, compare_names(b, a).reverse());
            assert_eq!(order == Ordering::Equal, a == b);
            for c in names {
                if order == Ordering::Less && compare_names(b, c) == Ordering::Less {
                    assert_eq!(compare_names(a, c), Ordering::Less, "{a:?} {b:?} {c:?}");
                }
            }
        }
    }
}

#[test]
fn names_are_escaped_as_text_and_encoded_as_links() {
    let check = |name: &[u8], href: &str, text: &str| {
        let page = html(&ListingRequest::default(), vec![entry(name, false, 1, 1)]);
        has(
            &page,
            &format!("<tr><td><a href=\"{href}\"><bdi>{text}</bdi></a><td>"),
        );
    };
    check(b"a b.txt", "./a%20b.txt", "a b.txt");
    check(
        b"<b>&\"'",
        "./%3Cb%3E&amp;%22%27",
        "&lt;b&gt;&amp;&quot;&#39;",
    );
    check(b"javascript:x", "./javascript:x", "javascript:x");
    check(b"100%?#", "./100%25%3F%23", "100%?#");
    check(b"bad\xff", "./bad%FF", "bad\u{fffd}");
    check(
        b"a\nb\x1b\x7f",
        "./a%0Ab%1B%7F",
        "a\u{240a}b\u{241b}\u{2421}",
    );
    // Each would be shown as `a b`, without its last letter.
    check(b"a b ", "./a%20b%20", "a b\u{2423}");
    check(b"a  b", "./a%20%20b", "a \u{2423}b");
    check(b"  a b", "./%20%20a%20b", "\u{2423}\u{2423}a b");
    check(b"a b  ", "./a%20b%20%20", "a b \u{2423}");
    check(b" ", "./%20", "\u{2423}");
    // It would be shown as `a-exe.pdf`, and such a letter must not turn anything outside the name.
    check(
        "a-\u{202e}fdp.exe".as_bytes(),
        "./a-%E2%80%AEfdp.exe",
        "a-\u{fffd}fdp.exe",
    );
    check("\u{2067}x".as_bytes(), "./%E2%81%A7x", "\u{fffd}x");
    check("שלום".as_bytes(), "./%D7%A9%D7%9C%D7%95%D7%9D", "שלום");
    let (long, end) = ([b'<'; 255], "%3C".repeat(255));
    check(&long, &format!("./{end}"), &"&lt;".repeat(255));
}

#[test]
fn names_that_no_directory_has_and_dotfiles_are_left_out() {
    let entries: Vec<_> = [&b".env"[..], b"", b"a/b", b"..", b"seen"]
        .iter()
        .map(|name| entry(name, false, 1, 1))
        .collect();
    assert_eq!(order(Sort::Name, false, &entries), ["seen"]);
    let request = ListingRequest {
        dotfiles: true,
        ..Default::default()
    };
    has(&html(&request, entries), "./.env");
}

#[test]
fn breadcrumbs_and_parent_are_relative() {
    let check = |path: &[u8], parts: &[&str]| {
        let request = ListingRequest {
            path,
            ..Default::default()
        };
        let page = html(&request, Vec::new());
        parts.iter().for_each(|part| has(&page, part));
        assert_eq!(page.contains("Parent folder"), parts.len() > 1);
    };
    check(b"", &["<title>Index of /</title>"]);
    check(b"/", &["<h1><a href=\"./\" class=root"]);
    for path in [&b"a&b/c"[..], b"/a&b/c/"] {
        check(
            path,
            &[
                "<title>/a&amp;b/c/</title>",
                "<h1><a href=\"../../\" class=root",
                "<a href=\"../\"><bdi>a&amp;b</bdi></a>",
                "<a href=\"./\" aria-current=page><bdi>c</bdi></a>",
                "<tr class=u><td><a href=\"../\">",
            ],
        );
    }
}

#[test]
fn breadcrumbs_of_a_deep_path_are_bounded() {
    let deep = "/d".repeat(2000);
    let request = ListingRequest {
        path: deep.as_bytes(),
        ..Default::default()
    };
    let page = html(&request, Vec::new());
    has(&page, "</a><span>…/</span><a href=\"../../");
    assert_eq!(
        page.matches("<bdi>d</bdi>").count(),
        crate::limits::LISTING_CRUMBS_MAX
    );
    // The title has the whole path, and the link to the root climbs all of it.
    let bare = html(&ListingRequest::default(), Vec::new());
    assert!(page.len() - bare.len() < 24 << 10, "{} bytes", page.len());
}

#[test]
fn headings_sort_the_other_way_round_the_second_time() {
    let page = |sort, is_descending| {
        let request = ListingRequest {
            sort,
            is_descending,
            ..Default::default()
        };
        html(&request, Vec::new())
    };
    let by_name = page(Sort::Name, false);
    has(
        &by_name,
        "<th scope=col aria-sort=ascending><a href=\"?sort=name&amp;order=desc\">",
    );
    has(
        &by_name,
        "<th scope=col><a href=\"?sort=size&amp;order=desc\">",
    );
    let by_size = page(Sort::Size, true);
    has(
        &by_size,
        "<th scope=col aria-sort=descending><a href=\"?sort=size&amp;order=asc\">",
    );
    has(
        &by_size,
        "<th scope=col><a href=\"?sort=name&amp;order=asc\">",
    );
}

#[test]
fn sizes_are_short_and_exact_ones_are_told() {
    let check = |len, expect: &str| {
        let page = html(&ListingRequest::default(), vec![entry(b"f", false, len, 1)]);
        has(&page, &format!("<data value={len} title=\"{expect}</data>"));
    };
    check(0, "0 bytes\">0 B");
    check(1, "1 byte\">1 B");
    check(1023, "1,023 bytes\">1023 B");
    check(1024, "1,024 bytes\">1.0 KiB");
    check(1536, "1,536 bytes\">1.5 KiB");
    check(10_188, "10,188 bytes\">9.9 KiB");
    check(10_189, "10,189 bytes\">10 KiB");
    check(1_048_012, "1,048,012 bytes\">1023 KiB");
    check(1_048_013, "1,048,013 bytes\">1.0 MiB");
    check(1 << 30, "1,073,741,824 bytes\">1.0 GiB");
    check(u64::MAX, "18,446,744,073,709,551,615 bytes\">16 EiB");
}

#[test]
fn dates_are_those_of_the_iso() {
    let page = html(
        &ListingRequest::default(),
        vec![entry(b"f", false, 1, 784_111_777)],
    );
    has(
        &page,
        "<time datetime=\"1994-11-06T08:49:37Z\" title=\"1994-11-06 08:49:37 UTC\">\
         1994-11-06 <span>08:49</span></time>",
    );
    assert_eq!(rfc3339(-1).as_ref(), Some(b"1969-12-31T23:59:59Z"));
    assert_eq!(
        rfc3339(1_709_251_199).as_ref(),
        Some(b"2024-02-29T23:59:59Z")
    );
    assert_eq!((rfc3339(i64::MAX), rfc3339(i64::MIN)), (None, None));
    let unknown = Entry {
        modified: None,
        ..entry(b"f", false, 1, 1)
    };
    assert!(!html(&ListingRequest::default(), vec![unknown]).contains("<time"));
}

#[test]
fn what_is_in_the_folder_is_counted() {
    let page = |entries| html(&ListingRequest::default(), entries);
    has(&page(Vec::new()), "This folder is empty.");
    has(&page(vec![entry(b"f", false, 1, 1)]), "<p>1 file, 1 B</p>");
    let entries = vec![
        entry(b"d", true, 4096, 1),
        entry(b"f", false, 512, 1),
        entry(b"g", false, 512, 1),
    ];
    let text = page(entries.clone());
    has(&text, "<p>1 folder, 2 files, 1.0 KiB</p>");
    assert!(!text.contains("id=cut"));
    let request = ListingRequest {
        is_partial: true,
        ..ListingRequest::default()
    };
    let text = html(&request, entries);
    has(&text, "<p>At least 1 folder, 2 files, 1.0 KiB</p>");
    has(
        &text,
        "<p id=rest>The folder has more entries than can be listed.</p>",
    );
}

#[test]
fn a_page_has_so_many_rows_and_the_totals_and_the_order_are_those_of_all() {
    let many: Vec<_> = (0..=LISTING_ROWS_MAX)
        .map(|n| entry(n.to_string().as_bytes(), false, 1, 1))
        .collect();
    let page = html(&ListingRequest::default(), many.clone());
    has(&page, "<p>10,001 files, 9.8 KiB</p>");
    let note = "<p id=cut>The first 10,000 are shown; sort to see others.</p>";
    has(&page, note);
    assert_eq!(order(Sort::Name, true, &many)[0], "10000");
    assert!(page.contains("\"./9999\"") && !page.contains("\"./10000\""));
    let request = ListingRequest {
        is_partial: true,
        ..ListingRequest::default()
    };
    let note =
        "sort to see others.</p>\n<p id=rest>The folder has more entries than can be listed.</p>";
    has(&html(&request, many.clone()), note);
    assert_eq!(json(many).lines().count(), 2 + LISTING_ROWS_MAX + 1);
}

/// One script, exactly the one whose hash the policy has, and nothing else that would run or load.
#[test]
fn a_page_runs_its_own_script_only_and_loads_nothing() {
    let names: [&[u8]; 4] = [
        b"f",
        b"<script>alert(1)</script>",
        b"\" onclick=\"alert(1)",
        b"</bdi></a><img src=x onerror=alert(1)>",
    ];
    let entries = names.iter().map(|name| entry(name, true, 1, 1)).collect();
    let request = ListingRequest {
        path: b"<script>x</script>/<style>y</style>",
        ..ListingRequest::default()
    };
    let page = html(&request, entries);
    let script = include_str!("script.js");
    assert!(!script.contains("</script") && !script.contains("<!--"));
    has(&page, &format!("<script>{script}</script>\n"));
    let page = page
        .replace(script, "")
        .replace(include_str!("style.css"), "");
    let rest = page
        .replacen("<script></script>", "", 1)
        .replacen("<style></style>", "", 1);
    for part in [
        "<script", "<style", "<img", "<link", "http:", "https:", "src=\"", "url(",
    ] {
        assert!(
            !rest.to_ascii_lowercase().contains(part),
            "{part} in {rest}"
        );
    }
    // Attributes of the page's own tags: `on` occurs in them within words only.
    let tags = rest
        .split('<')
        .filter_map(|tag| Some(tag.split_once('>')?.0));
    for tag in tags {
        assert!(!tag.contains(" on") && !tag.contains(" style="), "{tag}");
    }
}

#[test]
fn json_has_the_four_members() {
    assert_eq!(json(Vec::new()), "[\n]\n");
    let entries = vec![
        entry(b"f", false, 7, 784_111_777),
        entry(b"d", true, 4096, 784_111_777),
    ];
    assert_eq!(
        json(entries),
        "[\n{\"name\":\"d\",\"type\":\"directory\",\"mtime\":\"1994-11-06T08:49:37Z\"},\n\
         {\"name\":\"f\",\"type\":\"file\",\"size\":7,\"mtime\":\"1994-11-06T08:49:37Z\"}\n]\n"
    );
}

#[test]
fn json_names_are_escaped_and_those_that_are_not_exact_are_linked() {
    let check = |name: &[u8], expect: &str| {
        has(
            &json(vec![entry(name, false, 1, 1)]),
            &format!("{{{expect},\"type\""),
        );
    };
    check(b"a\"b\\c", r#""name":"a\"b\\c""#);
    check(b"a\nb\x00\x7f", r#""name":"a\u000ab\u0000\u007f""#);
    check("é".as_bytes(), r#""name":"é""#);
    check(b"\xe9", "\"name\":\"\u{fffd}\",\"href\":\"./%E9\"");
}

#[test]
fn a_listing_depends_on_accept_and_says_so() {
    let page = render(&ListingRequest::default(), Vec::new());
    assert_eq!(page.content_type, b"text/html; charset=utf-8");
    assert_eq!(page.further, Some(("vary", &b"accept"[..])));
}

/// However long names are and whatever they contain, a listing has a bounded length, is complete,
/// and says if it is truncated.
#[test]
fn a_listing_of_the_longest_names_is_cut() {
    let name = |n: u32| [&[0xff; 250][..], n.to_string().as_bytes()].concat();
    let entries = || {
        (10_000..20_000)
            .map(|n| entry(&name(n), false, 1, 1))
            .collect()
    };
    let page = render(&ListingRequest::default(), entries());
    assert!(page.content.len() <= crate::limits::LISTING_BYTES_MAX);
    let text = String::from_utf8(page.content).expect("a page is UTF-8");
    let rows = text.matches("<tr><td><a href=\"./").count();
    assert!((1_000..10_000).contains(&rows), "{rows}");
    has(&text, "<p>10,000 files, 9.8 KiB</p>");
    assert!(text.contains("<p id=cut>The first "), "it says so");
    assert!(text.ends_with("</script>\n"));
    let request = ListingRequest {
        format: Format::Json,
        ..ListingRequest::default()
    };
    let json = render(&request, entries()).content;
    assert!(json.len() <= crate::limits::LISTING_BYTES_MAX);
    assert!(json.ends_with(b"}\n]\n"));
}
