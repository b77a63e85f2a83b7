//! The parts of a page that a content security policy covers: inline scripts, styles, attributes.
//!
//! Browsers hash the text of an element as their parser leaves it: with normalised line ends, with
//! text in SVG decoded, with elements where they were moved to. So pages are read by a parser that
//! follows the same standard; only the necessary parts are kept.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use html5ever::interface::{Attribute, ElementFlags, NodeOrText, QualName, QuirksMode, TreeSink};
use html5ever::tendril::StrTendril;
use html5ever::tree_builder::{TreeBuilder, TreeBuilderOpts};
use html5ever::{ExpandedName, LocalName, local_name, ns};

use super::limits::{
    COMPARISON_LOOKS, FINDINGS_MAX, LOOKS_FREE, LOOKS_PER_BYTE_MAX, NESTED_DOCUMENTS_MAX, QUOTE_MAX,
};
use super::tokens::{CostlyMarkup, tokenize};

/// The parts of a page that a policy covers. Each text occurs once.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PageParts {
    /// Texts of scripts that browsers execute or read, in page order.
    pub scripts: Vec<String>,
    /// Texts of style sheets.
    pub styles: Vec<String>,
    /// Values of attributes such as `onclick`.
    pub event_handlers: Vec<String>,
    /// Values of `style` attributes.
    pub style_attributes: Vec<String>,
    /// Other origins from which scripts are loaded, as sources of a policy.
    pub script_origins: Vec<String>,
    /// Other origins from which style sheets are loaded.
    pub style_origins: Vec<String>,
    /// Other origins against which relative URLs are resolved.
    pub base_origins: Vec<String>,
    /// Parts that a strict policy would break, or cannot cover.
    pub findings: Vec<Finding>,
}

/// A part that a strict policy would break, or cannot cover.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// The element, in lower case.
    pub element: String,
    /// The beginning of the text in question.
    pub text: String,
    /// The line of the page, from 1; 0 if unknown.
    pub line: u64,
}

/// The kinds of parts that a strict policy would break, or cannot cover.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FindingKind {
    /// An attribute such as `onclick`.
    EventHandler,
    /// A URL that is a script: `javascript:...`.
    ScriptUrl,
    /// A `style` attribute.
    StyleAttribute,
    /// A `base` element that leads to another host.
    Base,
    /// The page is not in UTF-8: the hashes of texts with non-ASCII characters are unknown.
    Encoding,
}

/// Reads a page. UTF-8 is assumed; otherwise there is a finding.
///
/// # Errors
/// The page is made to be costly.
pub fn read(bytes: &[u8]) -> Result<PageParts, CostlyMarkup> {
    let mut page = PageParts::default();
    let text = String::from_utf8_lossy(bytes);
    if matches!(text, Cow::Owned(_)) {
        page.find(FindingKind::Encoding, "html", "", 0);
    }
    read_document(&text, NESTED_DOCUMENTS_MAX, &mut page)?;
    let PageParts {
        scripts,
        styles,
        event_handlers,
        style_attributes,
        script_origins,
        style_origins,
        base_origins,
        findings: _,
    } = &mut page;
    for texts in [
        scripts,
        styles,
        event_handlers,
        style_attributes,
        script_origins,
        style_origins,
        base_origins,
    ] {
        let mut seen = HashSet::new();
        texts.retain(|text| seen.insert(text.clone()));
    }
    Ok(page)
}

impl PageParts {
    fn find(&mut self, kind: FindingKind, element: &str, text: &str, line: u64) {
        if self.findings.len() < FINDINGS_MAX {
            let mut len = text.len().min(QUOTE_MAX);
            while !text.is_char_boundary(len) {
                len -= 1;
            }
            self.findings.push(Finding {
                kind,
                element: element.to_owned(),
                text: text[..len].to_owned(),
                line,
            });
        }
    }
}

fn read_document(text: &str, depth: u8, page: &mut PageParts) -> Result<(), CostlyMarkup> {
    read_once(text, true, depth, page)?;
    // Without scripting, other elements apply.
    if contains_ignoring_case(text, b"<noscript") {
        let mut without_scripts = PageParts::default();
        read_once(text, false, depth, &mut without_scripts)?;
        page.styles.extend(without_scripts.styles);
        page.style_attributes
            .extend(without_scripts.style_attributes);
        page.style_origins.extend(without_scripts.style_origins);
        for finding in without_scripts.findings {
            if !page.findings.contains(&finding) && page.findings.len() < FINDINGS_MAX {
                page.findings.push(finding);
            }
        }
    }
    Ok(())
}

