//! Checks that the page about dependencies names each of them, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::Finding;

const PAGE: &str = "docs/decisions/0003-dependencies.md";

/// Adds a finding for each dependency that the page lacks, and for each that it names in vain.
pub(super) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<()> {
    let mut folders: Vec<_> = ["xtask", "lab", "fuzz"].map(|it| root.join(it)).into();
    for entry in fs::read_dir(root.join("crates"))? {
        folders.push(entry?.path());
    }
    let mut used = BTreeSet::new();
    for folder in folders {
        used.extend(dependencies(&fs::read_to_string(
            folder.join("Cargo.toml"),
        )?));
    }
    let page = fs::read_to_string(root.join(PAGE))?;
    let problems = problems(&page, &used).into_iter();
    findings.extend(problems.map(|(line, what)| Finding {
        file: PAGE.into(),
        line,
        what,
    }));
    Ok(())
}

/// The crates of others that a manifest names.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut is_list = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_list = line.ends_with("dependencies]");
        } else if is_list && line.starts_with(|c: char| c.is_ascii_lowercase()) {
            let name = line.split([' ', '.', '=']).next().unwrap_or_default();
            found.insert(name.to_owned());
        }
    }
    found.retain(|name| !name.starts_with("gannet") && name != "xtask");
    found
}

/// Lines of the page (0: all of it), and what is wrong there.
fn problems(page: &str, used: &BTreeSet<String>) -> Vec<(usize, String)> {
    let mut named = BTreeSet::new();
    let mut found = Vec::new();
    for (index, line) in page.lines().enumerate() {
        for name in line.split("**").skip(1).step_by(2).filter(|it| is_name(it)) {
            named.insert(name);
            if !used.contains(name) {
                found.push((index + 1, format!("no crate depends on '{name}'")));
            }
        }
    }
    let lacking = used.iter().filter(|name| !named.contains(name.as_str()));
    found.extend(lacking.map(|name| (0, format!("no paragraph about '{name}'"))));
    found
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    !text.is_empty() && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_read() {
        let manifest = "[package]\nname = \"a\"\n\n[dependencies]\ngannet-io.workspace = true\n# Why.\nb = \"1\"\n\
                        c-d = { version = \"2\", features = [\"e\"] }\n\n[dev-dependencies]\nf.workspace = true\n\n\
                        [lints]\nworkspace = true\n";
        let expect = ["b", "c-d", "f"].map(str::to_owned);
        assert_eq!(dependencies(manifest), expect.into());
    }

    #[test]
    fn each_dependency_has_a_paragraph_and_each_paragraph_one() {
        let used = BTreeSet::from(["b".to_owned(), "c-d".into()]);
        let check = |page, expect: &[(usize, &str)]| {
            let expect: Vec<_> = expect.iter().map(|it| (it.0, it.1.to_owned())).collect();
            assert_eq!(problems(page, &used), expect, "{page}");
        };
        check("**Decision.** So.\n- **b**, **c-d** (`x`). Why.\n", &[]);
        check("- **b**\n", &[(0, "no paragraph about 'c-d'")]);
        check(
            "- **c-d**, **b**\n- **e**\n",
            &[(2, "no crate depends on 'e'")],
        );
    }
}
