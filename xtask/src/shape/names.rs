//! Types whose name another type of the same crate has, too.

use std::collections::BTreeMap;

use super::Source;

/// The names that are defined more than once, with their files, by crate.
pub(super) fn doubled(sources: &[Source]) -> BTreeMap<String, Vec<String>> {
    let mut files: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for source in sources {
        for name in source.lines.iter().filter_map(|line| name(line)) {
            let places = files.entry((source.owner(), name)).or_default();
            places.push(source.in_crate().display().to_string());
        }
    }
    let mut doubled: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((owner, name), places) in files.into_iter().filter(|(_, places)| places.len() > 1) {
        let shown = format!("{name}: {}", places.join(", "));
        doubled.entry(owner).or_default().push(shown);
    }
    doubled
}

/// The name of the type that a line at the outermost level defines.
fn name(line: &str) -> Option<String> {
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
    let name = rest
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_');
    Some(name.collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn names_are_compared_within_a_crate() {
        let text =
            "pub(crate) struct Work<T>(T);\nimpl Iterator for Work {\n    type Item = u8;\n}\n";
        let file = |path: &str, text: &str| Source::new(Path::new(path), text);
        let sources = [
            file("crates/a/src/one.rs", text),
            file("crates/a/src/two.rs", "enum Work {}\ntype Other = u8;\n"),
            file("crates/b/src/one.rs", text),
        ];
        let doubled = doubled(&sources);
        assert_eq!(doubled.len(), 1);
        assert_eq!(doubled["a"], ["Work: one.rs, two.rs"]);
    }
}
