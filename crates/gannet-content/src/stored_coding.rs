//! Files that are stored in a content coding and requested under that very name.
//!
//! Unity's web builds contain such files: a page requests `Build/game.wasm.br` and expects the
//! browser to decode it, so the response needs `content-encoding: br` and the type of `game.wasm`.
//! Only these names are recognised by default. Others of the kind (`sitemap.xml.gz`,
//! `data.json.gz`) are as often meant to be saved as they are; a rule of the site can name those to
//! be decoded.

use gannet_http::semantics::coding::Coding;

use crate::rules::headers::{CODING, FieldChanges};

/// The folder that Unity writes its build to.
const FOLDER: &[u8] = b"Build";

/// The ends of a build's file names, before their coding.
const ENDS: [&[u8]; 4] = [b".data", b".framework.js", b".symbols.json", b".wasm"];

/// The codings that Unity compresses builds with, by suffix.
const CODINGS: [(&[u8], Coding); 2] = [(b".br", Coding::Brotli), (b".gz", Coding::Gzip)];

/// The coding that the file at a path is stored in, and the path of its decoded content; `None` if
/// it is not stored in a coding. The path may begin with a slash or not.
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

/// The changes to the fields of a path's own content, in addition to those of the site's rules. A
/// rule that names a coding takes precedence.
#[must_use]
pub fn with_coding(changes: Option<FieldChanges>, path: &[u8]) -> Option<FieldChanges> {
    let Some((coding, _)) = of(path) else {
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
    use crate::mime;

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
        assert_eq!(with_coding(None, path), Some(rule(CODING, "br")));
        let zstd = Some(rule(CODING, "zstd"));
        assert_eq!(with_coding(zstd.clone(), path), zstd);
        let both = with_coding(Some(rule("x-y", "z")), path).expect("changes");
        assert_eq!(both.set.len(), 2);
        assert_eq!(with_coding(None, b"/game.wasm"), None);
    }
}
