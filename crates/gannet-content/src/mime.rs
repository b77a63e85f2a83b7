//! Content types by file name suffix, and properties of a type.
//!
//! Which types get `charset=utf-8`: all of `text/*`, which browsers would otherwise have to guess
//! (and which includes `text/javascript` since RFC 9239). Not JSON, which is UTF-8 by definition
//! and whose types have no such parameter (RFC 8259 section 11); not XML types (`application/xml`,
//! `image/svg+xml`, feeds), since the parameter would override the encoding that the document
//! itself declares (RFC 7303 section 3).

use std::borrow::Cow;

use gannet_http::semantics::fields::{Fields, KnownField};

use crate::limits::SUFFIX_MAX;
use crate::stored_coding;

mod table;

/// The content type of unknown files: bytes, to be saved and not interpreted.
pub const UNKNOWN: &str = "application/octet-stream";

/// The content type of a path by its last segment, from the built-in table.
///
/// The suffix is the part after the last dot, in any case; a name that starts with its only dot has
/// none. A few names are known as a whole (`LICENSE`, `wpad.dat`), and a few below `/.well-known`.
/// A file that is [stored in a coding](stored_coding) has the type of its decoded content, and one
/// whose name has a query, as in copies of other sites (`x.css?ver=5`), that of what precedes it,
/// unless it ends in `.html`.
#[must_use]
pub fn content_type(path: &[u8]) -> &'static str {
    let path = decoded(path);
    let name = last_segment(path);
    let of_suffix = |name| suffix_key(suffix(name)?).and_then(table::of_suffix);
    // A page of a script that a copy has saved as HTML.
    let is_page = suffix(name).is_some_and(|it| it.eq_ignore_ascii_case(b"html"));
    let start = if is_page { name } else { without_query(name) };
    of_suffix(start)
        .or_else(|| of_suffix(name))
        .or_else(|| table::of_name(name))
        .or_else(|| table::of_well_known(path))
        .unwrap_or(UNKNOWN)
}

/// The built-in table with the user's own pairs before it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Types {
    /// Sorted by key; the last of several pairs with one suffix.
    own: Vec<(u128, String)>,
}

impl Types {
    /// Takes (suffix, content type) pairs; a later pair overrides an earlier one. A suffix is also the
    /// whole name of a file without one (`README`).
    ///
    /// A suffix (without dot) that is empty, longer than [`SUFFIX_MAX`] or contains a dot or slash;
    /// a type that is not visible ASCII with a slash in it.
    pub fn new<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, TypesError> {
        let mut own: Vec<(u128, String)> = Vec::new();
        for (suffix, content_type) in pairs {
            let has_separator = suffix.bytes().any(|byte| matches!(byte, b'.' | b'/' | 0));
            let key = suffix_key(suffix.as_bytes()).filter(|_| !has_separator);
            let key = key.ok_or(TypesError::Suffix)?;
            if !is_content_type(content_type) {
                return Err(TypesError::ContentType);
            }
            match own.binary_search_by_key(&key, |&(key, _)| key) {
                Ok(index) => own[index].1 = content_type.to_string(),
                Err(index) => own.insert(index, (key, content_type.to_string())),
            }
        }
        Ok(Self { own })
    }

    /// The content type of a path by its last segment.
    #[must_use]
    pub fn content_type(&self, path: &[u8]) -> Cow<'static, str> {
        let name = without_query(last_segment(decoded(path)));
        if !self.own.is_empty()
            && let Some(key) = suffix_key(suffix(name).unwrap_or(name))
            && let Ok(index) = self.own.binary_search_by_key(&key, |&(key, _)| key)
        {
            return Cow::Owned(self.own[index].1.clone());
        }
        Cow::Borrowed(content_type(path))
    }
}

/// Why a pair cannot be used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TypesError {
    /// The suffix is empty, longer than [`SUFFIX_MAX`], or contains a dot or slash.
    Suffix,
    /// The content type is invalid.
    ContentType,
}

