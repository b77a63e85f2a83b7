//! Foreign archives made to be costly: refused within a bound of address space, with a reason.

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

use gannet_testkit::{Ended, Folder, command, run};
use rustix::process::{Pid, Signal, kill_process};
use tar::{EntryType, Header};

/// Runs gannet with 256 MiB of address space. Reading what an archive claims would take more.
fn bounded(folder: &Folder, arguments: &[&str]) -> Ended {
    let gannet = command();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "ulimit -v 262144; exec \"$0\" \"$@\""])
        .arg(gannet.get_program())
        .args(arguments)
        .current_dir(folder.path());
    run(&mut shell)
}

/// Imports and packs an archive; both fail for this reason, and leave nothing.
#[track_caller]
fn refused(name: &str, archive: &[u8], why: &str) {
    let folder = Folder::new();
    folder.write(name, archive);
    for arguments in [
        ["extract", name, "-o", "out"],
        ["pack", name, "-o", "out.gannet"],
    ] {
        bounded(&folder, &arguments).failure_with(1, why);
    }
    let left = std::fs::read_dir(folder.path()).expect("readable").count();
    assert_eq!(left, 1, "{name}: {why}");
}

fn header(path: &str, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_path(path).expect("it fits");
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_cksum();
    header
}

/// A header, and `len` bytes.
fn write_record(out: &mut dyn Write, header: &Header, len: u64) {
    out.write_all(header.as_bytes()).expect("in memory");
    io::copy(&mut io::repeat(b'a').take(len), out).expect("in memory");
}

/// The same in each coding.
fn in_all_codings(header: &Header, len: u64) -> [Vec<u8>; 3] {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    write_record(&mut gzip, header, len);
    let mut zstd = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("a level");
    write_record(&mut zstd, header, len);
    let mut plain = Vec::new();
    // Only its header is read: a file of that length would slow the test.
    write_record(&mut plain, header, len.min(4096));
    [
        plain,
        gzip.finish().expect("in memory"),
        zstd.finish().expect("in memory"),
    ]
}

#[test]
fn records_of_a_tar_are_not_held() {
    const LEN: u64 = 300 << 20;
    for (kind, max) in [
        (EntryType::GNULongName, "65536"),
        (EntryType::GNULongLink, "65536"),
        (EntryType::XHeader, "1048576"),
        (EntryType::XGlobalHeader, "1048576"),
        (EntryType::Directory, "1048576"),
        (EntryType::new(b'V'), "1048576"),
    ] {
        let kind_shown = char::from(kind.as_byte());
        let why =
            format!("the record of type '{kind_shown}' at byte 0 has {LEN} bytes (at most {max})");
        // The slower ways to make one are the same code.
        let archives = in_all_codings(&header("r", kind, LEN), LEN.min(32 << 20));
        for (name, archive) in ["a.tar", "a.tar.gz", "a.tar.zst"].iter().zip(archives) {
            refused(name, &archive, &why);
        }
        // The most that the field can have.
        let most = header("r", kind, u64::MAX);
        let why = format!("at byte 0 has {} bytes (at most {max})", u64::MAX);
        refused("most.tar", most.as_bytes(), &why);
    }
    let [_, _, whole] = in_all_codings(&header("r", EntryType::GNULongName, LEN), LEN);
    refused(
        "whole.tar.zst",
        &whole,
        "at byte 0 has 314572800 bytes (at most 65536)",
    );
    for len in [LEN, u64::MAX] {
        let file = header("f", EntryType::Regular, len);
        let why =
            format!("with entry 'f' of {len} bytes, what it unpacks to is more than a hundred");
        refused("file.tar", file.as_bytes(), &why);
    }
}

/// A header, and these bytes as its content.
fn with_content(kind: EntryType, content: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    write_record(&mut record, &header("r", kind, content.len() as u64), 0);
    record.extend(content);
    record.resize(record.len().next_multiple_of(512), 0);
    record
}

