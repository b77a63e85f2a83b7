//! Compressed certificates (RFC 8879): made when certificates are loaded, found in a handshake.
//!
//! The TLS library asks for the compressed form of a whole Certificate message, and passes nothing
//! that says whose it is. So those of all certificates in use are in one table, by the message.
//! What is not there is sent as it is: as many are compressed as can be named one by one
//! ([`COMPRESSED_MAX`]), since each takes a millisecond.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock, Weak};

use foldhash::fast::RandomState;
use gannet_http::semantics::coding::Coding;
use gannet_io::reserve;
use libdeflater::{CompressionLvl, Compressor};
use rustls::compress::{CertCompressor, CompressionCache, CompressionFailed, CompressionLevel};
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use rustls::{CertificateCompressionAlgorithm as Algorithm, ServerConfig};

use crate::bounds::tls::COMPRESSED_MAX;
use crate::coder::encoders;

/// In our order of preference: browsers know brotli, except Safari, which knows zlib.
static COMPRESSORS: [Stored; 2] = [Stored(Algorithm::Brotli), Stored(Algorithm::Zlib)];

/// More than the encoders allocate for a chain, one after the other, in bytes.
const ENCODERS_ROOM: usize = 4 << 20;

type FormTable = HashMap<Box<[u8]>, Weak<Forms>, RandomState>;

static TABLE: LazyLock<RwLock<FormTable>> = LazyLock::new(RwLock::default);

/// The compressed forms of a Certificate message: handshakes find them as long as this exists.
#[derive(Debug, Default)]
pub(super) struct Forms {
    brotli: Option<Vec<u8>>,
    zlib: Option<Vec<u8>>,
}

/// Compresses the chains of these keys.
pub(super) fn compress(keys: &[Arc<CertifiedKey>]) -> Vec<Arc<Forms>> {
    keys.iter().map(|key| Forms::of(&key.cert)).collect()
}

/// Lets handshakes with this configuration use the compressed forms.
pub(super) fn enable(config: &mut ServerConfig) {
    let compressors = COMPRESSORS.iter();
    config.cert_compressors = compressors.map(|one| one as &dyn CertCompressor).collect();
    // The library's own copies would be found one by one, under a lock.
    config.cert_compression_cache = Arc::new(CompressionCache::Disabled);
}

impl Forms {
    /// Those of a chain, which may be in use already.
    fn of(chain: &[CertificateDer<'_>]) -> Arc<Self> {
        let message = message(chain);
        if let Some(forms) = find(&message) {
            return forms;
        }
        let is_full = || {
            let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
            if table.len() >= COMPRESSED_MAX {
                table.retain(|_, forms| forms.strong_count() > 0);
            }
            table.len() >= COMPRESSED_MAX
        };
        let forms = Arc::new(match is_full() {
            true => Self::default(),
            false => Self::new(&message),
        });
        if forms.brotli.is_none() && forms.zlib.is_none() {
            // Those who load it again may have the memory.
            return forms;
        }
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        table.insert(message.into(), Arc::downgrade(&forms));
        forms
    }

    fn new(message: &[u8]) -> Self {
        // The encoders end the process if they get no memory.
        if reserve::is_kept() && !reserve::has_room(ENCODERS_ROOM) {
            return Self::default();
        }
        let shorter = |form: &Vec<u8>| form.len() < message.len();
        Self {
            brotli: encoders::encode(Coding::Brotli, message).filter(shorter),
            zlib: zlib(message).filter(shorter),
        }
    }
}

fn find(message: &[u8]) -> Option<Arc<Forms>> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    table.get(message).and_then(Weak::upgrade)
}

/// A compressor that only finds what has been compressed.
#[derive(Debug)]
struct Stored(Algorithm);

impl CertCompressor for Stored {
    fn compress(
        &self,
        message: Vec<u8>,
        _: CompressionLevel,
    ) -> Result<Vec<u8>, CompressionFailed> {
        let forms = find(&message);
        let form = forms.as_ref().and_then(|forms| match self.0 {
            Algorithm::Brotli => forms.brotli.as_ref(),
            Algorithm::Zlib => forms.zlib.as_ref(),
            _ => None,
        });
        form.cloned().ok_or(CompressionFailed)
    }

    fn algorithm(&self) -> Algorithm {
        self.0
    }
}

/// The body of the Certificate message of a server (RFC 8446 section 4.4.2), as the library writes it:
/// without context and extensions.
fn message(chain: &[CertificateDer<'_>]) -> Vec<u8> {
    const LEN_OF_LEN: usize = 3;
    const NO_EXTENSIONS: [u8; 2] = [0, 0];
    let put_len = |out: &mut Vec<u8>, len: usize| {
        let len = u32::try_from(len).expect("a PEM file has at most 1 MiB");
        out.extend_from_slice(&len.to_be_bytes()[1..]);
    };
    let entry_len = |one: &CertificateDer<'_>| LEN_OF_LEN + one.len() + NO_EXTENSIONS.len();
    let mut out = vec![0];
    put_len(&mut out, chain.iter().map(entry_len).sum());
    for one in chain {
        put_len(&mut out, one.len());
        out.extend_from_slice(one);
        out.extend_from_slice(&NO_EXTENSIONS);
    }
    out
}

fn zlib(message: &[u8]) -> Option<Vec<u8>> {
    let mut compressor = Compressor::new(CompressionLvl::new(ZLIB_LEVEL).ok()?);
    let mut out = vec![0; compressor.zlib_compress_bound(message.len())];
    let len = compressor.zlib_compress(message, &mut out).ok()?;
    out.truncate(len);
    Some(out)
}

/// The highest level that makes no tables of megabytes.
const ZLIB_LEVEL: i32 = 9;
