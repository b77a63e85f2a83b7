//! Extracts the references and anchors of a page.
//!
//! Pages are tokenized as browsers do it; the tree is not needed. Scripts are not run, so elements
//! that they add are not seen.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};

use gannet_content::policy::tokens::{CostlyMarkup, tokenize};
use html5ever::Attribute;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{Tag, TagKind, Token, TokenSink, TokenSinkResult};

use super::needs::Needs;
use super::{css, encoding};

/// The purpose of a reference.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Purpose {
    /// To navigate to it.
    Link,
    /// To load it as part of the page.
    Asset,
    /// To show it in previews on other sites; browsers do not load it.
    Preview,
}

/// A URL in a page.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Reference {
    pub(super) purpose: Purpose,
    /// As written, with character references decoded.
    pub(super) url: String,
    /// The line, from 1.
    pub(super) line: u64,
    /// The element and its attribute: `img src`.
    pub(super) at: String,
    /// The type that browsers require of its target, if any.
    pub(super) needs: Option<Needs>,
}

/// The parts of a page relevant to a check.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) references: Vec<Reference>,
    /// Hashes of the names that fragments may refer to.
    pub(super) anchors: Vec<u64>,
    /// The base of relative URLs, if the page declares one.
    pub(super) base: Option<String>,
    /// The first encoding that the page declares, with its line.
    pub(super) encoding: Option<(String, u64)>,
}

/// Hashes anchor names, which are many and only compared.
pub(super) type AnchorHasher = RandomState;

/// Reads a page.
///
/// # Errors
/// The page is made to be costly.
pub(super) fn read(text: &str, hasher: &AnchorHasher) -> Result<Page, CostlyMarkup> {
    let sink = Sink {
        state: RefCell::new(State {
            page: Page::default(),
            hasher,
            svg_depth: 0,
            templates: Vec::new(),
            style: None,
        }),
    };
    let sink = tokenize(sink, text, |_| false)?;
    let mut page = sink.state.into_inner().page;
    page.anchors.sort_unstable();
    page.anchors.dedup();
    Ok(page)
}

struct Sink<'h> {
    state: RefCell<State<'h>>,
}

struct State<'h> {
    page: Page,
    hasher: &'h AnchorHasher,
    /// The depth of open `svg` elements, in which `script` and `style` may be self-closing.
    svg_depth: u32,
    /// For each open `template`, whether its content is inert: neither loaded nor shown until a script
    /// copies it.
    templates: Vec<bool>,
    /// The text of the open style sheet, and its first line.
    style: Option<(String, u64)>,
}

impl TokenSink for Sink<'_> {
    type Handle = ();

    fn process_token(&self, token: Token, line: u64) -> TokenSinkResult<()> {
        let state = &mut *self.state.borrow_mut();
        match token {
            Token::TagToken(tag) => state.tag(&tag, line),
            Token::CharacterTokens(text) => {
                if let Some((style, _)) = &mut state.style {
                    style.push_str(&text);
                }
                TokenSinkResult::Continue
            }
            _ => TokenSinkResult::Continue,
        }
    }
}

