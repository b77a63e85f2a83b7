//! The cases, as `cases.sh` has them.

use anyhow::{Context, Result, bail};

/// See the file itself.
const CASES: &str = include_str!("cases.sh");

/// How to get a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Origin {
    /// A package of Debian.
    Debian(&'static str),
    /// A package of Python.
    Pip(&'static str),
}

/// A case.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Case {
    /// The program.
    pub(super) client: &'static str,
    pub(super) origin: Origin,
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
    let origin = how.next().and_then(|origin| origin.split_once(' '));
    let origin = match origin {
        Some(("debian", package)) => Origin::Debian(package),
        Some(("pip", package)) => Origin::Pip(package),
        _ => bail!("not 'debian' or 'pip' and a package"),
    };
    let is_quick = match how.next() {
        None => false,
        Some("quick") => true,
        Some(other) => bail!("'{other}' is not 'quick'"),
    };
    Ok(Case {
        client,
        origin,
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
        let cases = parse("# Text.\n\n#: a, debian b, quick: c: d\ne\nf\n\n#: g, pip h: i\nj\n");
        let cases = cases.expect("sound");
        let first = Case {
            client: "a",
            origin: Origin::Debian("b"),
            name: "c: d",
            is_quick: true,
            script: "e\nf\n",
        };
        assert_eq!(cases[0], first);
        assert_eq!(cases[1].origin, Origin::Pip("h"));
        assert!(!cases[1].is_quick);
        for bad in [
            "\n#: a: b\n",
            "\n#: a, npm b: c\n",
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