fn read_once(
    text: &str,
    has_scripts: bool,
    depth: u8,
    page: &mut PageParts,
) -> Result<(), CostlyMarkup> {
    let options = TreeBuilderOpts {
        scripting_enabled: has_scripts,
        ..TreeBuilderOpts::default()
    };
    let sink = Sink {
        document: Rc::new(Element::new(QualName::new(
            None,
            ns!(),
            LocalName::default(),
        ))),
        page: RefCell::new(std::mem::take(page)),
        texts: RefCell::default(),
        nested: RefCell::default(),
        line: Cell::new(1),
        looks: Cell::new(0),
        held: Rc::default(),
    };
    let looks_max = LOOKS_FREE + LOOKS_PER_BYTE_MAX * text.len() as u64;
    let builder = tokenize(TreeBuilder::new(sink, options), text, |builder| {
        builder.sink.looks.get() > looks_max
    })?;
    let sink = builder.sink;
    for element in sink.texts.into_inner() {
        let text = element.text.borrow().clone();
        let page = &mut sink.page.borrow_mut();
        match element.name.local {
            local_name!("style") => page.styles.push(text),
            _ => page.scripts.push(text),
        }
    }
    *page = sink.page.into_inner();
    let Some(depth) = depth.checked_sub(1) else {
        return Ok(());
    };
    for document in sink.nested.into_inner() {
        read_document(&document, depth, page)?;
    }
    Ok(())
}

/// Keeps the parts that a policy covers, and just enough of the tree for the parser.
struct Sink {
    document: Rc<Element>,
    page: RefCell<PageParts>,
    /// Scripts and styles, whose text is complete at the end.
    texts: RefCell<Vec<Rc<Element>>>,
    /// Documents in attributes.
    nested: RefCell<Vec<String>>,
    line: Cell<u64>,
    /// How often the parser has looked at an open element.
    looks: Cell<u64>,
    /// Formatting elements that the parser holds. It compares each new one with them.
    held: Rc<Cell<u64>>,
}

#[derive(Debug)]
struct Element {
    name: QualName,
    /// Kept for scripts and styles only.
    keeps_text: Cell<bool>,
    text: RefCell<String>,
    /// Its attributes, for `html` and `body`, which later tags can give more.
    attributes: RefCell<HashSet<LocalName>>,
    /// For a `template`, whose content is separate.
    content: RefCell<Option<Rc<Element>>>,
    is_integration_point: bool,
    /// Counts it as long as the parser holds it, if it may be one of those that are reopened.
    reopened: Option<ElementCount>,
}

/// Counts an element for as long as this exists.
#[derive(Debug)]
struct ElementCount(Rc<Cell<u64>>);

impl ElementCount {
    fn new(count: &Rc<Cell<u64>>) -> Self {
        count.set(count.get() + 1);
        Self(Rc::clone(count))
    }
}

impl Drop for ElementCount {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Element {
    fn new(name: QualName) -> Self {
        Self {
            name,
            keeps_text: Cell::new(false),
            text: RefCell::default(),
            attributes: RefCell::default(),
            content: RefCell::default(),
            is_integration_point: false,
            reopened: None,
        }
    }
}

impl Sink {
    fn read_attributes(&self, name: &QualName, attributes: &[Attribute]) {
        let element = &*name.local;
        let line = self.line.get();
        let page = &mut *self.page.borrow_mut();
        for attribute in attributes {
            let (key, value) = (&*attribute.name.local, &*attribute.value);
            let is_plain = attribute.name.ns == ns!();
            let is_handler = is_plain
                && key.len() > 2
                && key.starts_with("on")
                && key.bytes().all(|byte| byte.is_ascii_lowercase());
            if is_handler {
                page.find(FindingKind::EventHandler, element, value, line);
                page.event_handlers.push(value.to_owned());
            } else if is_plain && key == "style" && !value.trim().is_empty() {
                page.find(FindingKind::StyleAttribute, element, value, line);
                page.style_attributes.push(value.to_owned());
            } else if is_plain && key == "srcdoc" {
                self.nested.borrow_mut().push(value.to_owned());
            } else if is_url_attribute(key) && is_script_url(value) {
                page.find(FindingKind::ScriptUrl, element, value, line);
            }
        }
    }

