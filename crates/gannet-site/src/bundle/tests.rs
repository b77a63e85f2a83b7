use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::Value;

use super::layer::tests::elf;
use super::*;
use crate::pack::{NoProgress, PackOptions, pack};

/// A folder with an archive and a program in it, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("gannet-bundle-{name}-{}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(folder.0.join("site")).expect("it is new");
        fs::write(folder.0.join("site/index.html"), "<title>Home</title>").expect("written");
        fs::write(folder.0.join("site/photo.jpg"), [7; 20_000]).expect("written");
        let options = PackOptions::new(folder.0.join("site"), folder.archive());
        pack(&options, &mut NoProgress).expect("packed");
        fs::write(folder.0.join("gannet"), elf(183, &[1])).expect("written");
        folder
    }

    fn archive(&self) -> PathBuf {
        self.0.join("site.gannet")
    }

    fn options(&self, program: bool, archive: bool) -> BundleOptions {
        BundleOptions {
            program: program.then(|| Program {
                file: self.0.join("gannet"),
                version: "1.2.3",
                bill: b"{}".to_vec(),
                licences: b"MIT".to_vec(),
            }),
            archive: archive.then(|| self.archive()),
            output: self.0.join("image.tar"),
            name: "docs:7".into(),
            time: 1_700_000_000,
        }
    }

    fn make(&self, program: bool, archive: bool) -> (Files, BundleReport) {
        let options = self.options(program, archive);
        let report = bundle(&options).expect("made");
        let bytes = fs::read(&options.output).expect("there");
        assert_eq!(report.len, bytes.len() as u64);
        (files(&bytes), report)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover temporary directory does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

type Files = BTreeMap<String, (u32, Vec<u8>)>;

fn files(tar: &[u8]) -> Files {
    let mut archive = tar::Archive::new(tar);
    let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.expect("sound");
        let header = entry.header();
        assert_eq!(header.mtime().expect("a number"), 1_700_000_000);
        assert_eq!(header.uid().expect("a number"), 0);
        let mode = header.mode().expect("a number");
        let path = String::from_utf8(entry.path_bytes().into_owned()).expect("UTF-8");
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("whole");
        (path, (mode, content))
    };
    archive.entries().expect("a tar").map(read).collect()
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("JSON")
}

/// The blob that a descriptor names, checked.
fn blob<'f>(files: &'f Files, descriptor: &Value) -> &'f [u8] {
    let digest = descriptor["digest"].as_str().expect("a digest");
    let digest = digest.strip_prefix("sha256:").expect("SHA-256");
    let (_, bytes) = &files[&format!("blobs/sha256/{digest}")];
    assert_eq!(digest, sha256(bytes));
    assert_eq!(descriptor["size"], bytes.len());
    bytes
}

fn sha256(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    crate::archive::hex(digest.as_ref())
}

/// The configuration and the files of each layer, as a runtime finds them.
fn unpack(files: &Files) -> (Value, Vec<Files>) {
    assert_eq!(json(&files["oci-layout"].1)["imageLayoutVersion"], "1.0.0");
    let index = json(&files["index.json"].1);
    let manifest = json(blob(files, &index["manifests"][0]));
    let config = json(blob(files, &manifest["config"]));
    let of_docker = json(&files["manifest.json"].1);
    let mut layers = Vec::new();
    for (at, descriptor) in manifest["layers"]
        .as_array()
        .expect("layers")
        .iter()
        .enumerate()
    {
        let stored = blob(files, descriptor);
        let kind = descriptor["mediaType"].as_str().expect("a type");
        let tar = match kind.ends_with("+gzip") {
            true => {
                let mut tar = Vec::new();
                GzDecoder::new(stored).read_to_end(&mut tar).expect("gzip");
                tar
            }
            false => stored.to_vec(),
        };
        let named = config["rootfs"]["diff_ids"][at].as_str();
        assert_eq!(named, Some(format!("sha256:{}", sha256(&tar)).as_str()));
        let path = of_docker[0]["Layers"][at].as_str().expect("a path");
        assert_eq!(files[path].1, stored);
        layers.push(self::files(&tar));
    }
    assert_eq!(of_docker[0]["RepoTags"][0], "docs:7");
    (config, layers)
}

#[test]
fn an_image_has_the_program_and_the_archive_in_layers_of_their_own() {
    let folder = Folder::new("both");
    let (image, report) = folder.make(true, true);
    let (config, layers) = unpack(&image);
    assert_eq!(config["architecture"], "arm64");
    assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    assert_eq!(config["config"]["Env"][0], "GANNET_PATH=/srv/site.gannet");
    let [program, site] = layers.as_slice() else {
        panic!("two layers: {}", layers.len());
    };
    assert_eq!(program["usr/bin/gannet"], (0o755, elf(183, &[1])));
    let archive = fs::read(folder.archive()).expect("there");
    assert_eq!(site["srv/site.gannet"], (0o644, archive));
    let index = json(&image["index.json"].1);
    assert_eq!(
        index["manifests"][0]["digest"],
        format!("sha256:{}", report.digest)
    );
    let again = folder.make(true, true);
    assert_eq!(
        (again.0, again.1.digest),
        (image, report.digest),
        "the same bytes"
    );
    let only_image = fs::read_dir(&folder.0).expect("there").flatten();
    let left = only_image.filter(|it| it.file_name().to_string_lossy().ends_with(".tmp"));
    assert_eq!(left.count(), 0);
}