/// Whether `len` bytes of this type are worth compressing.
///
/// Short unknown ones are worth a try; the packer keeps the result only if it is smaller. Images,
/// audio, video, web fonts and archives are compressed already. Formats that programs read by ranges
/// (databases, maps, arrays, tar) are not: such a program takes its offsets from the file and its
/// length from `HEAD`, and neither is right for a coding. A long file of unknown type may be one.
#[must_use]
pub fn is_compressible(content_type: &str, len: u64) -> bool {
    if is_unknown(content_type) {
        return len <= UNKNOWN_CODED_UP_TO;
    }
    let start = content_type.get(..TEXT.len());
    if start.is_some_and(|start| start.eq_ignore_ascii_case(TEXT)) {
        return true;
    }
    let essence = essence(content_type);
    let slash = essence.bytes().position(|byte| byte == b'/');
    let (top, sub) = slash.map_or(("", ""), |at| (&essence[..at], &essence[at + 1..]));
    let is = |one: &str, other: &str| one.eq_ignore_ascii_case(other);
    if is(top, "message") {
        return true;
    }
    if is(top, "model") {
        return !is(sub, "3mf") && !is(sub, "vnd.usdz+zip");
    }
    let suffix = sub.rsplit_once('+').map_or("", |(_, suffix)| suffix);
    let has_text_suffix = is(suffix, "json") || is(suffix, "xml");
    has_text_suffix || COMPRESSIBLE.iter().any(|it| is(it, essence))
}

/// Whether content begins as a format that programs read by ranges, whatever its name says.
#[must_use]
pub fn is_read_by_ranges(content: &[u8]) -> bool {
    const STARTS: [(usize, &[u8]); 8] = [
        (0, b"SQLite format 3\0"),
        (0, b"PMTiles"),
        (0, b"ARROW1\0\0"),
        (0, b"FEA1"),
        (0, b"SIMPLE  ="),
        (0, b"LASF"),
        (0, b"fgb\x03fgb"),
        (8, b"DUCK"),
    ];
    let has = |(at, magic): &(usize, &[u8])| {
        let rest = content.get(*at..).unwrap_or_default();
        rest.starts_with(magic)
    };
    STARTS.iter().any(has) || has(&(257, b"ustar"))
}

/// Whether a type says nothing about the content: that of a file name without a known suffix, for one.
#[must_use]
pub fn is_unknown(content_type: &str) -> bool {
    essence(content_type).eq_ignore_ascii_case(UNKNOWN)
}

/// A type without its parameters.
pub(crate) fn essence(content_type: &str) -> &str {
    let end = content_type.bytes().position(|byte| byte == b';');
    content_type[..end.unwrap_or(content_type.len())].trim_ascii()
}

/// Whether a client lists a type among those that it accepts (RFC 9110 section 12.5.1): ranges like
/// `*/*` do not count, nor do weights.
#[must_use]
pub fn accepts_by_name(fields: &Fields<'_>, essence: &str) -> bool {
    let mut elements = fields
        .lines(KnownField::Accept)
        .flat_map(|line| line.split(|&byte| byte == b','));
    elements.any(|element| {
        let named = element.split(|&byte| byte == b';').next();
        let named = named.unwrap_or_default().trim_ascii();
        named.eq_ignore_ascii_case(essence.as_bytes())
    })
}

/// Whether the path's last segment has the suffix of something other than a page. If such a file is
/// missing, the page of an application must not take its place: a script answered with HTML shows
/// as a blank page without a clue.
#[must_use]
pub fn looks_like_asset(path: &[u8]) -> bool {
    suffix(last_segment(path)).is_some_and(|suffix| {
        !suffix.eq_ignore_ascii_case(b"html") && !suffix.eq_ignore_ascii_case(b"htm")
    })
}

/// The path of a file's decoded content.
fn decoded(path: &[u8]) -> &[u8] {
    stored_coding::of(path).map_or(path, |(_, inner)| inner)
}

/// A name without the query that copies of other sites have in it.
pub(crate) fn without_query(name: &[u8]) -> &[u8] {
    let end = name.iter().position(|&byte| byte == b'?');
    &name[..end.unwrap_or(name.len())]
}

