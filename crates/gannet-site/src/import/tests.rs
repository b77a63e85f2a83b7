//! Each importer with valid, hostile and corrupt archives.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};

use ::tar::{Builder, EntryType, Header};
use ::zip::ZipWriter;
use ::zip::write::SimpleFileOptions;

use super::unpack::checked;
use super::*;

/// Collects entries, within a small limit.
#[derive(Default)]
struct Kept {
    files: BTreeMap<String, Vec<u8>>,
    left_out: Vec<String>,
}

impl Entries for Kept {
    fn account(&mut self, _bytes: u64) -> Result<(), ImportError> {
        Ok(())
    }

    fn file(
        &mut self,
        path: &[u8],
        _modified: Option<i64>,
        _len: Option<u64>,
        content: &mut dyn Read,
    ) -> Result<(), ImportError> {
        let relative = checked(path)?;
        let mut bytes = Vec::new();
        content
            .take(1 << 20)
            .read_to_end(&mut bytes)
            .map_err(read_error)?;
        let name = relative.to_string_lossy().into_owned();
        self.files.insert(name, bytes);
        Ok(())
    }

    fn same_as(&mut self, path: &[u8], before: &[u8]) -> Result<(), ImportError> {
        let before = checked(before)?.to_string_lossy().into_owned();
        let content = self.files.get(&before).cloned().unwrap_or_default();
        self.file(path, None, None, &mut content.as_slice())
    }

    fn left_out(&mut self, path: &[u8], why: &str) {
        let path = String::from_utf8_lossy(path);
        self.left_out.push(format!("{path}: {why}"));
    }
}

fn import(bytes: &[u8]) -> Result<(Kind, Kept), ImportError> {
    let kind = Kind::of(&bytes[..bytes.len().min(2048)], bytes.len() as u64).expect("a kind");
    let mut kept = Kept::default();
    read_bytes(bytes, kind, &mut kept)?;
    Ok((kind, kept))
}

fn names(kept: &Kept) -> Vec<&str> {
    kept.files.keys().map(String::as_str).collect()
}

fn zip_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        let options = SimpleFileOptions::default();
        writer.start_file(*name, options).expect("it is in memory");
        writer.write_all(content).expect("it is in memory");
    }
    writer.finish().expect("it is in memory").into_inner()
}

fn tar_of(files: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, kind, content) in files {
        let mut header = Header::new_ustar();
        // The checked setters reject the names tested here.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        if matches!(kind, EntryType::Link | EntryType::Symlink) {
            header.as_mut_bytes()[157..157 + content.len()].copy_from_slice(content);
            header.set_size(0);
        } else {
            header.set_size(content.len() as u64);
        }
        header.set_cksum();
        let body: &[u8] = if header.size().unwrap_or(0) == 0 {
            b""
        } else {
            content
        };
        builder.append(&header, body).expect("it is in memory");
    }
    builder.into_inner().expect("it is in memory")
}

/// A constant database with empty hash tables after the records.
fn cdb_of(records: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (key, content) in records {
        body.extend((key.len() as u32).to_le_bytes());
        body.extend((content.len() as u32).to_le_bytes());
        body.extend(*key);
        body.extend(*content);
    }
    let end = (2048 + body.len()) as u32;
    let mut file = Vec::new();
    for _ in 0..256 {
        file.extend(end.to_le_bytes());
        file.extend(0u32.to_le_bytes());
    }
    file.extend(body);
    file
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("it is in memory");
    encoder.finish().expect("it is in memory")
}

#[test]
fn names_in_a_zip_are_read_by_flag_and_slashes_made_of_backslashes() {
    // The name in the API, the name's bytes in the archive, the expected name.
    let rows: [(&str, &[u8], &str); 4] = [
        ("AAAA.html", b"\x81ber.html", "\u{fc}ber.html"),
        ("AAAAA.html", "\u{fc}ber.html".as_bytes(), "\u{fc}ber.html"),
        ("css|a.css", b"css\\a.css", "css/a.css"),
        ("a/b|c.css", b"a/b\\c.css", "a/b\\c.css"),
    ];
    for (name, bytes, expect) in rows {
        let mut zip = zip_of(&[(name, b"x")]);
        let places: Vec<usize> = zip
            .windows(name.len())
            .enumerate()
            .filter_map(|(at, found)| (found == name.as_bytes()).then_some(at))
            .collect();
        assert_eq!(places.len(), 2, "{name}");
        for at in places {
            zip[at..at + bytes.len()].copy_from_slice(bytes);
        }
        let (_, kept) = import(&zip).expect("sound");
        assert_eq!(names(&kept), [expect]);
    }
}

