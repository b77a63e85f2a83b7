//! The cases, as `cases.sh` has them.

use anyhow::{Context, Result, bail};

/// See the file itself.
const CASES: &str = include_str!("cases.sh");

/// How to get a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Origin {
    /// Packages of Debian, the first of which has the client.
    Debian(&'static str),
    /// A package of Python.
    Pip(&'static str),
    /// A package of npm, whose files the site has.
    Npm(&'static str),
}

/// A case.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Case {
    /// The program.
    pub(super) client: &'static str,
    /// All that it needs.
    pub(super) origins: Vec<Origin>,
    pub(super) name: &'static str,
    /// Part of the short run.
    pub(super) is_quick: bool,
    pub(super) script: &'static str,
}

/// All cases.
pub(super) fn all() -> Result<Vec<Case>> {
    parse(CASES)
}

fn parse(text: &'static str) -> Result<Vec<Case>> {
    let cases = text.split("\n#: ").skip(1);
    cases
        .map(|case| {
            let (head, script) = case.split_once('\n').context("a case without a script")?;
            read(head, script).with_context(|| format!("'{head}'"))
        })
        .collect()
}

/// Reads the head of a case.
fn read(head: &'static str, script: &'static str) -> Result<Case> {
    let (how, name) = head.split_once(": ").context("no name")?;
    let mut how = how.split(", ");
    let client = how.next().context("no client")?;
    let mut origins = Vec::new();
    let mut is_quick = false;
    for word in how {
        match word.split_once(' ') {
            Some(("debian", packages)) => origins.push(Origin::Debian(packages)),
            Some(("pip", package)) => origins.push(Origin::Pip(package)),
            Some(("npm", package)) => origins.push(Origin::Npm(package)),
            _ if word == "quick" => is_quick = true,
            _ => bail!("'{word}' is not 'quick', nor 'debian', 'pip' or 'npm' and a package"),
        }
    }
    if origins.is_empty() {
        bail!("no package");
    }
    Ok(Case {
        client,
        origins,
        name,
        is_quick,
        script,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_say_what_a_case_needs() {
        let cases =
            parse("# Text.\n\n#: a, debian b, quick: c: d\ne\nf\n\n#: g, pip h, npm k: i\nj\n");
        let cases = cases.expect("sound");
        let first = Case {
            client: "a",
            origins: vec![Origin::Debian("b")],
            name: "c: d",
            is_quick: true,
            script: "e\nf\n",
        };
        assert_eq!(cases[0], first);
        assert_eq!(cases[1].origins, [Origin::Pip("h"), Origin::Npm("k")]);
        assert!(!cases[1].is_quick);
        for bad in [
            "\n#: a: b\n",
            "\n#: a, gem b: c\n",
            "\n#: a, quick: c\n",
            "\n#: a, pip b, slow: c\n",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_case_is_read() {
        let cases = all().expect("sound");
        let heads = CASES.lines().filter(|line| line.starts_with("#: "));
        assert_eq!(cases.len(), heads.count());
        assert!(cases.iter().any(|case| case.is_quick));
    }
}
