//! What is served, the file systems below, and certificates.

use super::super::facts::{Certificates, Facts, FileSystem, Site};
use super::super::finding::{Finding, Level};
use crate::quantities::lasting;

/// What a file system is like for a server.
#[derive(Clone, Copy, Eq, PartialEq)]
enum FileSystemKind {
    Local,
    /// Another machine has the files.
    Network,
    /// A program has them.
    Fuse,
    /// Memory has them.
    Memory,
}

/// Types by their number in `linux/magic.h`, or in the file system's own source.
const KINDS: [(u64, &str, FileSystemKind); 20] = [
    (0xef53, "ext4", FileSystemKind::Local),
    (0x5846_5342, "XFS", FileSystemKind::Local),
    (0x9123_683e, "Btrfs", FileSystemKind::Local),
    (0x2fc1_2fc1, "ZFS", FileSystemKind::Local),
    (0xf2f5_2010, "F2FS", FileSystemKind::Local),
    (0x794c_7630, "overlay", FileSystemKind::Local),
    (0x7371_7368, "SquashFS", FileSystemKind::Local),
    (0xe0f5_e1e2, "EROFS", FileSystemKind::Local),
    (0x28cd_3d45, "cramfs", FileSystemKind::Local),
    (0x9660, "ISO 9660", FileSystemKind::Local),
    (0x4d44, "FAT", FileSystemKind::Local),
    (0x2011_bab0, "exFAT", FileSystemKind::Local),
    (0x6969, "NFS", FileSystemKind::Network),
    (0xff53_4d42, "CIFS", FileSystemKind::Network),
    (0xfe53_4d42, "SMB", FileSystemKind::Network),
    (0x00c3_6400, "Ceph", FileSystemKind::Network),
    (0x0102_1997, "9P", FileSystemKind::Network),
    (0x6573_5546, "FUSE", FileSystemKind::Fuse),
    (0x0102_1994, "tmpfs", FileSystemKind::Memory),
    (0x8584_58f6, "ramfs", FileSystemKind::Memory),
];

pub(super) fn sites(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    for site in &facts.sites {
        match &site.state {
            Err(lack) => all.push(Finding::lacking(Level::Bad, "content", lack)),
            Ok(system) => {
                all.push(file_system(site, *system));
                all.extend(case(site, *system, facts.wishes.passwords));
            }
        }
    }
    all
}

fn file_system(site: &Site, system: FileSystem) -> Finding {
    let subject = "content";
    let known = KINDS.iter().find(|(magic, ..)| *magic == system.magic);
    let (type_name, kind) = match known {
        Some((_, name, kind)) => ((*name).to_owned(), *kind),
        None => (format!("type {:#x}", system.magic), FileSystemKind::Local),
    };
    let text = format!("{}, on {type_name}", site.name);
    match kind {
        FileSystemKind::Network | FileSystemKind::Fuse if site.is_live => Finding::note(
            subject,
            format!("{text}: an answer waits as long as the file system does"),
        )
        .help("serve an archive ('gannet pack'), which is copied into memory, or a local copy"),
        FileSystemKind::Memory => Finding::ok(
            subject,
            format!("{text}: gone after a restart of the machine"),
        ),
        _ => local(text, site.is_live, system),
    }
}

/// What is on a disk of this machine.
fn local(text: String, is_live: bool, system: FileSystem) -> Finding {
    let found = match system.fixed {
        Some(fixed) => format!("{text}, fixed by {fixed}: sent without copying to every client"),
        None if is_live => text,
        None => format!("{text}: sent without copying where the client's progress is known"),
    };
    let finding = Finding::ok("content", found);
    match system.lacks_verity {
        true => finding.help(
            "'tune2fs -O verity DEVICE': releases that are published afterwards go to every client so",
        ),
        false => finding,
    }
}

/// Rules, passwords and hidden names are compared letter by letter.
fn case(site: &Site, system: FileSystem, passwords: bool) -> Option<Finding> {
    if !site.is_live || !system.folds_case {
        return None;
    }
    let text = format!(
        "{}: names differ in case only for gannet: '/About' answers as '/about'",
        site.name
    );
    Some(
        match passwords {
            true => Finding::bad(
                "content",
                format!("{text}, and rules and passwords for '/about' are not applied to it"),
            ),
            false => Finding::note("content", format!("{text}, without its rules")),
        }
        .help("move the site to a file system that distinguishes case, or serve an archive"),
    )
}

pub(super) fn certificates(certificates: Option<&Certificates>) -> Vec<Finding> {
    let subject = "certificate";
    match certificates {
        None => Vec::new(),
        Some(Certificates::Development) => vec![Finding::ok(
            subject,
            "for development, valid on this machine alone; made at the first start",
        )],
        Some(Certificates::Unusable(lack)) => vec![Finding::lacking(Level::Bad, subject, lack)],
        Some(Certificates::Named(named)) => {
            let one = |(names, left, until): &(String, i64, String)| match *left < 0 {
                true => Finding::bad(subject, format!("{names}: expired on {until}"))
                    .help("renew the certificate"),
                false => {
                    let left = lasting(left.unsigned_abs());
                    Finding::ok(subject, format!("{names}: {left} left, until {until}"))
                }
            };
            let asked = named.asked.iter();
            let asked = asked.map(|what| Finding::ok(subject, what.clone()));
            let warnings = named.warnings.iter();
            let warnings = warnings.map(|lack| Finding::lacking(Level::Note, subject, lack));
            let each = named.each.iter().map(one);
            each.chain(asked).chain(warnings).collect()
        }
    }
}
