//! `gannet keygen`: a pair of keys for signing archives, in minisign's format.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use minisign::KeyPair;

use super::{print, text};
use crate::messages::{Failure, printable};

/// Writes `NAME.key`, which only its owner may read, and `NAME.pub`. Nothing is overwritten.
///
/// # Errors
/// One of the files already exists, or cannot be written.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let name = Path::new(text(matches, "name"));
    let failed = |error: minisign::PError| {
        Failure::new("make", "a pair of keys", error).help("'minisign -G' makes keys, too")
    };
    let pair = KeyPair::generate_unencrypted_keypair().map_err(failed)?;
    let secret = pair.sk.to_box(Some("gannet secret key")).map_err(failed)?;
    let public = pair.pk.to_box().map_err(failed)?;
    let (key_path, pub_path) = (with_suffix(name, "key"), with_suffix(name, "pub"));
    write_new(&key_path, &secret.into_string(), 0o600)?;
    write_new(&pub_path, &public.into_string(), 0o644)?;
    let shown = |path: &Path| printable(&path.to_string_lossy());
    let (key_path, pub_path) = (shown(&key_path), shown(&pub_path));
    let key = pair.pk.to_base64();
    print(&format!(
        "{key_path}: the secret key, without a password: keep it secret\n\
         {pub_path}: the public key {key}\n\
         next: gannet pack DIR --sign {key_path}\n      \
         gannet serve ARCHIVE --require-signature {key}\n"
    ))
}

fn with_suffix(name: &Path, suffix: &str) -> PathBuf {
    let mut path = name.as_os_str().to_owned();
    path.push(".");
    path.push(suffix);
    PathBuf::from(path)
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| {
            let failure = Failure::of_system("write", path.display(), &error);
            match error.kind() {
                std::io::ErrorKind::AlreadyExists => {
                    failure.help("keys are not overwritten: choose another name")
                }
                _ => failure,
            }
        })
}
