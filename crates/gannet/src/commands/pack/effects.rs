//! Rejects flags of `gannet pack` that can have no effect.

use gannet_content::rules::Compat;
use gannet_site::pack::Effort;

use crate::command_line::commands::PACK_SECTION;
use crate::command_line::idle::{self, Idle};
use crate::command_line::layers::Origins;
use crate::command_line::pack_flags::{PACK_FLAGS, PackSettings};
use crate::command_line::settings::ColourChoice;
use crate::messages::Failure;

/// The compression effort. Flags that contradict each other or have no effect are rejected.
///
/// # Errors
/// Names the flag and the reason.
pub(super) fn effort(settings: &PackSettings, origins: &Origins) -> Result<Effort, Failure> {
    idle::refuse(PACK_FLAGS, PACK_SECTION, origins, pairs(settings))?;
    let fast = ("fast", settings.fast);
    Ok(
        match idle::one_of(fast, ("best", settings.best), origins)? {
            (true, _) => Effort::Fast,
            (_, true) => Effort::Best,
            _ => Effort::default(),
        },
    )
}

/// Flags that other flags make ineffective.
fn pairs(settings: &PackSettings) -> Vec<(bool, Idle)> {
    let compress = &settings.compress;
    let has_levels = compress.iter().all(|(_, level)| level.is_some());
    let levels = match compress.is_empty() {
        true => "with --compress none",
        false => "with --compress, which names every level",
    };
    let of_levels = |flag| Idle::because(flag, "compress", levels);
    // Without rules, only kawipiko's dialect still has an effect: its index names and suffixes.
    let is_unread = settings.site.no_rules && settings.site.compat == Some(Compat::Cloudflare);
    let has_colour = settings.colour != ColourChoice::Auto;
    vec![
        // `--fast` may be combined with `--compress none`: nothing is faster.
        (
            settings.fast && has_levels && !compress.is_empty(),
            of_levels("fast"),
        ),
        (settings.best && has_levels, of_levels("best")),
        (
            !settings.compress_types.is_empty() && compress.is_empty(),
            of_levels("compress-type"),
        ),
        (is_unread, Idle::with("compat", "no-rules")),
        (
            settings.verify_sources && settings.fresh,
            Idle::because(
                "verify-sources",
                "fresh",
                "with --fresh, which reads every file",
            ),
        ),
        (
            settings.list_skipped && settings.quiet,
            Idle::with("list-skipped", "quiet"),
        ),
        (has_colour && settings.quiet, Idle::with("color", "quiet")),
    ]
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::command_line::layers::Origin;

    fn ask(flags: &[(&'static str, &str)]) -> Result<Effort, String> {
        let mut settings = PackSettings::default();
        let mut origins = Origins::new();
        for (name, value) in flags {
            let flag = PACK_FLAGS.iter().find(|flag| flag.name == *name);
            let apply = flag.expect("there is such a flag").apply;
            apply(&mut settings, &[OsString::from(*value)]).expect(name);
            origins.insert(name, Origin::CommandLine);
        }
        effort(&settings, &origins).map_err(|failure| failure.message)
    }

    #[test]
    fn flags_that_do_nothing_are_refused() {
        let check = |flags: &[(&'static str, &str)], expect: &str| {
            assert_eq!(ask(flags).err().unwrap_or_default(), expect);
        };
        let on = "true";
        assert_eq!(ask(&[("fast", on)]), Ok(Effort::Fast));
        assert_eq!(ask(&[("best", on), ("fast", "false")]), Ok(Effort::Best));
        check(
            &[("fast", on), ("best", on)],
            "--fast and --best contradict each other",
        );
        check(
            &[("fast", on), ("compress", "gzip=5,br=4")],
            "--fast has no effect with --compress, which names every level",
        );
        check(&[("fast", on), ("compress", "gzip=5,br")], "");
        check(&[("fast", on), ("compress", "none")], "");
        check(
            &[("best", on), ("compress", "none")],
            "--best has no effect with --compress none",
        );
        check(
            &[("compress-type", "a/b=yes"), ("compress", "none")],
            "--compress-type has no effect with --compress none",
        );
        check(
            &[("verify-sources", on), ("fresh", on)],
            "--verify-sources has no effect with --fresh, which reads every file",
        );
        check(
            &[("list-skipped", on), ("quiet", on)],
            "--list-skipped has no effect with --quiet",
        );
        check(
            &[("color", "always"), ("quiet", on)],
            "--color has no effect with --quiet",
        );
        check(
            &[("compat", "cloudflare"), ("no-rules", on)],
            "--compat has no effect with --no-rules",
        );
    }
}
