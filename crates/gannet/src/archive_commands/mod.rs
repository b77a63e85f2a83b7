//! Commands on archives: `ls`, `cat`, `extract`, `inspect`, `verify`.
//!
//! Each takes its parsed options and writes to what it is given; flags and terminals are the
//! command line's business.

mod cat;
mod error;
mod extract;
mod file;
mod inspect;
mod ls;
mod verify;

pub use cat::{CatOptions, cat};
pub use error::CommandError;
pub use extract::{ExtractOptions, ExtractReport, extract};
pub use file::ArchiveFile;
pub use inspect::{InspectOptions, inspect};
pub use ls::{LsOptions, ls};
pub use verify::{VerifyReport, verify};

use gannet_http::semantics::target_path::encode_path;

/// A path as a URL has it: visible ASCII, whatever the file was called.
fn url(path: &[u8]) -> String {
    let mut encoded = Vec::with_capacity(path.len());
    encode_path(path, &mut encoded);
    String::from_utf8_lossy(&encoded).into_owned()
}

/// A JSON string.
fn json_string(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            // RFC 8259 section 7; the others are escaped so that no terminal is steered.
            _ if letter.is_control() => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
