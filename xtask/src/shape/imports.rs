//! Which file of a crate uses which, from `use` declarations and paths.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;
use crate::tidy::Finding;

/// Rooms by name, from one to another, with the imports between them.
type Up = BTreeMap<(String, String), Vec<String>>;

/// All imports of a crate from itself.
pub(super) struct Imports {
    /// From a module to an item, whose module is the third.
    edges: Vec<[String; 3]>,
    modules: BTreeSet<String>,
}

impl Imports {
    pub(super) fn of(sources: &[&Source]) -> Self {
        let has_code = |source: &&&Source| source.code_lines() > 0;
        let sources: Vec<_> = sources.iter().filter(has_code).collect();
        let modules: BTreeSet<String> = sources.iter().map(|it| module(it)).collect();
        let mut edges = Vec::new();
        for source in sources {
            let from = module(source);
            let items: BTreeSet<String> = paths(&source.lines.join("\n"))
                .iter()
                .filter_map(|path| absolute(&from, path))
                .collect();
            for item in items {
                let to = owner(&modules, &item);
                edges.push([from.clone(), item, to]);
            }
        }
        Self { edges, modules }
    }

    /// The imports from a room to one above it; and the rooms that have no place in the order.
    pub(super) fn up(&self, order: &[String]) -> (Up, Vec<Finding>) {
        let place = |room: &str| order.iter().position(|it| it == room);
        let mut up = Up::new();
        for [from, item, to] in &self.edges {
            let (from_room, to_room) = (room(from), room(to));
            if let (Some(low), Some(high)) = (place(from_room), place(to_room))
                && low < high
            {
                let key = (from_room.to_owned(), to_room.to_owned());
                up.entry(key).or_default().push(format!("{from} -> {item}"));
            }
        }
        let rooms: BTreeSet<&str> = self.modules.iter().map(|it| room(it)).collect();
        let unplaced = rooms
            .into_iter()
            .filter(|it| !it.is_empty() && place(it).is_none());
        let findings = unplaced.map(|room| Finding {
            file: super::FIGURES.into(),
            line: 0,
            what: format!("the room '{room}' of the server has no place in the order"),
        });
        (up, findings.collect())
    }

    /// The modules of the largest circle: each of them reaches each other one.
    pub(super) fn circle(&self) -> Vec<String> {
        let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for [from, _, to] in self
            .edges
            .iter()
            .filter(|[from, _, to]| from != to && !to.is_empty())
        {
            uses.entry(from).or_default().insert(to);
        }
        let reached = |start: &str| {
            let mut seen = BTreeSet::new();
            let mut next: Vec<&str> = uses.get(start).into_iter().flatten().copied().collect();
            while let Some(module) = next.pop() {
                if seen.insert(module) {
                    next.extend(uses.get(module).into_iter().flatten());
                }
            }
            seen
        };
        let all: BTreeMap<&str, BTreeSet<&str>> = self
            .modules
            .iter()
            .map(|it| (it.as_str(), reached(it)))
            .collect();
        let circle = |of: &str| -> Vec<String> {
            let mates = all[of]
                .iter()
                .filter(|mate| all.get(*mate).is_some_and(|it| it.contains(of)));
            mates.map(|it| (*it).to_owned()).collect()
        };
        let circles = all.keys().map(|it| circle(it));
        circles.max_by_key(Vec::len).unwrap_or_default()
    }
}

/// The path of a file's module in its crate; empty for the root.
fn module(source: &Source) -> String {
    let path = source.in_crate().with_extension("");
    let mut parts: Vec<_> = path.iter().map(|it| it.to_string_lossy()).collect();
    if parts
        .last()
        .is_some_and(|it| matches!(&**it, "mod" | "lib" | "main"))
    {
        parts.pop();
    }
    parts.join("::")
}

fn room(module: &str) -> &str {
    module.split("::").next().unwrap_or_default()
}

/// The module of an item: the longest prefix that is one.
fn owner(modules: &BTreeSet<String>, item: &str) -> String {
    let ends = item
        .match_indices("::")
        .map(|(at, _)| at)
        .chain([item.len()]);
    let prefixes = ends
        .map(|end| &item[..end])
        .filter(|it| modules.contains(*it));
    prefixes
        .max_by_key(|it| it.len())
        .unwrap_or_default()
        .to_owned()
}

