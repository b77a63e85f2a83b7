//! Flags of `gannet serve` for passwords.

use clap::ValueHint;
use gannet_content::rules::protection::parse_path;

use crate::command_line::flag::{FILE, Flag, Group, Value};
use crate::command_line::settings::Settings;
use crate::command_line::values::{path, text};

/// The flags, in the order in which they are described.
pub(super) const FLAGS: &[Flag<Settings>] = &[
    Flag {
        name: "password-file",
        short: None,
        value: FILE,
        group: Group::Content,
        default: "",
        brief: "serve only the users of this file",
        details: "Lines USER:HASH, as 'gannet password' and 'htpasswd -B' print them: argon2id \
            or bcrypt. The file is read again when it changes, and on SIGHUP. For paths of a \
            site there is 'Basic-Auth' in its '_headers'.",
        is_common: false,
        apply: |settings, values| {
            settings.server.passwords.file = Some(path(values)?);
            Ok(())
        },
    },
    Flag {
        name: "password-path",
        short: None,
        value: Value::Many {
            name: "PATTERN",
            separator: ',',
            joint: None,
            hint: ValueHint::Other,
        },
        group: Group::Content,
        default: "",
        brief: "protect only these paths, such as '/staging/*'; repeatable",
        details: "Patterns as in '_headers', for all sites of the server. All paths of a page are one: \
            /plan, /plan/ and /plan.html.",
        is_common: false,
        apply: |settings, values| {
            let parse = |value| parse_path(text(std::slice::from_ref(value))?);
            settings.server.passwords.paths = values.iter().map(parse).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
];