impl State<'_> {
    fn tag(&mut self, tag: &Tag, line: u64) -> TokenSinkResult<()> {
        let name = &*tag.name;
        if tag.kind == TagKind::EndTag {
            match name {
                "svg" => self.svg_depth = self.svg_depth.saturating_sub(1),
                "style" => self.end_style(),
                "template" => drop(self.templates.pop()),
                _ => {}
            }
            return TokenSinkResult::Continue;
        }
        let is_inert = self.templates.last() == Some(&true);
        if !is_inert {
            self.attributes(tag, line);
        }
        if name == "template" && self.svg_depth == 0 {
            // With this attribute it becomes a shadow tree as it is parsed.
            let is_shadow = |it: &Attribute| &*it.name.local == "shadowrootmode";
            self.templates
                .push(is_inert || !tag.attrs.iter().any(is_shadow));
        }
        if name == "svg" && !tag.self_closing {
            self.svg_depth += 1;
        }
        if self.svg_depth > 0 && tag.self_closing {
            return TokenSinkResult::Continue;
        }
        match name {
            "script" => TokenSinkResult::RawData(RawKind::ScriptData),
            "style" if is_inert => TokenSinkResult::RawData(RawKind::Rawtext),
            "style" => {
                self.style = Some((String::new(), line));
                TokenSinkResult::RawData(RawKind::Rawtext)
            }
            "textarea" | "title" => TokenSinkResult::RawData(RawKind::Rcdata),
            "xmp" | "noembed" | "noframes" | "iframe" => TokenSinkResult::RawData(RawKind::Rawtext),
            "plaintext" => TokenSinkResult::Plaintext,
            _ => TokenSinkResult::Continue,
        }
    }

    fn end_style(&mut self) {
        if let Some((text, line)) = self.style.take() {
            for (url, at) in css::urls(&text) {
                self.refer(Purpose::Asset, &url, line + at - 1, "style", "url()");
            }
        }
    }

    fn refer(&mut self, purpose: Purpose, url: &str, line: u64, element: &str, attribute: &str) {
        self.refer_to(None, (purpose, url, line), element, attribute);
    }

    fn refer_to(
        &mut self,
        needs: Option<Needs>,
        (purpose, url, line): (Purpose, &str, u64),
        element: &str,
        attribute: &str,
    ) {
        self.page.references.push(Reference {
            purpose,
            url: url.to_owned(),
            line,
            at: format!("{element} {attribute}"),
            needs,
        });
    }

    fn name_encoding(&mut self, label: &str, line: u64) {
        let encoding = &mut self.page.encoding;
        encoding.get_or_insert_with(|| (label.to_owned(), line));
    }

    fn attributes(&mut self, tag: &Tag, line: u64) {
        let element = &*tag.name;
        let get = |key: &str| {
            let found = tag.attrs.iter().find(|it| &*it.name.local == key);
            found.map(|attribute| &*attribute.value)
        };
        for attribute in &tag.attrs {
            let (key, value) = (&*attribute.name.local, &*attribute.value);
            match key {
                "id" => self.anchor(value),
                "name" if element == "a" => self.anchor(value),
                "style" => {
                    for (url, at) in css::urls(value) {
                        self.refer(Purpose::Asset, &url, line + at - 1, element, key);
                    }
                }
                "srcset" if matches!(element, "img" | "source") => {
                    self.candidates(value, line, element, key);
                }
                "imagesrcset" if element == "link" => self.candidates(value, line, element, key),
                "href" if element == "base" => {
                    self.page.base.get_or_insert_with(|| value.to_owned());
                }
                "href" if element == "link" => {
                    let relations = get("rel").unwrap_or_default();
                    if let Some(purpose) = purpose_of_link(relations) {
                        let needs = Needs::of_link(relations);
                        self.refer_to(needs, (purpose, value, line), element, key);
                    }
                }
                "src" if element == "script" => {
                    let needs = Needs::of_script(get("type"));
                    self.refer_to(needs, (Purpose::Asset, value, line), element, key);
                }
                "charset" if element == "meta" => self.name_encoding(value, line),
                "content" if element == "meta" && is_type(get("http-equiv")) => {
                    if let Some(label) = encoding::of_type(value) {
                        self.name_encoding(label, line);
                    }
                }
                "content" if element == "meta" && is_refresh(get("http-equiv")) => {
                    if let Some(url) = refresh_target(value) {
                        self.refer(Purpose::Link, url, line, element, "refresh");
                    }
                }
                "content" if element == "meta" && is_preview(get("property"), get("name")) => {
                    self.refer(Purpose::Preview, value, line, element, key);
                }
                "action" if element == "form" && is_get(get("method")) => {
                    self.refer(Purpose::Link, value, line, element, key);
                }
                _ => {
                    if let Some(purpose) = purpose(element, key) {
                        self.refer(purpose, value, line, element, key);
                    }
                }
            }
        }
    }

    fn anchor(&mut self, name: &str) {
        if !name.is_empty() {
            self.page.anchors.push(self.hasher.hash_one(name));
        }
    }

    /// HTML, "srcset attributes": URLs with descriptors, separated by commas.
    fn candidates(&mut self, value: &str, line: u64, element: &str, key: &str) {
        let mut rest = value;
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
            if rest.is_empty() {
                return;
            }
            let end = rest.find(|c: char| c.is_ascii_whitespace());
            let (url, after) = rest.split_at(end.unwrap_or(rest.len()));
            let bare = url.trim_end_matches(',');
            self.refer(Purpose::Asset, bare, line, element, key);
            rest = match bare.len() == url.len() {
                // Skips the descriptor, up to the comma.
                true => after.split_once(',').map_or("", |(_, rest)| rest),
                false => after,
            };
        }
    }
}