/// A path of the crate from its root; `None` if it leads to another crate.
fn absolute(from: &str, path: &str) -> Option<String> {
    let mut base: Vec<&str> = from.split("::").filter(|it| !it.is_empty()).collect();
    let mut parts = path.split("::").peekable();
    match parts.next()? {
        "crate" => base.clear(),
        "self" => {}
        "super" => {
            base.pop();
            while parts.next_if_eq(&"super").is_some() {
                base.pop();
            }
        }
        _ => return None,
    }
    base.extend(parts.filter(|it| *it != "self"));
    Some(base.join("::"))
}

/// All paths in `use` declarations, and those that begin at the crate's root or the parent elsewhere.
fn paths(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rest = code;
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let len = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
        let word = &rest[..len];
        if word == "use" && rest[len..].starts_with(char::is_whitespace) {
            let end = rest.find(';').unwrap_or(rest.len());
            expand("", &rest[len..end], &mut found);
            rest = &rest[end..];
        } else if matches!(word, "crate" | "super")
            && rest[len..].starts_with("::")
            && before != ':'
        {
            let end = rest
                .find(|c: char| !is_part(c) && c != ':')
                .unwrap_or(rest.len());
            found.insert(rest[..end].trim_end_matches(':').to_owned());
            rest = &rest[end..];
        } else {
            rest = &rest[len.max(c.len_utf8())..];
        }
        before = c;
    }
    found
}

/// Adds the paths of a `use` tree.
fn expand(prefix: &str, tree: &str, found: &mut BTreeSet<String>) {
    let tree = tree.trim();
    if let Some((head, list)) = tree.split_once('{') {
        let list = list.trim_end().trim_end_matches('}');
        let prefix = format!("{prefix}{}", head.trim());
        let (mut depth, mut start) = (0, 0);
        for (at, c) in list.char_indices().chain([(list.len(), ',')]) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    expand(&prefix, &list[start..at], found);
                    start = (at + 1).min(list.len());
                }
                _ => {}
            }
        }
    } else if !tree.is_empty() {
        let path = tree.split_whitespace().next().unwrap_or_default();
        found.insert(format!("{prefix}{path}"));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn imports(files: &[(&str, &str)]) -> Imports {
        let source = |(path, text): &(&str, &str)| {
            Source::new(&Path::new("crates/gannet-server/src").join(path), text)
        };
        let sources: Vec<Source> = files.iter().map(source).collect();
        Imports::of(&sources.iter().collect::<Vec<_>>())
    }

    #[test]
    fn use_trees_and_paths_are_found() {
        let text =
            "use crate::a::{b, c::{D, E as F}, self};\nfn f() { super::g::h(); crate::i::J }";
        let found: Vec<String> = paths(text).into_iter().collect();
        let expect = [
            "crate::a::b",
            "crate::a::c::D",
            "crate::a::c::E",
            "crate::a::self",
        ];
        assert_eq!(
            found,
            [&expect[..], &["crate::i::J", "super::g::h"]].concat()
        );
    }

    #[test]
    fn imports_up_and_circles_are_counted() {
        let files = [
            ("lib.rs", "mod low; mod high;"),
            (
                "low/mod.rs",
                "use crate::high::Tower; // use crate::high::Other;",
            ),
            (
                "low/cellar.rs",
                "use super::Key;\n#[cfg(test)]\nmod tests { use crate::high::Tower; }",
            ),
            ("high/mod.rs", "use crate::low::Key; use std::fmt;"),
            ("attic.rs", "struct Attic;"),
        ];
        let imports = imports(&files);
        let (up, findings) = imports.up(&["low".into(), "high".into()]);
        let all: Vec<String> = up.into_values().flatten().collect();
        assert_eq!(all, ["low -> high::Tower"]);
        assert_eq!(findings.len(), 1, "the attic has no place: {findings:?}");
        assert_eq!(imports.circle(), ["high", "low"]);
    }
}
