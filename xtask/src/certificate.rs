//! Makes certificates for servers under measurement.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use crate::process;

/// A key type.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The prefix of file names.
    name: &'static str,
    /// The arguments of `openssl req` to make one.
    arguments: &'static [&'static str],
}

/// ECDSA on the curve P-256.
pub const ECDSA_P256: Key = Key {
    name: "ecdsa-p256",
    arguments: &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
};

/// RSA with 2048 bits.
pub const RSA_2048: Key = Key {
    name: "rsa-2048",
    arguments: &["-newkey", "rsa:2048"],
};

/// A self-signed certificate for `localhost` and 127.0.0.1.
pub struct Certificate {
    /// The certificate, PEM.
    pub chain: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// The certificate, DER.
    pub der: Vec<u8>,
}

impl Certificate {
    /// Makes one with a key of type `kind` in `directory`, using `openssl`.
    ///
    /// # Errors
    ///
    /// `openssl` is unavailable, or fails.
    pub fn create(kind: Key, directory: &Path) -> Result<Self> {
        Self::create_long(kind, directory, 0)
    }

    /// Makes one that is long, by `names` further names of some 30 bytes each.
    ///
    /// # Errors
    ///
    /// As for [`Certificate::create`].
    pub fn create_long(kind: Key, directory: &Path, names: usize) -> Result<Self> {
        let openssl = process::find_or_install("openssl", "openssl")?;
        let file = |suffix: &str| directory.join(format!("{}.{suffix}", kind.name));
        let (chain, key) = (file("pem"), file("key"));
        let mut make = Command::new(&openssl);
        make.args(["req", "-x509", "-nodes", "-days", "30"]);
        make.args(["-subj", "/CN=localhost", "-addext"]);
        let mut all = "subjectAltName=DNS:localhost,IP:127.0.0.1".to_owned();
        for name in 0..names {
            all += &format!(",DNS:{name:08}.name.test.example");
        }
        make.arg(all);
        make.args(kind.arguments);
        make.arg("-keyout").arg(&key).arg("-out").arg(&chain);
        process::capture(make.stdin(Stdio::null())).context("cannot make a certificate")?;
        let der_file = file("der");
        let mut convert = Command::new(&openssl);
        convert.args(["x509", "-outform", "DER", "-in"]).arg(&chain);
        convert.arg("-out").arg(&der_file).stdin(Stdio::null());
        process::capture(&mut convert).context("cannot convert a certificate")?;
        let der = fs::read(&der_file)?;
        Ok(Self { chain, key, der })
    }
}
