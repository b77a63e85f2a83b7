//! Checks that links in Markdown files lead to files in the repository.

use std::path::{Component, Path, PathBuf};

use super::Finding;

/// Adds a finding for each link of `file` to a missing file or heading.
pub(super) fn check(root: &Path, file: &Path, text: &str, findings: &mut Vec<Finding>) {
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for link in links(line) {
            if let Some(what) = problem(root, file, text, &link) {
                findings.push(Finding {
                    file: file.to_owned(),
                    line: index + 1,
                    what,
                });
            }
        }
    }
}

/// The targets of `[text](target)` and `[text]: target` in a line, except in code spans.
fn links(line: &str) -> Vec<String> {
    let without_code: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let mut found: Vec<String> = without_code
        .match_indices("](")
        .filter_map(|(at, _)| {
            let rest = &without_code[at + 2..];
            let target = &rest[..rest.find(')')?];
            Some(target.split_whitespace().next().unwrap_or("").to_owned())
        })
        .collect();
    let definition = line
        .trim_start()
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "));
    if let Some((_, target)) = definition {
        found.push(target.split_whitespace().next().unwrap_or("").to_owned());
    }
    found
}

fn problem(root: &Path, file: &Path, text: &str, link: &str) -> Option<String> {
    let elsewhere = ["http://", "https://", "mailto:"];
    if elsewhere.iter().any(|scheme| link.starts_with(scheme)) {
        return None;
    }
    let (path, heading) = link
        .split_once('#')
        .map_or((link, None), |(p, h)| (p, Some(h)));
    if path.is_empty() {
        let heading = heading.unwrap_or("");
        return (!has_heading(text, heading)).then(|| format!("no heading for '#{heading}'"));
    }
    let target = resolve(file.parent().unwrap_or(Path::new("")), path);
    let Some(target) = target else {
        return Some(format!("'{link}' leads out of the repository"));
    };
    let target = root.join(target);
    if !target.exists() {
        return Some(format!("'{link}' leads nowhere"));
    }
    let heading = heading.filter(|_| target.extension().is_some_and(|e| e == "md"))?;
    let there = std::fs::read_to_string(&target).unwrap_or_default();
    (!has_heading(&there, heading)).then(|| format!("no heading for '{link}'"))
}

/// `path` relative to `directory`, or `None` if it leaves the root.
fn resolve(directory: &Path, path: &str) -> Option<PathBuf> {
    let mut resolved = PathBuf::new();
    for component in directory.join(path).components() {
        match component {
            Component::Normal(name) => resolved.push(name),
            Component::ParentDir if resolved.pop() => {}
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(resolved)
}

/// Whether `text` has a heading with this anchor, as forges generate them.
fn has_heading(text: &str, anchor: &str) -> bool {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| line.trim_start_matches('#').trim())
        .any(|heading| {
            let kept = heading
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            let slug: String = kept.collect::<String>().to_lowercase().replace(' ', "-");
            slug == anchor
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(text: &str, expect: &[usize]) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut findings = Vec::new();
        check(root, Path::new("src/page.md"), text, &mut findings);
        let lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, expect, "{findings:?}");
    }

    #[test]
    fn local_links_must_lead_somewhere() {
        check_text("[a](main.rs) [b](../Cargo.toml)\n[c](nowhere.rs)\n", &[2]);
        check_text("[a](../../Cargo.toml)\n[b](https://example.org/x)\n", &[1]);
        check_text("[a]: nowhere.md\n", &[1]);
        check_text("`[a](nowhere)`\n```\n[a](nowhere)\n```\n", &[]);
    }

    #[test]
    fn headings_are_checked() {
        check_text("# One: two_three\n[a](#one-two_three)\n[b](#other)\n", &[3]);
    }
}
