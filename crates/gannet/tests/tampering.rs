//! What somebody who can write to a store, but has no key, cannot do: have a publisher sign what
//! nobody signed.

mod store;

use std::fs;
use std::io::{Read, Write};

use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use gannet_archive::{SUPERBLOCK_LEN, Superblock, digest};
use gannet_testkit::{Ended, Folder, gannet_in};
use store::{current, file_of, line, publish, with_site};
use xxhash_rust::xxh3::xxh3_64;

const SIGN: [&str; 3] = ["-q", "--sign", "k.key"];

/// A store with so many signed releases.
fn with_signed(count: usize) -> Folder {
    let folder = with_site();
    gannet_in(&folder, ["keygen", "k"]).success();
    for number in 1..=count {
        folder.write("site/index.html", format!("release {number}"));
        publish(&folder, &SIGN).success();
    }
    folder
}

fn rollback(folder: &Folder, more: &[&str]) -> Ended {
    gannet_in(folder, ["rollback", "store"].iter().chain(more))
}

/// The site of somebody else, in a store without signatures; its pointer.
fn evil(folder: &Folder) -> String {
    folder.write("evil/site/index.html", "evil");
    let arguments = ["publish", "evil/site", "evil/store", "--fast", "-q"];
    gannet_in(folder, arguments).success();
    fs::read_to_string(folder.join("evil/store/current")).expect("published")
}