#[test]
fn what_records_of_a_tar_say_about_an_entry_is_not_believed() {
    let with = |line: &[u8]| {
        let mut archive = with_content(EntryType::XHeader, line);
        write_record(&mut archive, &header("f", EntryType::Regular, 0), 0);
        archive
    };
    let malformed = "the extended header at byte 0 is malformed";
    for line in [
        &b"18446744073709551615 path=a\n"[..],
        b"99999999999999999999999 path=a\n",
        b"4096 path=a\n",
        b"0 path=a\n",
        b"7 path\n",
        b"path=a\n",
    ] {
        refused("a.tar", &with(line), malformed);
    }
    let len = with(b"29 size=18446744073709551615\n");
    let why = "with entry 'f' of 18446744073709551615 bytes";
    refused("len.tar", &len, why);
    let long = format!("{} path={}\n", 70_000 + 12, "a".repeat(70_000));
    refused(
        "long.tar",
        &with(long.as_bytes()),
        "has a path that is too long",
    );
    // Sparse files, of GNU's old form with all of its pieces elsewhere, and of all later ones.
    let sparse = "is a sparse file";
    let mut old = header("s", EntryType::GNUSparse, u64::MAX);
    old.as_gnu_mut().expect("it is GNU's").isextended = [1];
    old.set_cksum();
    for archive in in_all_codings(&old, 32 << 20) {
        let name = match archive[0] {
            0x1f => "old.tar.gz",
            0x28 => "old.tar.zst",
            _ => "old.tar",
        };
        refused(name, &archive, sparse);
    }
    for line in [
        &b"22 GNU.sparse.major=1\n"[..],
        b"39 GNU.sparse.numblocks=99999999999999\n",
    ] {
        refused("sparse.tar", &with(line), sparse);
    }
    // A link without an end, and one to itself.
    let link = with_content(EntryType::GNULongLink, &vec![b'l'; 65_537]);
    refused(
        "link.tar",
        &link,
        "at byte 0 has 65537 bytes (at most 65536)",
    );
    let missing = with_content(EntryType::GNULongName, b"n");
    let why = "its last record describes an entry that is missing";
    refused("missing.tar", &missing, why);
}

#[test]
fn folders_and_skipped_records_count() {
    let mut deep = Vec::new();
    let path = "d/".repeat(1999) + "ff";
    write_record(&mut deep, &header("long", EntryType::GNULongName, 4000), 0);
    deep.extend(path.as_bytes());
    deep.extend([0; 96]);
    write_record(&mut deep, &header("f", EntryType::Regular, 0), 0);
    refused("deep.tar", &deep, "is in too many folders");

    // As many as its length may pay for would take a minute.
    let mut wide = Vec::new();
    for number in 0..150 {
        let path = format!("{number}/{}f", "d/".repeat(40));
        write_record(&mut wide, &header(&path, EntryType::Regular, 0), 0);
    }
    refused("wide.tar", &wide, "it has 4537 folders for 110 files");

    let mut many = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("a level");
    for _ in 0..300 {
        write_record(&mut many, &header("l", EntryType::Symlink, 0), 0);
        write_record(
            &mut many,
            &header("r", EntryType::XGlobalHeader, 1 << 20),
            1 << 20,
        );
    }
    let many = many.finish().expect("in memory");
    refused(
        "many.tar.zst",
        &many,
        "more than a hundred times as long as it is",
    );
}

/// The end of a zip64 with these values, and the records that lead to it.
fn zip_64(count: u64, size: u64, offset: u64) -> Vec<u8> {
    let mut zip = b"PK\x06\x06".to_vec();
    zip.extend(44_u64.to_le_bytes());
    zip.extend([0; 12]);
    for value in [count, count, size, offset] {
        zip.extend(value.to_le_bytes());
    }
    zip.extend(b"PK\x06\x07\0\0\0\0");
    zip.extend(0_u64.to_le_bytes());
    zip.extend(1_u32.to_le_bytes());
    zip.extend(b"PK\x05\x06\0\0\0\0");
    zip.extend([0xff; 12]);
    zip.extend([0, 0]);
    zip
}

