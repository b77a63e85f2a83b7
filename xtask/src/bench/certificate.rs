//! Makes the certificates that every TLS server of a measurement presents.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::process;

/// The kind of key of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Key {
    /// ECDSA on the curve P-256.
    EcdsaP256,
    /// RSA with 2048 bits.
    #[serde(rename = "rsa-2048")]
    Rsa2048,
}

/// A certificate for `localhost` and 127.0.0.1, signed by itself.
pub(crate) struct Certificate {
    /// The certificate, PEM.
    pub(crate) chain: PathBuf,
    /// Its key, PEM.
    pub(crate) key: PathBuf,
    /// The certificate, DER.
    pub(crate) der: Vec<u8>,
}

impl Certificate {
    /// Makes one with a `kind` of key in `directory`, by `openssl`.
    pub(crate) fn create(kind: Key, directory: &Path) -> Result<Self> {
        let openssl = process::find_or_install("openssl", "openssl")?;
        let name = match kind {
            Key::EcdsaP256 => "ecdsa-p256",
            Key::Rsa2048 => "rsa-2048",
        };
        let file = |suffix: &str| directory.join(format!("{name}.{suffix}"));
        let (chain, key) = (file("pem"), file("key"));
        let mut make = Command::new(&openssl);
        make.args([
            "req",
            "-x509",
            "-nodes",
            "-days",
            "30",
            "-subj",
            "/CN=localhost",
        ]);
        make.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
        match kind {
            Key::EcdsaP256 => {
                make.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
            }
            Key::Rsa2048 => {
                make.args(["-newkey", "rsa:2048"]);
            }
        }
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
