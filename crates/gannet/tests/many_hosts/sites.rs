//! A folder of hosts, and what a server tells of it.

use gannet_testkit::{Folder, Gannet};

pub(crate) fn name(number: usize) -> String {
    format!("h{number}.example")
}

/// A folder `sites` with a folder for each of so many hosts.
pub(crate) fn sites(count: usize) -> Folder {
    let folder = Folder::new();
    for number in 0..count {
        let page = format!("sites/{}/index.html", name(number));
        folder.write(page, format!("site {number}"));
    }
    folder
}

/// The next line on standard error that has this text.
pub(crate) fn told(server: &mut Gannet, text: &str) -> String {
    loop {
        let line = server.next_error_line().expect(text);
        if line.contains(text) {
            return line;
        }
    }
}