#[test]
fn lists_of_a_zip_are_not_held() {
    let damaged = "its list of files, at its end, is missing or damaged";
    // Begins like a zip.
    let zip = |end: &[u8]| [&b"PK\x03\x04"[..], &vec![0; 2 << 20], end].concat();
    for values in [
        [u64::MAX, u64::MAX, u64::MAX],
        [1 << 20, 46 << 20, 1 << 21],
        [u64::MAX, 0, 0],
    ] {
        let [count, size, offset] = values;
        refused("a.zip", &zip(&zip_64(count, size, offset)), damaged);
    }
    let mut entry = b"PK\x01\x02".to_vec();
    entry.resize(46, 0);
    entry[28..34].fill(0xff);
    let mut end = b"PK\x05\x06\0\0\0\0\xff\xff\xff\xff".to_vec();
    end.extend(46_u32.to_le_bytes());
    end.extend((4 + (2_u32 << 20)).to_le_bytes());
    end.extend([0, 0]);
    refused(
        "b.zip",
        &zip(&[entry.clone(), end.clone()].concat()),
        damaged,
    );
    // Names, extra fields and comments of the greatest lengths, in as many entries as there may be.
    let mut long = entry.clone();
    long.resize(46 + 3 * 0xffff, b'n');
    let list = long.repeat(20);
    let mut all = b"PK\x05\x06\0\0\0\0\x14\0\x14\0".to_vec();
    all.extend((list.len() as u32).to_le_bytes());
    all.extend((4 + (2_u32 << 20)).to_le_bytes());
    all.extend([0xff, 0xff]);
    all.extend(vec![b'c'; 0xffff]);
    refused(
        "long.zip",
        &zip(&[list, all].concat()),
        "has a path that is too long",
    );
    // One file of almost eight exbibytes.
    entry[28..34].copy_from_slice(&[1, 0, 20, 0, 0, 0]);
    entry[20..28].fill(0xff);
    entry.push(b'f');
    entry.extend([1, 0, 16, 0]);
    entry.extend([(i64::MAX as u64).to_le_bytes(); 2].concat());
    end[8..12].copy_from_slice(&[1, 0, 1, 0]);
    end[12..16].copy_from_slice(&67_u32.to_le_bytes());
    let why = "with entry 'f' of 9223372036854775807 bytes";
    refused("c.zip", &zip(&[entry, end].concat()), why);
}

#[test]
fn records_of_kawipiko_are_not_held() {
    let archive = |records: &[(&[u8], u32, &[u8])]| {
        let mut body = Vec::new();
        for (key, len, content) in records {
            body.extend((key.len() as u32).to_le_bytes());
            body.extend(len.to_le_bytes());
            body.extend(*key);
            body.extend(*content);
        }
        let end = (2048 + body.len()) as u32;
        let mut file: Vec<u8> = (0..256)
            .flat_map(|_| [end.to_le_bytes(), [0; 4]].concat())
            .collect();
        file.extend(body);
        file
    };
    let reach = "the record at 2048 reaches beyond the records";
    for key in [&b"f:/a"[..], b"r:/a", b"m0000001", b"d0000002", b"x"] {
        refused("a.cdb", &archive(&[(key, u32::MAX, b"")]), reach);
    }
    let long = vec![b'a'; 70_000];
    let why = "the record at 2060 is too long";
    refused("b.cdb", &archive(&[(b"f:/a", 70_000, &long)]), why);
    // A window of a gigabyte, which the library allows.
    let large = [0x11, 30, 0, 0, 0, 0];
    let metadata = b"Content-Encoding: br\r\n";
    let files = archive(&[
        (b"f:/a", 16, b"m0000001d0000002"),
        (b"m0000001", metadata.len() as u32, metadata),
        (b"d0000002", large.len() as u32, &large),
    ]);
    refused(
        "c.cdb",
        &files,
        "its window is larger than the coding br allows",
    );
}

#[test]
fn the_largest_window_of_a_compressed_tar_fits() {
    let folder = Folder::new();
    let mut coded = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("a level");
    coded.window_log(27).expect("a window");
    write_record(
        &mut coded,
        &header("f.txt", EntryType::Regular, 200 << 20),
        200 << 20,
    );
    folder.write("a.tar.zst", coded.finish().expect("in memory"));
    bounded(&folder, &["extract", "a.tar.zst", "-o", "out"]).success();
    let len = std::fs::metadata(Path::new(folder.path()).join("out/f.txt"));
    assert_eq!(len.expect("imported").len(), 200 << 20);
}

/// Files are not written while they are removed.
#[test]
fn a_signal_ends_an_import_of_many_files() {
    let mut many = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("a level");
    for number in 0..30_000 {
        let path = format!("{}/{number}", number / 1000);
        write_record(&mut many, &header(&path, EntryType::Regular, 0), 0);
    }
    let folder = Folder::new();
    folder.write("many.tar.zst", many.finish().expect("in memory"));
    let mut importing = command()
        .args(["extract", "many.tar.zst", "-o", "out"])
        .current_dir(folder.path())
        .spawn()
        .expect("it starts");
    while !folder.join("out/0/0").exists() {
        assert!(importing.try_wait().expect("a child").is_none(), "too fast");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&importing), Signal::TERM).expect("it runs");
    let status = importing.wait().expect("a child");
    assert_eq!(status.signal(), Some(15));
    assert!(!folder.join("out").exists());
}