    /// Records what an element loads from elsewhere; returns whether it is an inline script or
    /// style.
    fn read_element(&self, name: &QualName, attributes: &[Attribute]) -> bool {
        let get = |key: &str| {
            let found = attributes.iter().find(|other| &*other.name.local == key);
            found.map(|attribute| &*attribute.value)
        };
        let page = &mut *self.page.borrow_mut();
        match name.expanded() {
            ExpandedName {
                ns: &ns!(html) | &ns!(svg),
                local: &local_name!("script"),
            } => {
                let url = if name.ns == ns!(svg) {
                    get("href")
                } else {
                    get("src")
                };
                if let Some(url) = url {
                    add_origin(&mut page.script_origins, url);
                }
                url.is_none() && is_script_type(get("type"), get("language"))
            }
            ExpandedName {
                ns: &ns!(html) | &ns!(svg),
                local: &local_name!("style"),
            } => true,
            ExpandedName {
                ns: &ns!(html),
                local: &local_name!("link"),
            } => {
                let relations = get("rel").unwrap_or_default().to_ascii_lowercase();
                let has = |relation| relations.split_ascii_whitespace().any(|is| is == relation);
                let kind = get("as").unwrap_or_default().to_ascii_lowercase();
                let url = get("href").unwrap_or_default();
                if has("stylesheet") || (has("preload") && kind == "style") {
                    add_origin(&mut page.style_origins, url);
                } else if has("modulepreload") || (has("preload") && kind == "script") {
                    add_origin(&mut page.script_origins, url);
                }
                false
            }
            ExpandedName {
                ns: &ns!(html),
                local: &local_name!("base"),
            } => {
                if let Some(origin) = get("href").and_then(origin) {
                    page.find(FindingKind::Base, "base", &origin, self.line.get());
                    for origins in [
                        &mut page.script_origins,
                        &mut page.style_origins,
                        &mut page.base_origins,
                    ] {
                        origins.push(origin.clone());
                    }
                }
                false
            }
            _ => false,
        }
    }
}

impl TreeSink for Sink {
    type Handle = Rc<Element>;
    type Output = Self;
    type ElemName<'a> = ExpandedName<'a>;

    fn finish(self) -> Self {
        self
    }

    fn get_document(&self) -> Rc<Element> {
        Rc::clone(&self.document)
    }

    fn elem_name<'a>(&'a self, target: &'a Rc<Element>) -> ExpandedName<'a> {
        self.looks.set(self.looks.get() + 1);
        target.name.expanded()
    }

    fn create_element(
        &self,
        name: QualName,
        attributes: Vec<Attribute>,
        flags: ElementFlags,
    ) -> Rc<Element> {
        self.read_attributes(&name, &attributes);
        let keeps_text = self.read_element(&name, &attributes);
        let mut element = Element::new(name);
        self.looks.set(self.looks.get() + 1);
        if is_formatting(&element.name.local) {
            element.reopened = Some(ElementCount::new(&self.held));
            self.looks
                .set(self.looks.get() + COMPARISON_LOOKS * self.held.get());
        }
        element.keeps_text.set(keeps_text);
        element.is_integration_point = flags.mathml_annotation_xml_integration_point;
        if matches!(
            element.name.local,
            local_name!("html") | local_name!("body")
        ) {
            let names = attributes.iter();
            let names = names.map(|attribute| attribute.name.local.clone());
            element.attributes = RefCell::new(names.collect());
        }
        let element = Rc::new(element);
        if keeps_text {
            self.texts.borrow_mut().push(Rc::clone(&element));
        }
        element
    }

    fn append(&self, parent: &Rc<Element>, child: NodeOrText<Rc<Element>>) {
        if let NodeOrText::AppendText(text) = child
            && parent.keeps_text.get()
        {
            parent.text.borrow_mut().push_str(&text);
        }
    }

    fn add_attrs_if_missing(&self, target: &Rc<Element>, attributes: Vec<Attribute>) {
        let mut known = target.attributes.borrow_mut();
        let new: Vec<Attribute> = attributes
            .into_iter()
            .filter(|attribute| known.insert(attribute.name.local.clone()))
            .collect();
        self.read_attributes(&target.name, &new);
    }

    fn get_template_contents(&self, target: &Rc<Element>) -> Rc<Element> {
        let mut content = target.content.borrow_mut();
        let name = || QualName::new(None, ns!(), LocalName::default());
        Rc::clone(content.get_or_insert_with(|| Rc::new(Element::new(name()))))
    }

    fn same_node(&self, x: &Rc<Element>, y: &Rc<Element>) -> bool {
        self.looks.set(self.looks.get() + 1);
        Rc::ptr_eq(x, y)
    }

    fn is_mathml_annotation_xml_integration_point(&self, target: &Rc<Element>) -> bool {
        target.is_integration_point
    }