fn listed(folder: &Folder) -> Vec<String> {
    let names = fs::read_dir(folder.join("store/releases")).expect("a store");
    let mut names: Vec<_> = names
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_rollback_takes_what_a_signed_pointer_names() {
    let folder = with_signed(2);
    let before = current(&folder);
    let first = fs::read_to_string(folder.join("store/log/1")).expect("published");
    let evil = evil(&folder);
    let id = line(&evil, "release");
    let archive = format!("evil/store/releases/{id}.gannet");
    fs::copy(folder.join(&archive), file_of(&folder, id)).unwrap();
    folder.write("store/log/1", &evil);
    let sign = &SIGN[1..];
    rollback(&folder, sign).failure(
        1,
        "gannet: cannot roll back 'store': no earlier release has been kept\n\
         help: 'gannet releases store' lists what there is\n",
    );
    rollback(&folder, &[&[id], sign].concat()).failure(
        1,
        &format!(
            "gannet: cannot go back to '{id}': no pointer that this key has signed names its file \
             as it is\nhelp: if the file is good, 'gannet publish store/releases/{id}.gannet store' \
             puts it into force\n"
        ),
    );
    // Under the name of a release that was signed, with or without its length.
    folder.write("store/log/1", &first);
    let one = line(&first, "release");
    let mut bytes = fs::read(folder.join(&archive)).unwrap();
    for length in [bytes.len(), line(&first, "size").parse().unwrap()] {
        bytes.resize(length, 0);
        fs::write(file_of(&folder, one), &bytes).unwrap();
        let refused = rollback(&folder, sign);
        assert_eq!(refused.status, Some(1), "{refused:?}");
        assert!(
            refused.err.contains("names its file as it is"),
            "{refused:?}"
        );
    }
    assert_eq!(current(&folder), before);
}

#[test]
fn nothing_of_a_pointer_that_is_not_signed_is_taken_over() {
    let folder = with_signed(3);
    let signed = current(&folder);
    let release = |serial: u64| {
        let entry = fs::read_to_string(folder.join(format!("store/log/{serial}"))).unwrap();
        line(&entry, "release").to_owned()
    };
    let bounds = format!("keep 0s 0..0\nvoid {} {}\n", release(1), release(2));
    let forged = signed
        .replacen("serial 3\n", "serial 999999999998\n", 1)
        .replace("keep 7d 3..20\n", &bounds);
    assert!(forged.contains("999999999998") && forged.contains("void"));
    folder.write("store/current", forged);
    folder.write("store/log/999999999998", "");
    let files = listed(&folder);
    let said = "; it will be replaced, and serial 3 is what the new one follows\n";
    // Not even what is in force as it seems is published already.
    let again = publish(&folder, &SIGN);
    assert!(
        again.status == Some(0) && again.err.ends_with(said),
        "{again:?}"
    );
    let now = current(&folder);
    assert_eq!(line(&now, "serial"), "4");
    assert_eq!(line(&now, "keep"), "7d 3..20");
    assert_eq!(line(&now, "void"), "");
    assert_eq!(listed(&folder), files);
}

#[test]
fn the_first_signature_takes_nothing_over() {
    let folder = with_site();
    gannet_in(&folder, ["keygen", "k"]).success();
    publish(&folder, &["-q", "--keep", "1s 0..0"]).success();
    let one = line(&current(&folder), "release").to_owned();
    let file = fs::File::open(file_of(&folder, &one)).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    folder.write("site/index.html", "two");
    let plain = rollback(&folder, &SIGN[1..]);
    assert!(
        plain.err.contains("it is not known what was in force"),
        "{plain:?}"
    );
    let first = publish(&folder, &SIGN);
    assert!(
        first.status == Some(0) && first.err.contains("nothing of it is taken over"),
        "{first:?}"
    );
    let now = current(&folder);
    assert_eq!((line(&now, "serial"), line(&now, "replaces")), ("2", "1"));
    assert_eq!(line(&now, "keep"), "7d 3..20");
    assert!(file_of(&folder, &one).is_file(), "servers have it open");
    let quiet = publish(&folder, &SIGN).success();
    assert_eq!(quiet.err, "");
}

/// An archive in force whose digests are right, but whose contents are not those that were signed.
#[test]
fn nothing_is_taken_from_a_file_that_the_pointer_does_not_name() {
    let folder = with_signed(0);
    let real = (0..300).map(|line| format!("console.log('line {line} of {}')\n", line * 7919));
    let real: String = real.collect();
    folder.write("site/fixed.js", &real);
    publish(&folder, &SIGN).success();
    let release = line(&current(&folder), "release").to_owned();
    let path = file_of(&folder, &release);
    let mut bytes = fs::read(&path).unwrap();
    replace_gzip(&mut bytes, real.as_bytes(), b"alert('not what was signed')");
    fs::remove_file(&path).unwrap();
    fs::write(&path, &bytes).unwrap();
    gannet_in(&folder, ["verify", path.to_str().unwrap()]).success();
    folder.write("site/index.html", "two");
    let published = publish(&folder, &SIGN);
    let shown = format!("store/releases/{release}.gannet");
    let expect = format!(
        "gannet: not checked for URLs that vanish: cannot use '{shown}': it is not the file that \
         its pointer names
"
    );
    assert_eq!(published.err, expect);
    let next = line(&current(&folder), "release").to_owned();
    let bytes = fs::read(file_of(&folder, &next)).unwrap();
    let mut found = gzip_blobs(&bytes);
    assert!(found.any(|(_, content)| content == real.as_bytes()));
    assert!(gzip_blobs(&bytes).all(|(_, content)| !content.starts_with(b"alert")));
    // Its length alone is enough for the commands that read it.
    fs::OpenOptions::new()
        .append(true)
        .open(file_of(&folder, &next))
        .and_then(|mut file| file.write_all(b"more"))
        .unwrap();
    for command in ["ls", "inspect", "verify"] {
        let refused = gannet_in(&folder, [command, "store"]);
        assert!(refused.status != Some(0), "{refused:?}");
        assert!(
            refused.err.contains("not the file that its pointer names"),
            "{refused:?}"
        );
    }
    let refused = gannet_in(&folder, ["publish", "store", "live", "-q"]);
    assert!(
        refused.err.contains("not the file that its pointer names"),
        "{refused:?}"
    );
}

/// Assets that a release never had are not carried on from a file under its name.
#[test]
fn nothing_is_carried_from_another_file() {
    let folder = with_signed(1);
    folder.write("evil/site/assets/evil.1f2e3d4c.js", "alert('evil')");
    folder.write(
        "evil/site/_headers",
        "/assets/*\n  Cache-Control: max-age=31536000, immutable\n",
    );
    let evil = evil(&folder);
    let archive = format!("evil/store/releases/{}.gannet", line(&evil, "release"));
    let release = line(&current(&folder), "release").to_owned();
    fs::copy(folder.join(archive), file_of(&folder, &release)).unwrap();
    folder.write("site/index.html", "two");
    let carried = publish(&folder, &["--carry", "7d", "--sign", "k.key", "-q"]);
    assert_eq!(carried.status, Some(0), "{carried:?}");
    let listed = gannet_in(&folder, ["ls", "store"]).success();
    assert!(!listed.text().contains("evil"), "{listed:?}");
}

/// The sections of an archive by kind: row in the table, offset, length.
fn sections(bytes: &[u8]) -> Vec<(u32, usize, usize, usize)> {
    let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let rows = (0..short(60) as usize).map(|number| 128 + 32 * number);
    rows.map(|row| (short(row), row, long(row + 8), long(row + 16)))
        .collect()
}

fn section(bytes: &[u8], kind: u32) -> (usize, usize) {
    let all = sections(bytes).into_iter();
    let found = all.filter(|it| it.0 == kind).map(|it| (it.2, it.3)).next();
    found.expect("a section of this kind")
}

/// The blobs that are gzip: number and content.
fn gzip_blobs(bytes: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> {
    (0..section(bytes, 4).1 / 16).filter_map(|number| {
        let (start, len) = blob(bytes, number)?;
        let mut content = Vec::new();
        let mut decoder = GzDecoder::new(&bytes[start..start + len]);
        decoder.read_to_end(&mut content).ok()?;
        Some((number, content))
    })
}

/// Offset and length of a blob that is stored.
fn blob(bytes: &[u8], number: usize) -> Option<(usize, usize)> {
    let row = section(bytes, 4).0 + 16 * number;
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    (long(row) >> 63 == 0).then(|| (long(row) as usize, long(row + 8) as usize))
}

/// Replaces a gzip stream of `real` by one of `fake` that is as long, and makes all digests right.
fn replace_gzip(bytes: &mut [u8], real: &[u8], fake: &[u8]) {
    let found = gzip_blobs(bytes).find(|(_, content)| content == real);
    let (number, _) = found.expect("the content is stored with gzip");
    let (start, len) = blob(bytes, number).unwrap();
    let with_name = |name: usize| {
        let name = vec![b'x'; name];
        let mut encoder = GzBuilder::new()
            .filename(name)
            .write(Vec::new(), Compression::best());
        encoder.write_all(fake).unwrap();
        encoder.finish().unwrap()
    };
    let fake = with_name(len - with_name(0).len());
    bytes[start..start + len].copy_from_slice(&fake);
    let at = section(bytes, 5).0 + 32 * number;
    bytes[at..at + 32].copy_from_slice(&digest(&fake));
    for (_, row, start, len) in sections(bytes) {
        let checksum = xxh3_64(&bytes[start..start + len]).to_le_bytes();
        bytes[row + 24..row + 32].copy_from_slice(&checksum);
    }
    let seal = |bytes: &mut [u8]| {
        let checksum = xxh3_64(&bytes[..4088]).to_le_bytes();
        bytes[4088..4096].copy_from_slice(&checksum);
    };
    seal(bytes);
    let parsed = Superblock::parse(&bytes[..SUPERBLOCK_LEN], bytes.len() as u64);
    let parsed = parsed.expect("a sound archive");
    let metadata = parsed.metadata_range();
    let metadata = &bytes[metadata.start as usize..metadata.end as usize];
    let build_id = parsed.compute_build_id(metadata);
    bytes[64..96].copy_from_slice(&build_id);
    seal(bytes);
}