#[test]
fn a_program_alone_serves_a_folder_and_an_archive_alone_is_a_volume() {
    let folder = Folder::new("alone");
    let (config, layers) = unpack(&folder.make(true, false).0);
    assert_eq!(config["config"]["Env"][0], "GANNET_PATH=/srv/www");
    assert_eq!(
        config["config"]["Labels"]["org.opencontainers.image.version"],
        "1.2.3"
    );
    assert!(layers[0].contains_key("srv/www/"), "{:?}", layers[0].keys());
    let (config, layers) = unpack(&folder.make(false, true).0);
    assert_eq!(config["config"], serde_json::json!({}));
    let names: Vec<_> = layers.iter().flat_map(Files::keys).collect();
    assert_eq!(names, ["site.gannet"]);
}

/// An archive that is replaced while its image is made is in it as it was; one that is written to is
/// refused.
#[test]
fn what_is_bundled_is_what_is_verified() {
    let folder = Folder::new("replaced");
    let (path, options) = (folder.archive(), folder.options(true, true));
    let before = fs::read(&path).expect("there");
    let layer = site_layer(&path, &options).expect("sound");
    let other = folder.0.join("other");
    fs::write(&other, "something else").expect("written");
    fs::rename(other, &path).expect("renamed");
    let mut tar = Vec::new();
    let written = layer.write(&mut tar, Path::new("image.tar"), 1_700_000_000);
    let place = written.expect("in memory");
    assert_eq!(files(&tar)["srv/site.gannet"].1, before);
    let place = usize::try_from(place.start).expect("short")..;
    assert!(tar[place].starts_with(&before));

    fs::write(&path, &before).expect("written");
    let layer = site_layer(&path, &options).expect("sound");
    let mut damaged = before;
    let body = damaged.windows(100).position(|it| it == [7; 100]);
    damaged[body.expect("stored as it is")] ^= 1;
    fs::write(&path, damaged).expect("written");
    let mut image = Image::create(&options.output, 0).expect("it is new");
    let error = image.add(layer, &path).err().expect("it is refused");
    let expect = format!("'{}'", path.display());
    let text = error.to_string();
    assert!(
        text.contains(&expect) && text.contains("wrong digest"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_an_image_leaves_the_file_that_is_there() {
    let folder = Folder::new("refused");
    let refused = |change: &dyn Fn(&mut BundleOptions), expect: &str| {
        let mut options = folder.options(true, true);
        fs::write(&options.output, "earlier").expect("written");
        change(&mut options);
        let error = bundle(&options).expect_err(expect);
        assert!(error.to_string().contains(expect), "{error}");
        let earlier = fs::read(folder.0.join("image.tar")).expect("there");
        assert_eq!(earlier, b"earlier");
    };
    let program = |options: &mut BundleOptions, name: &str| {
        options.program.as_mut().expect("one").file = folder.0.join(name);
    };
    fs::write(folder.0.join("dynamic"), elf(62, &[3])).expect("written");
    refused(&|it| program(it, "dynamic"), "needs a C library");
    refused(&|it| program(it, "site/index.html"), "not a 64-bit ELF");
    refused(&|it| program(it, "missing"), "cannot read");
    refused(&|it| it.archive = Some(folder.0.join("gannet")), "gannet'");
    let mut damaged = fs::read(folder.archive()).expect("there");
    let body = damaged.windows(100).position(|it| it == [7; 100]);
    damaged[body.expect("stored as it is")] ^= 1;
    fs::write(folder.0.join("damaged"), damaged).expect("written");
    let made = folder.0.join("made.tar");
    let damaged = |options: &mut BundleOptions| {
        options.archive = Some(folder.0.join("damaged"));
        options.output.clone_from(&made);
    };
    refused(&damaged, "wrong digest");
    assert!(!made.exists());
    refused(&|_| {}, "the existing file is not an image");
    // A user's backup.
    let mut backup = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(4);
    let added = backup.append_data(&mut header, "documents/one", &b"mine"[..]);
    added.expect("in memory");
    let backup = backup.into_inner().expect("in memory");
    let target = folder.0.join("backup.tar");
    fs::write(&target, &backup).expect("written");
    refused(
        &|it| it.output = target.clone(),
        "the existing file is not an image",
    );
    assert_eq!(fs::read(&target).expect("there"), backup);
    refused(&|it| it.name = "Docs".into(), "cannot name an image 'Docs'");
    refused(&|it| it.output = folder.archive(), "it is the archive");
    refused(&|it| it.output = folder.0.join("site"), "directory");
    refused(
        &|it| it.output = Path::new("/dev/null").into(),
        "not a file",
    );
    let link = folder.0.join("link");
    std::os::unix::fs::symlink(folder.archive(), &link).expect("linked");
    refused(&|it| it.output = link.clone(), "it is the archive");
}
