//! Rejects flags that another flag makes ineffective.
//!
//! A user who gives a flag expects an effect, so an ineffective one is rejected with the reason. A
//! flag of a lower layer is ignored silently: overriding it is what layers are for.

use crate::command_line::flag::Flag;
use crate::command_line::layers::Origins;
use crate::messages::Failure;

/// An ineffective flag and its reason.
#[derive(Clone, Debug)]
pub struct Idle {
    /// The flag without effect.
    pub flag: &'static str,
    /// The flag that causes this; empty if a missing flag does.
    pub by: &'static str,
    /// Continues the sentence `--flag has no effect`.
    pub why: String,
}

impl Idle {
    /// The other flag is reason enough.
    #[must_use]
    pub fn with(flag: &'static str, by: &'static str) -> Self {
        let why = format!("with --{by}");
        Self { flag, by, why }
    }

    /// States the reason in words.
    #[must_use]
    pub fn because(flag: &'static str, by: &'static str, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { flag, by, why }
    }
}

/// Rejects the first of these flags that was given in the same layer as its reason, or a higher
/// one.
///
/// # Errors
/// Names the flag and the reason.
pub fn refuse<S>(
    flags: &'static [Flag<S>],
    section: &'static str,
    origins: &Origins,
    found: impl IntoIterator<Item = (bool, Idle)>,
) -> Result<(), Failure> {
    for (_, idle) in found.into_iter().filter(|(is_idle, _)| *is_idle) {
        let Some(origin) = origins.get(idle.flag) else {
            continue;
        };
        if origins.get(idle.by).is_some_and(|by| by > origin) {
            continue;
        }
        let Some(flag) = flags.iter().find(|flag| flag.name == idle.flag) else {
            continue;
        };
        let shown = origin.shown(&flag.describe(section));
        return Err(
            Failure::usage(format!("{shown} has no effect {}", idle.why)).help(match idle.by {
                "" => "leave it out",
                _ => "leave one of them out",
            }),
        );
    }
    Ok(())
}

/// Decides between two switches that exclude each other: that of the higher layer counts.
///
/// # Errors
/// Both are given in the same layer.
pub fn one_of(
    (first, is_first): (&'static str, bool),
    (second, is_second): (&'static str, bool),
    origins: &Origins,
) -> Result<(bool, bool), Failure> {
    if !(is_first && is_second) {
        return Ok((is_first, is_second));
    }
    match origins.get(first).cmp(&origins.get(second)) {
        std::cmp::Ordering::Greater => Ok((true, false)),
        std::cmp::Ordering::Less => Ok((false, true)),
        std::cmp::Ordering::Equal => Err(Failure::usage(format!(
            "--{first} and --{second} contradict each other"
        ))
        .help("leave one of them out")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::layers::Origin;
    use crate::command_line::pack_flags::PACK_FLAGS;

    #[test]
    fn a_lower_layer_gives_way_and_the_same_one_is_a_mistake() {
        use Origin::{CommandLine, Environment};
        let both = |first, second| {
            let origins = Origins::from([("fast", first), ("best", second)]);
            one_of(("fast", true), ("best", true), &origins).ok()
        };
        assert_eq!(both(CommandLine, CommandLine), None);
        assert_eq!(both(CommandLine, Environment), Some((true, false)));
        assert_eq!(both(Environment, CommandLine), Some((false, true)));
        let refused = |flag, by| {
            let origins = Origins::from([("list-skipped", flag), ("quiet", by)]);
            let idle = (true, Idle::with("list-skipped", "quiet"));
            refuse(PACK_FLAGS, "pack", &origins, [idle])
                .err()
                .map(|failure| failure.message)
        };
        assert_eq!(refused(Environment, CommandLine), None);
        let message = |shown| Some(format!("{shown} has no effect with --quiet"));
        assert_eq!(refused(CommandLine, CommandLine), message("--list-skipped"));
        assert_eq!(
            refused(Environment, Environment),
            message("GANNET_PACK_LIST_SKIPPED")
        );
    }
}