fn purpose(element: &str, attribute: &str) -> Option<Purpose> {
    match (element, attribute) {
        ("a" | "area", "href") => Some(Purpose::Link),
        (
            "img" | "source" | "video" | "audio" | "track" | "embed" | "iframe" | "input" | "frame",
            "src",
        )
        | ("video", "poster")
        | ("object", "data")
        | ("use" | "image", "href" | "xlink:href") => Some(Purpose::Asset),
        _ => None,
    }
}

/// The purpose of a `link` element; some are neither loaded nor followed.
fn purpose_of_link(relations: &str) -> Option<Purpose> {
    const NOWHERE: [&str; 6] = [
        "preconnect",
        "dns-prefetch",
        "canonical",
        "pingback",
        "webmention",
        "edituri",
    ];
    const LOADED: [&str; 9] = [
        "stylesheet",
        "icon",
        "apple-touch-icon",
        "apple-touch-icon-precomposed",
        "mask-icon",
        "manifest",
        "preload",
        "modulepreload",
        "prefetch",
    ];
    let relations = relations.to_ascii_lowercase();
    let has = |known: &[&str]| {
        relations
            .split_ascii_whitespace()
            .any(|it| known.contains(&it))
    };
    if has(&LOADED) {
        return Some(Purpose::Asset);
    }
    (!relations.is_empty() && !has(&NOWHERE)).then_some(Purpose::Link)
}

fn is_type(kind: Option<&str>) -> bool {
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case("content-type"))
}

fn is_refresh(kind: Option<&str>) -> bool {
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case("refresh"))
}

/// Whether a `meta` element names preview content: Open Graph's pictures, videos and sounds, and
/// the pictures of X's cards. Both occur with either attribute.
fn is_preview(property: Option<&str>, name: Option<&str>) -> bool {
    const PREVIEWS: [&str; 11] = [
        "og:image",
        "og:image:url",
        "og:image:secure_url",
        "og:video",
        "og:video:url",
        "og:video:secure_url",
        "og:audio",
        "og:audio:url",
        "og:audio:secure_url",
        "twitter:image",
        "twitter:image:src",
    ];
    let is_one = |it: &str| {
        PREVIEWS
            .iter()
            .any(|known| known.eq_ignore_ascii_case(it.trim()))
    };
    property.is_some_and(is_one) || name.is_some_and(is_one)
}

fn is_get(method: Option<&str>) -> bool {
    method.is_none_or(|method| method.eq_ignore_ascii_case("get"))
}