    fn set_current_line(&self, line: u64) {
        self.line.set(line);
    }

    // Text that is moved out of a table never ends up in a script, and elements keep their own
    // text: their position in the tree makes no difference.
    fn append_based_on_parent_node(
        &self,
        _element: &Rc<Element>,
        _previous: &Rc<Element>,
        _child: NodeOrText<Rc<Element>>,
    ) {
    }
    fn append_before_sibling(&self, _sibling: &Rc<Element>, _node: NodeOrText<Rc<Element>>) {}
    fn remove_from_parent(&self, _target: &Rc<Element>) {}
    fn reparent_children(&self, _node: &Rc<Element>, _parent: &Rc<Element>) {}

    fn create_comment(&self, _text: StrTendril) -> Rc<Element> {
        let name = QualName::new(None, ns!(), LocalName::default());
        Rc::new(Element::new(name))
    }
    fn create_pi(&self, _target: StrTendril, text: StrTendril) -> Rc<Element> {
        self.create_comment(text)
    }
    fn append_doctype_to_document(&self, _: StrTendril, _: StrTendril, _: StrTendril) {}
    fn parse_error(&self, _message: Cow<'static, str>) {}
    fn set_quirks_mode(&self, _mode: QuirksMode) {}
}

/// Adds the origin of a URL, unless it is a relative one.
fn add_origin(origins: &mut Vec<String>, url: &str) {
    if let Some(origin) = origin(url) {
        origins.push(origin);
    }
}

/// The origin of an absolute URL as a source of a policy. Without a scheme, the page's applies, as
/// in a policy.
fn origin(url: &str) -> Option<String> {
    let url = url.trim();
    let lower = url.to_ascii_lowercase();
    let (scheme, rest) = match (lower.split_once("://"), lower.strip_prefix("//")) {
        (_, Some(rest)) => ("", rest),
        (Some((scheme @ ("http" | "https"), rest)), None) => (scheme, rest),
        _ => return None,
    };
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let host = rest[..end].rsplit('@').next().unwrap_or_default();
    let is_host_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':');
    let is_host = !host.is_empty() && host.bytes().all(is_host_byte);
    is_host.then(|| match scheme {
        "" => host.to_owned(),
        scheme => format!("{scheme}://{host}"),
    })
}

/// Whether a script without source has a type that browsers execute or read (HTML, "prepare the
/// script element"). Others are data, which no policy blocks.
fn is_script_type(kind: Option<&str>, language: Option<&str>) -> bool {
    let kind = match (kind, language) {
        (Some(""), _) | (None, None | Some("")) => return true,
        (Some(kind), _) => kind.trim_ascii().to_ascii_lowercase(),
        (None, Some(language)) => format!("text/{}", language.to_ascii_lowercase()),
    };
    matches!(kind.as_str(), "module" | "importmap" | "speculationrules")
        || SCRIPT_TYPES.contains(&kind.as_str())
}

/// HTML, section 13.2.4.3.
fn is_formatting(name: &str) -> bool {
    const NAMES: [&str; 14] = [
        "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt",
        "u",
    ];
    NAMES.contains(&name)
}

fn is_url_attribute(key: &str) -> bool {
    matches!(
        key,
        "href" | "src" | "action" | "formaction" | "data" | "xlink:href"
    )
}

/// Whether a URL is a script: browsers drop leading spaces, and tabs and line ends anywhere.
fn is_script_url(value: &str) -> bool {
    let mut bytes = value
        .trim_start_matches(|c: char| c <= ' ')
        .bytes()
        .filter(|byte| !matches!(byte, b'\t' | b'\n' | b'\r'));
    b"javascript:".iter().all(|expect| {
        bytes
            .next()
            .is_some_and(|byte| byte.to_ascii_lowercase() == *expect)
    })
}

fn contains_ignoring_case(text: &str, needle: &[u8]) -> bool {
    text.as_bytes()
        .windows(needle.len())
        .any(|window| window.eq_ignore_ascii_case(needle))
}

/// JavaScript MIME type essences, in lower case (MIME Sniffing standard, section 4.6).
pub const SCRIPT_TYPES: &[&str] = &[
    "application/ecmascript",
    "application/javascript",
    "application/x-ecmascript",
    "application/x-javascript",
    "text/ecmascript",
    "text/javascript",
    "text/javascript1.0",
    "text/javascript1.1",
    "text/javascript1.2",
    "text/javascript1.3",
    "text/javascript1.4",
    "text/javascript1.5",
    "text/jscript",
    "text/livescript",
    "text/x-ecmascript",
    "text/x-javascript",
];
