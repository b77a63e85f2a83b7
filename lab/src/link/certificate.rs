//! The certificates of the servers: as long as those of public authorities, because the size of a
//! server's first flight depends on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use xtask::process;

use super::browser::base64;

/// Placeholder for two signed certificate timestamps (certificate transparency): 240 bytes.
const TIMESTAMPS: usize = 240;

/// A certificate for `*.link.test` and that of its issuer, which is signed with an RSA key.
pub(crate) struct Chain {
    /// Both certificates, PEM.
    pub(crate) chain: PathBuf,
    /// The key, PEM.
    pub(crate) key: PathBuf,
    /// The SHA-256 of the public key, in base64.
    pub(crate) spki: String,
    /// Length of the two certificates in bytes.
    pub(crate) len: usize,
}

impl Chain {
    /// Creates them in `folder` with `openssl`.
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        let openssl = super::find("openssl")?;
        let run = |arguments: &[&str]| {
            let mut command = Command::new(&openssl);
            command
                .current_dir(folder)
                .args(arguments)
                .stdin(Stdio::null());
            process::capture(&mut command).context("cannot make a certificate")
        };
        let request = ["req", "-x509", "-nodes", "-days", "30"];
        let curve = ["-newkey", "ec", "-pkeyopt"];
        run(&[
            &request[..],
            &[
                "-newkey", "rsa:4096", "-keyout", "root.key", "-out", "root.pem",
            ],
            &["-subj", "/C=US/O=Link Security Research Group/CN=Link Root"],
        ]
        .concat())?;
        run(&[
            &request[..],
            &curve,
            &[
                "ec_paramgen_curve:P-384",
                "-CA",
                "root.pem",
                "-CAkey",
                "root.key",
            ],
            &["-keyout", "issuer.key", "-out", "issuer.pem"],
            &["-subj", "/C=US/O=Link Encryption/CN=L1"],
        ]
        .concat())?;
        let timestamps = format!(
            "1.3.6.1.4.1.55555.1=DER:0481{TIMESTAMPS:02x}{}",
            "5a".repeat(TIMESTAMPS)
        );
        run(&[
            &request[..],
            &curve,
            &[
                "ec_paramgen_curve:P-256",
                "-CA",
                "issuer.pem",
                "-CAkey",
                "issuer.key",
            ],
            &[
                "-keyout",
                "leaf.key",
                "-out",
                "leaf.pem",
                "-subj",
                "/CN=link.test",
            ],
            &["-addext", "subjectAltName=DNS:link.test,DNS:*.link.test"],
            &["-addext", &timestamps],
        ]
        .concat())?;
        let mut len = 0;
        let mut chain = String::new();
        for name in ["leaf", "issuer"] {
            let (pem, der) = (format!("{name}.pem"), format!("{name}.der"));
            run(&["x509", "-in", &pem, "-outform", "DER", "-out", &der])?;
            len += fs::read(folder.join(der))?.len();
            chain.push_str(&fs::read_to_string(folder.join(pem))?);
        }
        fs::write(folder.join("chain.pem"), chain)?;
        run(&[
            "pkey", "-in", "leaf.key", "-pubout", "-outform", "DER", "-out", "spki.der",
        ])?;
        let spki = Sha256::digest(fs::read(folder.join("spki.der"))?);
        Ok(Self {
            chain: folder.join("chain.pem"),
            key: folder.join("leaf.key"),
            spki: base64(&spki),
            len,
        })
    }
}
