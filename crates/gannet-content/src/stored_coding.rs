//! Files that are stored in a content coding and requested under that very name.
//!
//! Unity's web builds contain such files: a page requests `Build/game.wasm.br` and expects the
//! browser to decode it, so the response needs `content-encoding: br` and the type of `game.wasm`.
//! Only these names are recognised by default, and those of compressed pictures (`logo.svgz`), whose
//! type says nothing of gzip: browsers show them only with `content-encoding: gzip`. Some files of that
//! name are plain SVG, so their first bytes decide. Others of the kind (`sitemap.xml.gz`,
//! `data.json.gz`) are as often meant to be saved as they are; a rule of the site can name those to
//! be decoded.

use gannet_http::semantics::coding::Coding;

use crate::mime;
use crate::rules::headers::{CODING, FieldChanges};

/// The folder that Unity writes its build to.
const FOLDER: &[u8] = b"Build";

/// The ends of a build's file names, before their coding.
const ENDS: [&[u8]; 4] = [b".data", b".framework.js", b".symbols.json", b".wasm"];

/// The codings that Unity compresses builds with, by suffix.
const CODINGS: [(&[u8], Coding); 2] = [(b".br", Coding::Brotli), (b".gz", Coding::Gzip)];

/// The coding that the file at a path is stored in, and the path of its decoded content; `None` if
/// it is not stored in a coding. The path may start with a slash or not.
#[must_use]
pub fn of(path: &[u8]) -> Option<(Coding, &[u8])> {
    let coded = |(suffix, coding): &(&[u8], Coding)| Some((*coding, path.strip_suffix(*suffix)?));
    let (coding, inner) = CODINGS.iter().find_map(coded)?;
    let mut segments = inner.rsplit(|&byte| byte == b'/');
    let (name, folder) = (segments.next()?, segments.next()?);
    let is_of_build = ENDS
        .iter()
        .any(|end| name.len() > end.len() && name.ends_with(end));
    (folder == FOLDER && is_of_build).then_some((coding, inner))
}

/// Whether a file with this path may be stored in a coding, which is then never coded again.
#[must_use]
pub fn is_possible(path: &[u8]) -> bool {
    is_told_by_start(path) || of(path).is_some()
}

/// Whether the first [`START_LEN`] bytes of a file with this path decide whether it is stored in gzip.
#[must_use]
pub fn is_told_by_start(path: &[u8]) -> bool {
    let name = mime::without_query(mime::last_segment(path));
    let suffix = name.len().checked_sub(PICTURE.len());
    suffix.is_some_and(|at| name[at..].eq_ignore_ascii_case(PICTURE))
}

/// Whether content begins as gzip (RFC 1952 section 2.3.1).
#[must_use]
pub fn is_gzip(start: &[u8]) -> bool {
    start.starts_with(&[0x1f, 0x8b])
}

/// How many bytes at the start of a file [`is_gzip`] needs.
pub const START_LEN: usize = 2;

/// The suffix of SVG that is compressed by gzip.
const PICTURE: &[u8] = b".svgz";

/// The changes to the fields of a path's own content, in addition to those of the site's rules. A
/// rule that names a coding takes precedence. `is_gzip` is what the start of the file says, if it
/// [decides](is_told_by_start).
#[must_use]
pub fn with_coding(
    changes: Option<FieldChanges>,
    path: &[u8],
    is_gzip: bool,
) -> Option<FieldChanges> {
    let of_start = (is_gzip && is_told_by_start(path)).then_some(Coding::Gzip);
    let Some(coding) = of_start.or_else(|| of(path).map(|(coding, _)| coding)) else {
        return changes;
    };
    let mut changes = changes.unwrap_or_default();
    if !changes.set.iter().any(|(name, _)| name == CODING) {
        let value = coding.name().as_bytes().to_vec();
        changes.set.push((CODING.to_owned(), value));
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_of_unity_are_known() {
        let check = |path: &str, expect: Option<Coding>, content_type: &str| {
            let found = of(path.as_bytes()).map(|(coding, _)| coding);
            assert_eq!(found, expect, "{path}");
            assert_eq!(mime::content_type(path.as_bytes()), content_type, "{path}");
        };
        let (br, gzip) = (Some(Coding::Brotli), Some(Coding::Gzip));
        let script = "text/javascript; charset=utf-8";
        check("/Build/game.wasm.br", br, "application/wasm");
        check("Build/game.wasm.gz", gzip, "application/wasm");
        check("/a/Build/my.game.framework.js.gz", gzip, script);
        check("/Build/game.data.br", br, mime::UNKNOWN);
        check("/Build/game.symbols.json.gz", gzip, "application/json");
        // The loader is not compressed, and another script is not part of the build.
        check("/Build/game.loader.js", None, script);
        check("/Build/other.js.gz", None, "application/gzip");
        check("/Build/game.data.unityweb", None, mime::UNKNOWN);
        check("/build/game.data.gz", None, "application/gzip");
        check("/Build/x/game.data.gz", None, "application/gzip");
        check("/Build/.data.gz", None, "application/gzip");
        check("/sitemap.xml.gz", None, "application/gzip");
        check("game.data.gz", None, "application/gzip");
    }

    #[test]
    fn a_rule_knows_better() {
        let rule = |name: &str, value: &str| FieldChanges {
            set: vec![(name.to_owned(), value.as_bytes().to_vec())],
            remove: Vec::new(),
        };
        let path = b"/Build/game.wasm.br";
        assert_eq!(with_coding(None, path, false), Some(rule(CODING, "br")));
        let zstd = Some(rule(CODING, "zstd"));
        assert_eq!(with_coding(zstd.clone(), path, false), zstd);
        let both = with_coding(Some(rule("x-y", "z")), path, false).expect("changes");
        assert_eq!(both.set.len(), 2);
        assert_eq!(with_coding(None, b"/game.wasm", true), None);
    }

    #[test]
    fn compressed_pictures_are_told_by_their_first_bytes() {
        for (path, expect) in [
            ("/logo.svgz", true),
            ("LOGO.SVGZ", true),
            // Of a copy of another site, with the type of the name before the query.
            ("/logo.svgz?v=2", true),
            ("/logo.svgz?/a.txt", false),
            ("/a.svg", false),
            ("/a.svg.gz", false),
            ("/svgz", false),
            ("", false),
        ] {
            assert_eq!(is_told_by_start(path.as_bytes()), expect, "{path}");
            assert_eq!(is_possible(path.as_bytes()), expect, "{path}");
            let coded = with_coding(None, path.as_bytes(), true);
            assert_eq!(coded.is_some(), expect, "{path}");
            assert_eq!(with_coding(None, path.as_bytes(), false), None, "{path}");
        }
        assert!(is_gzip(b"\x1f\x8b\x08"));
        assert!(!is_gzip(b"\x1f"));
        assert!(!is_gzip(b"<svg"));
        assert!(is_possible(b"/Build/game.wasm.gz"));
    }
}