#[test]
fn a_zip_that_needs_a_password_is_not_called_damaged() {
    let mut zip = zip_of(&[("a.txt", b"x")]);
    // The encryption flag, in the local and in the central header.
    let central = zip.windows(4).position(|it| it == b"PK\x01\x02");
    zip[6] |= 1;
    zip[central.expect("a directory") + 8] |= 1;
    let error = import(&zip).err().expect("refused");
    assert!(matches!(error, ImportError::Unsupported(_)), "{error}");
}

#[test]
fn zip_and_tar_give_their_files() {
    let zip = zip_of(&[("index.html", b"<p>"), ("a/b.txt", b"b")]);
    let (kind, kept) = import(&zip).expect("sound");
    assert_eq!(
        (kind, names(&kept)),
        (Kind::Zip, vec!["a/b.txt", "index.html"])
    );

    let tar = tar_of(&[
        ("./", EntryType::Directory, b""),
        ("./index.html", EntryType::Regular, b"<p>"),
        ("copy.html", EntryType::Link, b"index.html"),
        ("link.html", EntryType::Symlink, b"/etc/passwd"),
    ]);
    for (bytes, coding) in [
        (tar.clone(), Coding::Identity),
        (gzip(&tar), Coding::Gzip),
        (zstd::encode_all(&*tar, 1).expect("in memory"), Coding::Zstd),
    ] {
        let (kind, kept) = import(&bytes).expect("sound");
        assert_eq!(kind, Kind::Tar(coding));
        assert_eq!(names(&kept), ["copy.html", "index.html"]);
        assert_eq!(kept.files["copy.html"], b"<p>");
        assert_eq!(kept.left_out, ["link.html: a symbolic link"]);
    }
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    let refused = |bytes: &[u8]| match import(bytes) {
        Err(ImportError::Path { why, .. }) => why,
        Err(other) => panic!("{other}"),
        Ok((_, kept)) => panic!("{:?}", names(&kept)),
    };
    for name in ["../x", "a/../../x", "/x"] {
        refused(&zip_of(&[(name, b"x")]));
        refused(&tar_of(&[(name, EntryType::Regular, b"x")]));
    }
    let link = [("x", EntryType::Link, b"../../etc/passwd".as_slice())];
    refused(&tar_of(&link));
    let cdb = [
        (b"f:/../x".as_slice(), b"m0000001d0000002".as_slice()),
        (b"m0000001", b"Content-Encoding: identity\r\n"),
        (b"d0000002", b"x"),
    ];
    refused(&cdb_of(&cdb));
    assert!(checked(b"a\0b").is_err() && checked(b".").is_err() && checked(&[b'a'; 5000]).is_err());
}