pub(crate) fn last_segment(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// The part after the last dot of a name, unless that dot begins or ends it.
fn suffix(name: &[u8]) -> Option<&[u8]> {
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    let suffix = &name[dot + 1..];
    (dot > 0 && !suffix.is_empty()).then_some(suffix)
}

/// The suffix in lower case as a number that sorts like the letters; `None` if it is empty or too
/// long to be known.
const fn suffix_key(suffix: &[u8]) -> Option<u128> {
    if suffix.is_empty() || suffix.len() > SUFFIX_MAX {
        return None;
    }
    let mut bytes = [0; SUFFIX_MAX];
    let mut index = 0;
    while index < suffix.len() {
        bytes[index] = suffix[index].to_ascii_lowercase();
        index += 1;
    }
    Some(u128::from_be_bytes(bytes))
}

/// `type/subtype`, with parameters or not, as a field value may carry it.
fn is_content_type(text: &str) -> bool {
    let is_visible = text.bytes().all(|byte| (b' '..0x7f).contains(&byte));
    let essence = text.split(';').next().unwrap_or_default();
    let is_pair = matches!(
        essence.trim_ascii_end().split_once('/'),
        Some((top, sub)) if !top.is_empty() && !sub.is_empty() && !sub.contains('/')
    );
    is_visible && is_pair && !essence.trim_ascii_end().contains(' ') && text.trim() == text
}

/// The longest file of unknown type that is coded, in bytes: longer ones are downloads and data.
pub const UNKNOWN_CODED_UP_TO: u64 = 64 << 10;

/// How types of text begin.
const TEXT: &str = "text/";

/// Types outside `text/*` whose formats are not compressed.
const COMPRESSIBLE: [&str; 49] = [
    "application/cbor",
    "application/javascript",
    "application/json",
    "application/json5",
    "application/jsonl",
    "application/jwt",
    "application/msword",
    "application/n-quads",
    "application/n-triples",
    "application/postscript",
    "application/rtf",
    "application/sparql-query",
    "application/sparql-update",
    "application/sql",
    "application/toml",
    "application/trig",
    "application/vnd.apple.mpegurl",
    "application/vnd.chess-pgn",
    "application/vnd.mapbox-vector-tile",
    "application/vnd.ms-excel",
    "application/vnd.ms-fontobject",
    "application/vnd.ms-powerpoint",
    "application/vnd.msgpack",
    "application/wasm",
    "application/x-java-jnlp-file",
    "application/x-ndjson",
    "application/x-protobuf",
    "application/x-sh",
    "application/xml",
    "application/xml-dtd",
    "application/yaml",
    "application/yang",
    "audio/basic",
    "audio/midi",
    "font/collection",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/vnd.adobe.photoshop",
    "image/vnd.dxf",
    "image/vnd.microsoft.icon",
    "image/vnd.ms-dds",
    "image/x-portable-anymap",
    "image/x-portable-bitmap",
    "image/x-portable-graymap",
    "image/x-portable-pixmap",
    "image/x-tga",
    "image/x-xbitmap",
    "image/x-xpixmap",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expect: &str) {
        assert_eq!(content_type(path.as_bytes()), expect, "{path}");
    }

    #[test]
    fn what_the_web_is_made_of() {
        check("/index.html", "text/html; charset=utf-8");
        check("/a/b.css", "text/css; charset=utf-8");
        check("/app.js", "text/javascript; charset=utf-8");
        check("/app.mjs", "text/javascript; charset=utf-8");
        check("/app.js.map", "application/json");
        check("/site.webmanifest", "application/manifest+json");
        check("/x.json", "application/json");
        check("/x.wasm", "application/wasm");
        check("/x.svg", "image/svg+xml");
        check("/x.avif", "image/avif");
        check("/x.webp", "image/webp");
        check("/x.woff2", "font/woff2");
        check("/x.ico", "image/vnd.microsoft.icon");
        check("/x.mp4", "video/mp4");
        check("/x.pdf", "application/pdf");
        check("/robots.txt", "text/plain; charset=utf-8");
        check("/feed.atom", "application/atom+xml");
        check("/sitemap.xml", "application/xml");
        check("/subtitles.vtt", "text/vtt; charset=utf-8");
        check("/notebook.ipynb", "application/x-ipynb+json");
        check("/data.parquet", "application/vnd.apache.parquet");
        check("/map.geojson", "application/geo+json");
        check("/x.jxl", "image/jxl");
        check("/start.jnlp", "application/x-java-jnlp-file");
        check("/app.war", "application/java-archive");
        check("/shader.wgsl", "text/wgsl; charset=utf-8");
    }

    #[test]
    fn the_last_suffix_counts_in_any_case() {
        check("/A.HTML", "text/html; charset=utf-8");
        check("/site.tar.gz", "application/gzip");
        check("/a.js/b", UNKNOWN);
        check("/a.b/c.js", "text/javascript; charset=utf-8");
    }

    #[test]
    fn names_without_a_known_suffix() {
        check("", UNKNOWN);
        check("/", UNKNOWN);
        check("/name", UNKNOWN);
        check("/.html", UNKNOWN);
        check("/html.", UNKNOWN);
        check("/x.unheardof", UNKNOWN);
        check("/x.suffixlongerthansixteen", UNKNOWN);
        for name in [
            "LICENSE",
            "doc/a/copyright",
            "FAQ",
            "x.sh",
            "x.bash",
            "x.zsh",
        ] {
            check(&format!("/{name}"), "text/plain; charset=utf-8");
        }
        check(
            "/.well-known/apple-app-site-association",
            "application/json",
        );
    }

    #[test]
    fn own_types_come_first() {
        let types = Types::new([
            ("ts", "text/plain; charset=utf-8"),
            ("HTML", "text/html; charset=iso-8859-1"),
            ("ts", "text/typescript"),
        ])
        .expect("good pairs");
        assert_eq!(types.content_type(b"/a.ts"), "text/typescript");
        assert_eq!(
            types.content_type(b"/a.Html"),
            "text/html; charset=iso-8859-1"
        );
        assert_eq!(types.content_type(b"/a.css"), "text/css; charset=utf-8");
        assert_eq!(types.content_type(b"/a"), UNKNOWN);
        let whole = Types::new([("readme", "text/markdown"), ("x", "text/x")]).expect("good pairs");
        for path in ["/README", "/a/readme", "/a.readme", "/README.gz"] {
            let expect = match path {
                "/README.gz" => "application/gzip",
                _ => "text/markdown",
            };
            assert_eq!(whole.content_type(path.as_bytes()), expect, "{path}");
        }
        for path in ["/", "/.x", "/x.", "/x.y"] {
            assert_eq!(whole.content_type(path.as_bytes()), UNKNOWN, "{path}");
        }
    }

    #[test]
    fn pairs_that_cannot_be_sent_are_refused() {
        for suffix in ["", ".ts", "a/b", "seventeen-letters", "a\0"] {
            let types = Types::new([(suffix, "text/plain")]);
            assert_eq!(types, Err(TypesError::Suffix), "{suffix:?}");
        }
        for bad in [
            "",
            "text",
            "/",
            "text/",
            "/plain",
            "a/b/c",
            "a/b\r\nx: y",
            "a /b",
            " a/b",
        ] {
            let types = Types::new([("x", bad)]);
            assert_eq!(types, Err(TypesError::ContentType), "{bad:?}");
        }
    }

    #[test]
    fn text_is_compressible_and_media_are_not() {
        for path in [
            "a.html",
            "a.css",
            "a.js",
            "a.json",
            "a.svg",
            "a.xml",
            "a.wasm",
            "a.ttf",
            "a.otf",
            "a.map",
            "a.webmanifest",
            "a.rss",
            "a.ico",
            "a.bmp",
            "a.eot",
            "a.gltf",
            "a.obj",
            "a.md",
            "a.ipynb",
            "a.jnlp",
        ] {
            assert!(
                is_compressible(content_type(path.as_bytes()), 1_000_000),
                "{path}"
            );
        }
        for path in [
            "a.png",
            "a.jpg",
            "a.webp",
            "a.avif",
            "a.jxl",
            "a.gif",
            "a.mp4",
            "a.webm",
            "a.mp3",
            "a.ogg",
            "a.flac",
            "a.woff",
            "a.woff2",
            "a.zip",
            "a.gz",
            "a.br",
            "a.zst",
            "a.7z",
            "a.pdf",
            "a.docx",
            "a.epub",
            "a.jar",
            "a.iso",
            "a.parquet",
            "a.war",
            "a.cbz",
        ] {
            assert!(!is_compressible(content_type(path.as_bytes()), 1), "{path}");
        }
        assert!(is_compressible("Text/HTML;charset=x", 1));
        assert!(!is_compressible("", 1));
    }

    #[test]
    fn what_programs_read_by_ranges_is_never_coded() {
        for name in [
            "a.sqlite",
            "a.sqlite3",
            "a.sqlitedb",
            "a.db",
            "a.db3",
            "a.gpkg",
            "a.mbtiles",
            "a.pmtiles",
            "a.tar",
            "a.arrow",
            "a.feather",
            "a.fits",
            "a.las",
            "a.laz",
            "a.fgb",
            "a.duckdb",
            "a.h5",
            "a.nc",
            "a.tiff",
            "a.parquet",
        ] {
            let content_type = content_type(name.as_bytes());
            assert_ne!(content_type, UNKNOWN, "{name}");
            assert!(!is_compressible(content_type, 1_000), "{name}");
        }
        for name in ["a", "a.bin", "a.zarr", "a.idx"] {
            let content_type = content_type(name.as_bytes());
            assert!(is_compressible(content_type, 64 << 10), "{name}");
            assert!(!is_compressible(content_type, (64 << 10) + 1), "{name}");
        }
        let tar = [&[b'x'; 257][..], b"ustar\0"].concat();
        let duck = b"checksumDUCK\x40";
        let sound: [&[u8]; 5] = [
            b"SQLite format 3\0\x10",
            b"LASF",
            b"SIMPLE  = T",
            &tar,
            duck,
        ];
        for content in sound {
            assert!(is_read_by_ranges(content), "{}", content.escape_ascii());
        }
        for content in [&b""[..], b"SQLite format 3.", b"<html>", b"DUCK", &tar[1..]] {
            assert!(!is_read_by_ranges(content), "{}", content.escape_ascii());
        }
    }

    #[test]
    fn copies_of_sites_have_queries_in_their_names() {
        check("/style.css?ver=5.2.1", "text/css; charset=utf-8");
        check("/app.js?v=1.css", "text/javascript; charset=utf-8");
        check("/index.php?p=1.html", "text/html; charset=utf-8");
        check("/x.unheardof?p=1", UNKNOWN);
        check("/x.unheardof?p=1.txt", "text/plain; charset=utf-8");
        check("/?", UNKNOWN);
        let types = Types::new([("css", "text/x")]).expect("a good pair");
        assert_eq!(types.content_type(b"/style.css?ver=5"), "text/x");
    }

    #[test]
    fn well_known_files_have_the_types_that_their_readers_expect() {
        let json = "application/json";
        for name in [
            "matrix/client",
            "matrix/server",
            "openid-configuration",
            "nodeinfo",
            "webauthn",
            "oauth-authorization-server",
            "assetlinks",
            "assetlinks.json",
            "apple-app-site-association",
        ] {
            check(&format!("/.well-known/{name}"), json);
            check(&format!(".well-known/{name}"), json);
        }
        check("/.well-known/webfinger", "application/jrd+json");
        check("/.well-known/host-meta", "application/xrd+xml");
        check("/.well-known/acme-challenge/x", UNKNOWN);
        check("/matrix/client", UNKNOWN);
        check("/a/.well-known/nodeinfo", UNKNOWN);
        check("/wpad.dat", "application/x-ns-proxy-autoconfig");
        check("/proxy.pac", "application/x-ns-proxy-autoconfig");
        check("/other.dat", UNKNOWN);
    }

    #[test]
    fn assets_have_a_suffix_that_is_no_pages() {
        for asset in ["/a.js", "/x/a.3f.css", "a.map", "/a.HTMLX"] {
            assert!(looks_like_asset(asset.as_bytes()), "{asset}");
        }
        for page in ["/", "/a", "/a.b/", "/a.html", "/a.HTM", "/.x", "/a."] {
            assert!(!looks_like_asset(page.as_bytes()), "{page}");
        }
    }

    #[test]
    fn every_type_of_the_table_is_found_and_has_a_charset_if_it_is_text() {
        for &(suffix, content_type) in table::SUFFIXES {
            check(&format!("/x.{suffix}"), content_type);
            assert!(is_content_type(content_type), "{content_type}");
            let has_charset = content_type.ends_with("; charset=utf-8");
            assert_eq!(content_type.starts_with("text/"), has_charset, "{suffix}");
        }
    }
}
