//! Answers to requests for which no site is asked.

use gannet_site::target::Target;

use super::{Answer, line};

/// A path that programs interpret differently is not looked up.
pub(super) fn refused(target: &Target, text: &mut String) -> Answer {
    line(text, format!("GET {}", target.path_and_query()));
    line(
        text,
        "  no server accepts this path: a '%' without two hexadecimal digits, an encoded slash or \
         zero byte, or '..' above the root",
    );
    line(text, "");
    line(text, "status 400");
    Answer {
        status: 400,
        ..Answer::default()
    }
}

/// A host without an entry, where there is none for all others.
pub(super) fn unnamed(target: &Target, host: &str, text: &mut String) -> Answer {
    line(text, format!("GET {}", target.path_and_query()));
    let why = match host {
        "" => "there is no entry for all hosts: name one, as in //HOST/PATH".into(),
        host => format!("no entry is named after '{host}', and there is none for all other hosts"),
    };
    line(text, format!("  {why}"));
    line(text, "");
    line(text, "status 421");
    Answer {
        status: 421,
        ..Answer::default()
    }
}