#[test]
fn kawipiko_archives_of_all_years_give_files_once_and_redirects() {
    let page = gzip(b"<p>page");
    let lines = b"Content-Encoding: gzip\r\nContent-Type: text/html\r\n".as_slice();
    let old_lines = b"Content-Encoding : gzip\nContent-Type : text/html\n".as_slice();
    // Pairs of numbers: content-encoding gzip; status 404.
    let pairs = b"h000001dH0000005".as_slice();
    let tagged = b"h0000017H0000001h000001cH0000005h0000025H000000eh000002bZaco\
        0000000000000000000000000000000000000000000000000000000000000000"
        .as_slice();
    let moved = b"h0000001Zaad301h0000018H0000001h0000040Zaah/new?h=1".as_slice();
    let missing = b"h0000001H000000eh000001dH0000003".as_slice();
    let archives = [
        cdb_of(&[
            (b"schema", b"kawipiko-2021b"),
            (b"files-content:/", b"cc:aa"),
            (b"files-content:/index.html", b"cc:aa"),
            (b"files-content:/index", b"cc:aa"),
            (b"resource-metadata:aa", lines),
            (b"resource-data:cc", &page),
        ]),
        cdb_of(&[
            (b"files-content:/index.html", b"aa"),
            (b"files-content:/", b"aa"),
            (b"resource-metadata:aa", old_lines),
            (b"resource-data:aa", &page),
        ]),
        cdb_of(&[
            (b"f:/", b"m0000001d0000002"),
            (b"f:/index.html", b"m0000001d0000002"),
            (b"m0000001", pairs),
            (b"d0000002", &page),
        ]),
        // Early in 2021; the schema and the list of paths are ignored.
        cdb_of(&[
            (b"s", b"2021a"),
            (b"f:/", b"1:2"),
            (b"m:1", lines),
            (b"c:2", &page),
            (b"f:/index", b"1:2"),
            (b"f:/index.html", b"1:2"),
            (b"fi", b"/\n/index\n/index.html\n"),
        ]),
        // With an entity tag, in the table from before there were statuses, where the value 14 is a
        // content type; and with a list of folders.
        cdb_of(&[
            (b"schema", b"kawipiko-2021b"),
            (b"f:/", b"m0000001d0000002"),
            (b"m0000001", tagged),
            (b"d0000002", &page),
            (b"l:/", b"m0000003d0000004"),
            (b"m0000003", b"h000001cH0000003h0000025H0000012"),
            (b"d0000004", b"{}"),
            (b"f:/index.html", b"m0000001d0000002"),
            (b"F0000001", b"/\n/index.html\n"),
            (b"L0000001", b"/\n"),
        ]),
    ];
    for archive in &archives {
        let (kind, kept) = import(archive).expect("sound");
        assert_eq!((kind, names(&kept)), (Kind::Kawipiko, vec!["index.html"]));
        assert_eq!(kept.files["index.html"], b"<p>page");
    }

    let archive = cdb_of(&[
        (b"f:/docs/", b"m0000001d0000002"),
        (b"f:/docs/*", b"m0000003d0000002"),
        (b"f:/*", b"m0000001d0000002"),
        (b"r:/old", b"m0000004d0000005"),
        (b"r:://example.org/x", b"m0000004d0000005"),
        (b"r:/bad", b"m0000001d0000005"),
        (b"m0000001", b"h000001dH0000005"),
        (b"m0000003", missing),
        (b"m0000004", b"!Status: 301\r\nLocation: /new\r\n"),
        (b"d0000002", b"plain"),
        (b"d0000005", b""),
    ]);
    let damaged = import(&archive).err().expect("plain bytes are not gzip");
    assert!(matches!(damaged, ImportError::Damaged(_)), "{damaged}");
    let sound = cdb_of(&[
        (b"f:/docs/", b"m0000003d0000002"),
        (b"f:/docs/*", b"m0000003d0000002"),
        (b"f:/*", b"m0000006d0000002"),
        (b"r:/old", b"m0000004d0000005"),
        (b"r:://example.org/x", b"m0000004d0000005"),
        (b"r:/bad", b"m0000006d0000005"),
        (b"m0000003", missing),
        (b"m0000004", b"!Status: 301\r\nLocation: /new\r\n"),
        (b"m0000006", b"h000001dH0000003"),
        (b"r:/older", b"m0000007d0000005"),
        (b"m0000007", moved),
        (b"d0000002", b"plain"),
        (b"d0000005", b""),
    ]);
    let (_, kept) = import(&sound).expect("sound");
    let expect = [
        "_redirects",
        "_wildcard.html",
        "docs/404.html",
        "docs/index.html",
    ];
    assert_eq!(names(&kept), expect);
    let lines = String::from_utf8_lossy(&kept.files["_redirects"]).into_owned();
    assert_eq!(
        lines,
        "/old /new 301\n/older /new?h=1 301\n://example.org/x /new 301\n"
    );
    assert_eq!(
        kept.left_out,
        ["/bad: a redirect whose target cannot be read"]
    );
}

#[test]
fn pages_of_folders_get_the_suffix_of_their_content_type() {
    let archive = cdb_of(&[
        (b"f:/*", b"m0000001d0000002"),
        (b"f:/a.txt", b"m0000003d0000004"),
        (b"f:/b/", b"m0000001d0000005"),
        (b"f:/b/*", b"m0000006d0000005"),
        (b"m0000001", b"h000001cH0000003h0000025H000000d"),
        (
            b"m0000003",
            b"h0000017H0000001h000001cH0000003h0000025H000000d",
        ),
        (
            b"m0000006",
            b"h0000001H000000eh000001dH0000003h0000026H000000d",
        ),
        (b"d0000002", b"any"),
        (b"d0000004", b"a"),
        (b"d0000005", b"b"),
    ]);
    let (_, kept) = import(&archive).expect("sound");
    assert_eq!(
        names(&kept),
        ["_wildcard.txt", "a.txt", "b/_404.txt", "b/index.txt"]
    );
}

