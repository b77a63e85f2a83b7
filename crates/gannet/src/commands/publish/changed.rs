//! The list of URLs that a cache in front has to forget, for `--changed`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gannet_server::notices::ERRORS;
use gannet_site::archive;

use crate::messages::{Failure, printable};

/// What stands for every URL, of every host.
const ALL: &str = "/*";

/// Writes the URLs that the draft answers otherwise than the releases that servers may have answered
/// from. Where one of those cannot be read, or there is none, that may be every URL.
pub(super) fn write(
    file: &Path,
    served: &[Result<PathBuf, String>],
    draft: &Path,
) -> Result<(), Failure> {
    let mut urls = BTreeSet::new();
    if served.is_empty() {
        urls.insert(ALL.to_owned());
    }
    for release in served {
        let compared = release.clone().and_then(|release| {
            let mut keep = |url: &str| {
                urls.insert(url.to_owned());
                Ok(())
            };
            archive::changed_urls(&release, draft, &mut keep).map_err(|error| error.to_string())
        });
        if let Err(error) = compared {
            ERRORS.log(format_args!(
                "gannet: any URL may have changed, which '--changed' lists as '{ALL}': {}",
                printable(&error)
            ));
            urls.insert(ALL.to_owned());
        }
    }
    let text: String = urls.iter().map(|url| format!("{url}\n")).collect();
    std::fs::write(file, text).map_err(|error| Failure::of_system("write", file.display(), &error))
}
