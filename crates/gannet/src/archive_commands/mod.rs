//! Commands on archives: `ls`, `cat`, `extract`, `inspect`, `verify`, `diff`.
//!
//! Each takes its parsed options and writes to what it is given; flags and terminals are the
//! command line's business.

mod cat;
mod diff;
mod error;
mod extract;
mod file;
mod inspect;
mod ls;
mod verify;

pub use cat::{CatOptions, cat};
pub use diff::{DiffOptions, diff};
pub use error::CommandError;
pub use extract::{ExtractOptions, ExtractReport, extract};
pub use file::ArchiveFile;
pub use inspect::{InspectOptions, inspect};
pub use ls::{LsOptions, ls};
pub use verify::{VerifyReport, verify};

use crate::json::string as json_string;
use crate::target::url;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