#[test]
fn types_that_do_not_follow_from_names_become_rules() {
    // As kawipiko writes them: numbers of its table, and text for a type that it lacks.
    let html = b"h0000001H000000dh000001dH0000003h0000026H0000011".as_slice();
    let xml = b"h0000001H000000dh000001dH0000003h0000026Zaaxtext/xml; charset=utf-8".as_slice();
    let unknown = b"h0000001H000000dh000001dH0000003h0000026H000001a".as_slice();
    let archive = |more: &[(&[u8], &[u8])]| {
        let mut records = vec![
            (b"f:/a.html".as_slice(), b"m0000001d0000002".as_slice()),
            // A file with the same content as another one shares its type; the majority is right.
            (b"f:/a.txt", b"m0000001d0000002"),
            (b"f:/b.html", b"m0000001d0000002"),
            (b"f:/no suffix:*", b"m0000001d0000002"),
            (b"f:/feed", b"m0000003d0000002"),
            (b"f:/image", b"m0000004d0000002"),
            (b"f:/dir/", b"m0000001d0000002"),
            (b"m0000001", html),
            (b"m0000003", xml),
            (b"m0000004", unknown),
            (b"d0000002", b"any"),
        ];
        records.extend_from_slice(more);
        import(&cdb_of(&records)).expect("sound").1
    };
    let kept = archive(&[]);
    let rules = "/feed\n  Content-Type: text/xml; charset=utf-8\n\
        /no%20suffix%3A%2A\n  Content-Type: text/html; charset=utf-8\n";
    assert_eq!(String::from_utf8_lossy(&kept.files["_headers"]), rules);
    assert!(
        kept.files.contains_key("dir/index.html"),
        "{:?}",
        names(&kept)
    );
    // A file of the site's own is not overwritten.
    let kept = archive(&[(b"f:/_headers", b"m0000001d0000002")]);
    assert_eq!(kept.files["_headers"], b"any");
}

#[test]
fn redirects_keep_their_form_and_strange_ones_are_left_out() {
    let moved = |location: &str| {
        let len = location.len();
        let digits = [len / 625, len / 25 % 25, len % 25].map(|it| (b'a' + it as u8) as char);
        let digits: String = digits.iter().collect();
        format!("h0000001Zaad302h000003fZ{digits}{location}").into_bytes()
    };
    let locations = [
        "./page",
        "https://h.example:8080/#a",
        "mailto:a@h.example",
        "//h.example/x",
    ];
    let metadata = locations.map(moved);
    let sources = ["r:/docs/gone", "r:/docs/*", "r:/post", "r:/other"];
    let keys: Vec<String> = (1..5).map(|it| format!("m000000{it}")).collect();
    let references: Vec<String> = keys.iter().map(|key| format!("{key}d0000009")).collect();
    let mut records: Vec<(&[u8], &[u8])> = vec![
        (b"f:/empty.html", b"m000000ad0000009"),
        (b"r:://h.example:8080/x", b"m0000002d0000009"),
        (b"d0000009", b""),
    ];
    for index in 0..4 {
        records.push((sources[index].as_bytes(), references[index].as_bytes()));
        records.push((keys[index].as_bytes(), &metadata[index]));
    }
    // kawipiko writes no metadata for an empty file that follows redirects, and answers it with
    // 500; its other files are unaffected.
    let (_, kept) = import(&cdb_of(&records)).expect("sound");
    assert_eq!(kept.files["empty.html"], b"");
    assert_eq!(
        String::from_utf8_lossy(&kept.files["_redirects"]),
        "/docs/* https://h.example:8080/#a 302\n/docs/gone ./page 302\n"
    );
    let why = "a redirect that gannet does not support";
    let left_out = ["/other", "/post", "://h.example:8080/x"];
    assert_eq!(
        kept.left_out,
        left_out.map(|source| format!("{source}: {why}"))
    );

    records[2].1 = b"something";
    let damaged = import(&cdb_of(&records)).err().expect("it may be coded");
    assert_eq!(damaged.to_string(), "'/empty.html' has no metadata");
}