/// The target of `5; url=/new`.
fn refresh_target(content: &str) -> Option<&str> {
    let (_, rest) = content.split_once([';', ','])?;
    let rest = rest.trim_start();
    let (name, url) = rest.split_once('=')?;
    if !name.trim_end().eq_ignore_ascii_case("url") {
        return None;
    }
    Some(url.trim().trim_matches(['"', '\'']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(text: &str) -> Vec<(Purpose, String)> {
        let page = read(text, &AnchorHasher::new()).expect("no excess");
        let references = page.references.into_iter();
        references.map(|it| (it.purpose, it.url)).collect()
    }

    #[test]
    fn references_are_found_where_browsers_find_them() {
        let check = |text: &str, purpose: Purpose, expect: &[&str]| {
            let expect: Vec<_> = expect
                .iter()
                .map(|it| (purpose, (*it).to_owned()))
                .collect();
            assert_eq!(urls(text), expect, "{text}");
        };
        let link = |text: &str, expect: &[&str]| check(text, Purpose::Link, expect);
        let asset = |text: &str, expect: &[&str]| check(text, Purpose::Asset, expect);
        link("<a href=b.html>", &["b.html"]);
        link("<a href='?a=1&amp;b=2'>", &["?a=1&b=2"]);
        link("<!-- <a href=x> --><a href=y>", &["y"]);
        link("<script>'<a href=x>'</script><a href=y>", &["y"]);
        link("<textarea><a href=x></textarea>", &[]);
        link("<noscript><a href=x></noscript>", &["x"]);
        link("<svg><script/><a href=x></svg>", &["x"]);
        link(
            "<template><a href=x><template></template><a href=y></template><a href=z>",
            &["z"],
        );
        link(
            "<template shadowrootmode=open><a href=x></template></template><a href=y>",
            &["x", "y"],
        );
        asset(
            "<template><style>a{b:url(x)}</style><img src=y></template><img src=z>",
            &["z"],
        );
        link("<meta http-equiv=Refresh content='0; URL=x'>", &["x"]);
        link("<form action=x><form method=post action=y>", &["x"]);
        link("<link rel=next href=x><link rel=canonical href=y>", &["x"]);
        let preview = |text: &str, expect: &[&str]| check(text, Purpose::Preview, expect);
        preview("<meta property='og:image' content=x.png>", &["x.png"]);
        preview("<meta name=Twitter:Image content=x.png>", &["x.png"]);
        preview(
            "<meta property='og:image:alt' content=x><meta content=y>",
            &[],
        );
        asset("<link rel='shortcut ICON' href=x>", &["x"]);
        asset("<img src=a srcset='b 1x, c,d 2x'>", &["a", "b", "c,d"]);
        asset("<img srcset='a, b'>", &["a", "b"]);
        asset("<video poster=p><source src=v>", &["p", "v"]);
        asset("<p style='background: url(x.png)'>", &["x.png"]);
        asset(
            "<p style='background: image-set(\"x.png\" 1x)'>",
            &["x.png"],
        );
        asset(
            "<style>@import 'a.css';\np{b:url(c)}</style>",
            &["a.css", "c"],
        );
    }

    #[test]
    fn anchors_lines_and_the_base_are_found() {
        let hasher = AnchorHasher::new();
        let page = read(
            "<base href=/x/><base href=/y/>\n<p id=a><a name=b></a><i name=c>\n<a href=z>",
            &hasher,
        )
        .expect("no excess");
        assert_eq!(page.base.as_deref(), Some("/x/"));
        assert_eq!(page.references[0].line, 3);
        let has = |name: &str| page.anchors.contains(&hasher.hash_one(name));
        assert_eq!((has("a"), has("b"), has("c")), (true, true, false));
    }

    #[test]
    fn what_references_need_and_the_encoding_are_found() {
        let page = |text: &str| read(text, &AnchorHasher::new()).expect("no excess");
        let check = |text: &str, expect: Option<Needs>| {
            assert_eq!(page(text).references[0].needs, expect, "{text}");
        };
        check("<script src=a>", Some(Needs::Script));
        check("<script type=module src=a>", Some(Needs::Script));
        check("<script type=Text/JavaScript src=a>", Some(Needs::Script));
        check("<script type=text/template src=a>", None);
        check(
            "<link rel='alternate Stylesheet' href=a>",
            Some(Needs::Style),
        );
        check("<link rel=icon href=a>", None);
        check("<img src=a>", None);
        let named = page("<p>\n<meta charset=latin1><meta charset=utf-8>").encoding;
        assert_eq!(named, Some(("latin1".to_owned(), 2)));
        let typed = page("<meta http-equiv=Content-Type content='text/html; charset=sjis'>");
        assert_eq!(typed.encoding, Some(("sjis".to_owned(), 1)));
        assert_eq!(
            page("<meta name=charset content='a; charset=b'>").encoding,
            None
        );
    }
}
