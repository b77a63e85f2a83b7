//! Determines what the scripts of a site need from a content security policy.

use std::collections::HashSet;

use gannet_content::policy::csp::ScriptNeeds;

use super::PackError;
use super::limits::STREAMED_FROM;
use super::sources::Sources;
use super::store::read_whole;

/// Reads the scripts. Returns their needs, and warnings.
pub(super) fn find(sources: &Sources) -> Result<(ScriptNeeds, Vec<String>), PackError> {
    let mut needs = ScriptNeeds::default();
    let mut evaluating = Vec::new();
    let mut seen = HashSet::new();
    for source in &sources.files {
        needs.has_wasm |= &*source.content_type == "application/wasm";
        let is_script = source.content_type.starts_with("text/javascript");
        // Longer files are not scripts for browsers.
        if !is_script || source.file.len >= STREAMED_FROM || !seen.insert(source.content) {
            continue;
        }
        let content = &sources.contents[source.content];
        let text = read_whole(&sources.files[content.first].file, content)?;
        let of_script = ScriptNeeds::of_script(&text);
        if of_script.has_eval {
            evaluating.push(sources.shown(source));
        }
        needs = needs.or(of_script);
    }
    let mut warnings = Vec::new();
    if let Some(first) = evaluating.first() {
        warnings.push(format!(
            "scripts that seem to evaluate text ('eval', 'new Function'), which a content security \
             policy blocks: {}, such as '{first}'",
            evaluating.len()
        ));
    }
    Ok((needs, warnings))
}