#[test]
fn a_cut_or_changed_archive_is_refused_or_read_and_never_a_panic() {
    let page = gzip(b"<p>page");
    let archives = [
        zip_of(&[("index.html", b"<p>page"), ("a/b.txt", b"b")]),
        tar_of(&[("index.html", EntryType::Regular, b"<p>page")]),
        cdb_of(&[
            (b"f:/index.html", b"m0000001d0000002"),
            (b"m0000001", b"h000001dH0000005"),
            (b"d0000002", &page),
        ]),
    ];
    let mut refused = 0;
    for archive in &archives {
        let kind = Kind::of(&archive[..archive.len().min(2048)], archive.len() as u64);
        let kind = kind.expect("a kind");
        for at in 0..archive.len() {
            let mut changed = archive.clone();
            changed[at] ^= 0x55;
            for bytes in [&changed, &archive[..at].to_vec()] {
                let result = read_bytes(bytes, kind, &mut Kept::default());
                refused += u32::from(result.is_err());
            }
        }
    }
    assert!(refused > 1000, "only {refused} were refused");
}

#[test]
fn other_files_are_of_no_kind() {
    for bytes in [
        b"".as_slice(),
        b"<!doctype html>",
        &[0; 4096],
        &[0xff; 4096],
    ] {
        let first = &bytes[..bytes.len().min(2048)];
        assert_eq!(Kind::of(first, bytes.len() as u64), None);
    }
}

#[test]
fn records_that_extend_a_tar_are_read_within_their_bounds() {
    let path = "d/".repeat(60) + &"n".repeat(200);
    let extended = format!("path={path}\n");
    // The length of a line includes its own three digits and the space.
    let extended = format!("{} {extended}", extended.len() + 4);
    let sound = |records: &[(&str, EntryType, &[u8])]| {
        let mut records = records.to_vec();
        records.push(("short", EntryType::Regular, b"x"));
        import(&tar_of(&records)).map(|(_, kept)| names(&kept).join(" "))
    };
    let long_name = format!("{path}\0");
    let rows = [
        (EntryType::GNULongName, long_name.as_bytes(), &*path),
        (EntryType::XHeader, extended.as_bytes(), &*path),
        (
            EntryType::XHeader,
            b"12 comment=\n30 mtime=1700000000.000000001\n",
            "short",
        ),
        (
            EntryType::XGlobalHeader,
            b"52 comment=0123456789012345678901234567890123456789\n",
            "short",
        ),
    ];
    for (kind, content, expect) in rows {
        let name = sound(&[("r", kind, content)]).expect("sound");
        assert_eq!(name, expect, "{kind:?}");
    }
    let refused = |records: &[(&str, EntryType, &[u8])]| sound(records).expect_err("refused");
    for content in [
        &b"9 path"[..],
        b"x path=a\n",
        b"99 path=a\n",
        b"5 ab\n\n",
        b"0 a=\n",
    ] {
        let error = refused(&[("r", EntryType::XHeader, content)]);
        assert_eq!(
            error.to_string(),
            "the extended header at byte 0 is malformed"
        );
    }
    for (kind, max) in [
        (EntryType::GNULongName, 65_536),
        (EntryType::GNULongLink, 65_536),
        (EntryType::XHeader, 1 << 20),
        (EntryType::XGlobalHeader, 1 << 20),
        (EntryType::Directory, 1 << 20),
        (EntryType::new(b'V'), 1 << 20),
    ] {
        let content = vec![b'a'; max + 1];
        let error = refused(&[("a", EntryType::Regular, b"x"), ("r", kind, &content)]);
        let kind = char::from(kind.as_byte());
        let expect = format!(
            "the record of type '{kind}' at byte 1024 has {} bytes (at most {max})",
            max + 1
        );
        assert_eq!(error.to_string(), expect);
    }
    let sparse = refused(&[("s", EntryType::GNUSparse, b"")]);
    assert_eq!(sparse.to_string(), "entry 's' is a sparse file");
    let last = tar_of(&[("r", EntryType::GNULongName, b"name")]);
    assert!(matches!(import(&last).err(), Some(ImportError::Damaged(_))));
}

#[test]
fn a_tar_that_is_cut_or_changed_is_damaged() {
    let tar = tar_of(&[
        ("a.html", EntryType::Regular, &[b'a'; 700]),
        ("b", EntryType::Regular, b"b"),
    ]);
    // The padding of the last file, and the zeros that follow it, may be missing.
    for (len, expect) in [
        (tar.len(), 2),
        (2561, 0),
        (2560, 2),
        (2049, 2),
        (2048, 0),
        (1800, 0),
        (1536, 1),
        (1100, 0),
    ] {
        let files = import(&tar[..len]).map(|(_, kept)| kept.files.len());
        match expect {
            0 => assert!(matches!(files, Err(ImportError::Damaged(_))), "{len}"),
            count => assert_eq!(files.ok(), Some(count), "{len}"),
        }
    }
    let mut changed = tar;
    changed[1540] ^= 1;
    let error = import(&changed).err().map(|error| error.to_string());
    assert_eq!(
        error.as_deref(),
        Some("the header at byte 1536 has a wrong checksum")
    );
}

