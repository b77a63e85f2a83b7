//! Operations on archives: open, read contents, compare, verify, extract.

mod cat;
mod diff;
mod error;
mod extract;
mod file;
mod rule_list;
mod rules_diff;
mod unpacked_rules;
mod urls;
mod verify;

pub use cat::{CatOptions, cat};
pub use diff::{Change, Differences, diff};
pub use error::{OPEN_ARCHIVE, SiteError};
#[cfg(feature = "import")]
pub(crate) use extract::UnfinishedFile;
pub use extract::{ExtractOptions, ExtractReport, extract, prepare};
pub use file::ArchiveFile;
pub use rule_list::{ListedRule, RuleCounts, RuleEffect, rule_counts, rules_of};
pub use rules_diff::{OptionChange, RuleChange, RuleDifference};
pub use urls::changed_urls;
pub use verify::{VerifyReport, verify, verify_open, verify_signature};

use gannet_archive::{Archive, Entry, Namespace};

use crate::target::url;

/// The name of an entry in lists: its URL path, or `//host/path` on a virtual host; a page for a
/// whole folder is `/folder/*` with its purpose.
#[must_use]
pub fn entry_name(archive: &Archive<Vec<u8>>, entry: &Entry<'_>) -> String {
    let key = entry.key();
    let purpose = match key.namespace {
        Namespace::Content => "",
        Namespace::NotFoundPage => "* (not found)",
        Namespace::ApplicationPage => "* (application)",
        Namespace::Wildcard => "* (wildcard)",
        Namespace::Unruled => " (behind rules)",
    };
    format!("{}{purpose}", entry_url(archive, entry))
}

/// The URL path of an entry, `//host/path` on a virtual host.
#[must_use]
pub fn entry_url(archive: &Archive<Vec<u8>>, entry: &Entry<'_>) -> String {
    match host_name(archive, entry.key().host) {
        "" => url(entry.path()),
        host => format!("//{host}{}", url(entry.path())),
    }
}

/// The name of a virtual host; empty for number 0.
#[must_use]
pub fn host_name(archive: &Archive<Vec<u8>>, host: u16) -> &str {
    str::from_utf8(archive.host_name(host).unwrap_or_default()).unwrap_or_default()
}

/// The number of the virtual host with this name; 0 if there is none.
#[must_use]
pub fn host_number(archive: &Archive<Vec<u8>>, name: &[u8]) -> u16 {
    archive.host_number(name).unwrap_or(0)
}

/// Bytes in hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
