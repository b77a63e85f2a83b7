//! Whether the limit of the address space leaves the program room to begin.

use std::fs::File;
use std::io::{Read, Write, stderr};

use rustix::process::{Resource, getrlimit};

/// Bytes that the command line and a message about it take, with room to spare.
const LEAST: u64 = 2 << 20;

const KIB: u64 = 1 << 10;

/// Whether there is room for a command; if not, standard error says so. Nothing is allocated: an
/// allocation that fails ends the process by a signal.
pub fn is_enough() -> bool {
    let Some(most) = getrlimit(Resource::As).current else {
        return true;
    };
    let least = mapped() + LEAST;
    if most >= least {
        return true;
    }
    let (most, least) = (most / KIB, least.div_ceil(KIB));
    // There is no other place to report it.
    let _ = writeln!(
        stderr(),
        "gannet: ulimit -v {most}: too little for the program itself: at least {least} are needed\n\
         help: raise the limit, which is LimitAS= in a unit of systemd; a server needs more, and says how much"
    );
    false
}

/// Bytes of the address space that are in use, by `/proc/self/stat` (see proc(5)); 0 if unknown.
fn mapped() -> u64 {
    let mut text = [0; 1024];
    let read = File::open("/proc/self/stat").and_then(|mut file| file.read(&mut text));
    let text = str::from_utf8(&text[..read.unwrap_or(0)]).unwrap_or_default();
    // The second field, the name, may contain spaces; `vsize` is the 23rd.
    let after_name = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let bytes = after_name.split(' ').nth(20);
    bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}