#[test]
fn zips_with_all_forms_of_lists_are_read() {
    let plain = zip_of(&[("a.txt", b"a"), ("dir/b.txt", &b"b".repeat(5000))]);
    let mut large = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().large_file(true);
    large.start_file("a.txt", options).expect("it is in memory");
    large.write_all(b"a").expect("it is in memory");
    let comment = "PK\u{5}\u{6}".repeat(50);
    large.set_comment(comment).expect("it is short");
    let large = large.finish().expect("it is in memory").into_inner();
    // Something before the archive, and after its last record.
    let shifted = [b"PK\x03\x04".repeat(9), plain.clone(), b"junk".to_vec()].concat();
    for (zip, expect) in [(&plain, 2), (&large, 1), (&shifted, 2)] {
        let (_, kept) = import(zip).expect("sound");
        assert_eq!(
            (kept.files.len(), &*kept.files["a.txt"]),
            (expect, &b"a"[..])
        );
    }
    // Whatever is changed in it, there is an error or there are files, never a panic.
    for at in 0..plain.len() {
        let mut changed = plain.clone();
        changed[at] ^= 0xff;
        let _ = read_bytes(&changed, Kind::Zip, &mut Kept::default());
        let cut = read_bytes(&plain[..at], Kind::Zip, &mut Kept::default());
        assert!(cut.is_err(), "{at}");
    }
    let mut changed = plain.clone();
    let list = plain.windows(4).position(|it| it == b"PK\x01\x02");
    changed[list.expect("a list") + 16] ^= 1;
    let error = import(&changed).err().map(|error| error.to_string());
    let what = "a file differs from the length or checksum stored for it";
    assert_eq!(error.as_deref(), Some(what));
}

#[test]
fn redirects_of_slashes_are_left_to_packing() {
    let to = |target: &str| format!("!Status: 308\r\nLocation: {target}\r\n").into_bytes();
    let targets = ["/docs/", "/a", "/old", "/wild/", "/a/"].map(to);
    let (_, kept) = import(&cdb_of(&[
        (b"f:/docs/", b"m0000001d0000002"),
        (b"f:/a", b"m0000001d0000002"),
        (b"f:/wild/*", b"m0000001d0000002"),
        (b"r:/docs", b"m0000003d0000002"),
        (b"r:/a/", b"m0000004d0000002"),
        (b"r:/old/", b"m0000005d0000002"),
        (b"r:/wild", b"m0000006d0000002"),
        (b"r:/other", b"m0000007d0000002"),
        (b"m0000001", b"h000001dH0000003"),
        (b"m0000003", &targets[0]),
        (b"m0000004", &targets[1]),
        (b"m0000005", &targets[2]),
        (b"m0000006", &targets[3]),
        (b"m0000007", &targets[4]),
        (b"d0000002", b"<p>"),
    ]))
    .expect("sound");
    // Those of paths that are no files stay.
    assert_eq!(
        String::from_utf8_lossy(&kept.files["_redirects"]),
        "/old/ /old 308\n/other /a/ 308\n/wild /wild/ 308\n"
    );
}

#[test]
fn redirects_that_share_a_long_target_are_bounded() {
    let sharing = |target_len: usize, count: usize| {
        let target = "a".repeat(target_len);
        let target = format!("!Status: 301\r\nLocation: /{target}\r\n");
        let paths: Vec<String> = (0..count).map(|it| format!("r:/{it}")).collect();
        let mut records: Vec<(&[u8], &[u8])> = vec![
            (b"m0000001", target.as_bytes()),
            (b"d0000002", b""),
            (b"f:/", b"m0000003d0000002"),
            (b"m0000003", b"h000001dH0000003"),
        ];
        let redirects = paths.iter();
        records.extend(redirects.map(|it| (it.as_bytes(), &b"m0000001d0000002"[..])));
        import(&cdb_of(&records)).map(|(_, kept)| kept)
    };
    let error = sharing(8_000, 1_100).err().expect("refused");
    assert_eq!(error.to_string(), "its redirects are too long");
    // Those that no line of rules has room for are left out.
    let kept = sharing(60_000, 200).expect("read");
    assert_eq!(kept.left_out.len(), 200);
    assert!(!kept.files.contains_key("_redirects"));
}
