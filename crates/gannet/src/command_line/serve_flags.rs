//! The table of `gannet serve`: every flag with its texts and what it sets.

mod acme;
mod clients;
mod connections;
mod content;
pub mod needs;
mod operation;
mod passwords;

use crate::command_line::flag::{Flag, joined};
use crate::command_line::settings::Settings;

/// Every flag of `gannet serve`.
pub static SERVE_FLAGS: &[Flag<Settings>] = &joined::<_, COUNT>(&PARTS);

const PARTS: [&[Flag<Settings>]; 6] = [
    content::FLAGS,
    passwords::FLAGS,
    connections::FLAGS,
    acme::FLAGS,
    clients::FLAGS,
    operation::FLAGS,
];
const COUNT: usize = PARTS[0].len()
    + PARTS[1].len()
    + PARTS[2].len()
    + PARTS[3].len()
    + PARTS[4].len()
    + PARTS[5].len();

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use gannet_content::rules::Compat;

    use super::*;
    use crate::command_line::flag::check_choices;

    #[test]
    fn the_default_that_is_described_is_the_default_that_holds() {
        for flag in SERVE_FLAGS.iter().filter(|flag| !flag.default.is_empty()) {
            let mut settings = Settings::default();
            (flag.apply)(&mut settings, &[OsString::from(flag.default)]).expect(flag.name);
            if flag.name == "port" {
                assert_eq!(settings.port, Some(crate::commands::serve::addresses::PORT));
                continue;
            }
            // Left unset, the dialect is chosen later, so that unset differs from every value.
            if flag.name == "compat" {
                assert_eq!(settings.site.compat, Some(Compat::default()));
                continue;
            }
            assert_eq!(settings, Settings::default(), "--{}", flag.name);
        }
    }

    #[test]
    fn every_choice_is_taken_and_a_near_one_is_named() {
        check_choices(SERVE_FLAGS);
    }
}
