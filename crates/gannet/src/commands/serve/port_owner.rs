//! Finds the process that listens on a port, for the message that a port is busy.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::messages::printable;

/// Name and process ID of the listener on a TCP port. `None` if there is none, or if it is not
/// visible (another user's process).
#[must_use]
pub(crate) fn port_owner(port: u16) -> Option<(String, u32)> {
    let inodes = inodes(port);
    if inodes.is_empty() {
        return None;
    }
    let wanted: Vec<String> = inodes
        .iter()
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    fs::read_dir("/proc")
        .ok()?
        .filter_map(Result::ok)
        .find_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let mut descriptors = fs::read_dir(entry.path().join("fd"))
                .ok()?
                .filter_map(Result::ok);
            let owns = descriptors.any(|descriptor| {
                fs::read_link(descriptor.path()).is_ok_and(|target| {
                    wanted
                        .iter()
                        .any(|w| target.as_os_str().as_bytes() == w.as_bytes())
                })
            });
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            // A process chooses its own name, which may contain control characters.
            owns.then(|| (printable(name.trim_end()), pid))
        })
}

/// Whether anything listens on a TCP port, at any address. Everybody can see that.
#[must_use]
pub(crate) fn is_listened(port: u16) -> bool {
    !inodes(port).is_empty()
}

/// The inodes of the sockets that listen on a port.
fn inodes(port: u16) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let tables = tables.iter().filter_map(|it| fs::read_to_string(it).ok());
    tables
        .flat_map(|table| listening_inodes(&table, port))
        .collect()
}

/// The inodes of listening sockets in a table of `/proc/net` (see proc_net(5)).
fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    const STATE_LISTEN: &str = "0A";
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut columns = line.split_whitespace();
            let local = columns.nth(1)?;
            let state = columns.nth(1)?;
            let inode = columns.nth(5)?;
            let (_, hex) = local.rsplit_once(':')?;
            let listens = state == STATE_LISTEN && u16::from_str_radix(hex, 16) == Ok(port);
            listens.then(|| inode.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_owns_the_port_it_listens_on() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
        let port = socket.local_addr().expect("bound").port();
        assert!(is_listened(port));
        assert_eq!(
            port_owner(port).map(|(_, pid)| pid),
            Some(std::process::id())
        );
    }

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   \
                     uid  timeout inode\n   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 \
                     00:00000000 00000000  1000        0 4242 1\n   1: 0100007F:1F90 \
                     0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 4243 1\n";
        assert_eq!(listening_inodes(table, 8080), ["4242"]);
        assert_eq!(listening_inodes(table, 8081), Vec::<String>::new());
        assert_eq!(listening_inodes("", 8080), Vec::<String>::new());
    }
}
