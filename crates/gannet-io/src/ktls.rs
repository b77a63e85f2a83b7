//! Kernel TLS, transmit only: the kernel encrypts what a socket sends.
//!
//! ```text
//!   attach (TCP_ULP "tls") ─▶ install (TLS_TX) ─▶ send, sendmsg, sendfile as before
//!                                   ▲                  │
//!                                   └─ update key ◀────┘ send_control(handshake, KeyUpdate) first
//! ```
//!
//! Receiving is never handed to the kernel: bytes from the peer keep arriving as ciphertext. On
//! such a socket `MSG_WAITALL` and zero-copy sends fail with `EOPNOTSUPP`, and `MSG_MORE` holds
//! back the last record until more is sent. The kernel's documentation is
//! `Documentation/networking/tls.rst`; each function documents what was measured on Linux 6.1, 6.12
//! and 7.2.

use std::ffi::c_void;
use std::fmt;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::operation::CONTROL_LEN_MAX;
use crate::residency::last_errno;
use crate::socket_option;

/// The AEAD of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cipher {
    /// AES-128-GCM.
    Aes128Gcm,
    /// AES-256-GCM.
    Aes256Gcm,
    /// ChaCha20-Poly1305 (kernel 5.11).
    ChaCha20Poly1305,
}

const CIPHERS: [Cipher; 3] = [
    Cipher::Aes128Gcm,
    Cipher::Aes256Gcm,
    Cipher::ChaCha20Poly1305,
];

/// What the kernel needs to continue encrypting a TLS 1.3 connection.
pub struct TxKeys<'a> {
    /// Which AEAD.
    pub cipher: Cipher,
    /// The key: 16 bytes for AES-128, else 32.
    pub key: &'a [u8],
    /// The initialisation vector.
    pub iv: [u8; 12],
    /// The sequence number of the next record.
    pub sequence: u64,
}

/// The type of a control record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum ControlType {
    /// An alert; `close_notify` before a close.
    Alert = 21,
    /// A `KeyUpdate`, before a new key is installed.
    Handshake = 22,
}

/// A control record to be sent: type and content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlRecord {
    control: ControlType,
    content: [u8; CONTROL_LEN_MAX],
    len: usize,
}

impl ControlRecord {
    /// Panics if the content is longer than [`CONTROL_LEN_MAX`].
    pub(crate) fn new(control: ControlType, content: &[u8]) -> Self {
        let mut bytes = [0; CONTROL_LEN_MAX];
        bytes[..content.len()].copy_from_slice(content);
        Self {
            control,
            content: bytes,
            len: content.len(),
        }
    }

    pub(crate) fn control(&self) -> ControlType {
        self.control
    }

    pub(crate) fn content(&self) -> &[u8] {
        &self.content[..self.len]
    }

    /// As [`send_control`]; returns how many bytes of content were sent, or `EAGAIN`.
    pub(crate) fn send(&self, socket: impl AsFd) -> Result<u64, Errno> {
        loop {
            match send_control(&socket, self.control, self.content()) {
                Ok(true) => return Ok(self.len as u64),
                Ok(false) => return Err(Errno::AGAIN),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// What this kernel can do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Support {
    /// Encryption with each of the ciphers, or why not.
    pub ciphers: [(Cipher, Result<(), KernelTlsUnavailable>); 3],
    /// A key can be replaced (Linux 6.14). Without this a connection ends when its key is used up
    /// or the peer requests an update.
    pub can_update_keys: bool,
}

impl Support {
    /// The report of a kernel that encrypts with all ciphers, as the simulator's does.
    #[must_use]
    pub fn complete(can_update_keys: bool) -> Self {
        Self {
            ciphers: CIPHERS.map(|cipher| (cipher, Ok(()))),
            can_update_keys,
        }
    }

    /// Why there is no kernel TLS at all; `None` if there is, for at least one cipher.
    #[must_use]
    pub fn unavailable(&self) -> Option<&KernelTlsUnavailable> {
        if self.ciphers.iter().any(|(_, result)| result.is_ok()) {
            return None;
        }
        self.ciphers[0].1.as_ref().err()
    }

    /// Whether the kernel can encrypt with a cipher.
    #[must_use]
    pub fn has(&self, cipher: Cipher) -> bool {
        self.ciphers
            .iter()
            .any(|(one, result)| *one == cipher && result.is_ok())
    }
}

/// Why the kernel does not encrypt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KernelTlsUnavailable {
    /// The step that failed.
    pub step: &'static str,
    /// The error that the kernel returned.
    pub errno: Errno,
    /// The cause, in words.
    pub why: &'static str,
    /// How to fix it, if known.
    pub help: Option<&'static str>,
}

impl fmt::Display for KernelTlsUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}: {})", self.why, self.step, self.errno)
    }
}

impl std::error::Error for KernelTlsUnavailable {}

const ATTACH: &str = "setsockopt TCP_ULP";
const INSTALL: &str = "setsockopt TLS_TX";

impl KernelTlsUnavailable {
    /// Explains an error of [`attach`].
    #[must_use]
    fn of_attach(errno: Errno) -> Self {
        let (why, help) = match errno {
            // The kernel tried to load the module and there is none, or it was not allowed to
            // (containers).
            Errno::NOENT => (
                "the kernel module 'tls' is not loaded",
                Some("run 'modprobe tls' as root, and name it in /etc/modules-load.d/tls.conf"),
            ),
            Errno::NOPROTOOPT | Errno::OPNOTSUPP => (
                "the kernel is built without kernel TLS",
                Some("use one with CONFIG_TLS"),
            ),
            Errno::PERM | Errno::ACCESS => (
                "not permitted: probably the container's seccomp profile",
                None,
            ),
            Errno::NOTCONN => ("the connection has ended", None),
            Errno::EXIST => ("another protocol is attached to the socket", None),
            _ => ("the socket cannot be attached to kernel TLS", None),
        };
        Self {
            step: ATTACH,
            errno,
            why,
            help,
        }
    }

    /// Explains an error of [`install`].
    #[must_use]
    pub fn of_install(errno: Errno) -> Self {
        let (why, help) = match errno {
            // An unknown cipher is ENOENT from the crypto layer; without its description, EINVAL.
            Errno::NOENT | Errno::INVAL | Errno::OPNOTSUPP => (
                "the kernel does not know this cipher for TLS 1.3",
                Some("use a newer kernel"),
            ),
            Errno::BUSY => (
                "the kernel cannot replace a key",
                Some("use Linux 6.14 or newer"),
            ),
            Errno::NOMEM => ("out of memory", None),
            _ => ("the kernel did not take the key", None),
        };
        Self {
            step: INSTALL,
            errno,
            why,
            help,
        }
    }
}

/// Attaches kernel TLS to a connected TCP socket; nothing changes on the wire yet. Only once:
/// `EEXIST` after that.
///
/// # Errors
/// `ENOENT` if the module is not loaded; `ENOPROTOOPT` if it is not built; `ENOTCONN` if the peer
/// has reset.
pub fn attach(socket: impl AsFd) -> Result<(), Errno> {
    socket_option::set(socket, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls\0")
}

/// Has the kernel encrypt everything sent from now on. No send may be under way meanwhile, and all
/// records encrypted elsewhere must have been sent.
///
/// A second call replaces the key: first send the `KeyUpdate` by [`send_control`].
///
/// # Errors
/// `EBUSY` for a second key on a kernel that cannot replace it (measured: 6.1 and 6.12); `ENOENT`
/// or `EINVAL` for an unknown cipher; `ENOPROTOOPT` without [`attach`].
///
/// # Panics
/// If the key does not have the length that its cipher requires.
pub fn install(socket: impl AsFd, keys: &TxKeys<'_>) -> Result<(), Errno> {
    let mut blob = CryptoInfo::new(keys);
    let result = socket_option::set(socket, libc::SOL_TLS, libc::TLS_TX, blob.as_bytes());
    blob.wipe();
    result
}

/// The stages of a socket on its way to kernel TLS.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Stage {
    /// Plain TCP.
    #[default]
    Plain,
    /// Attached, without keys: sends as plain TCP does.
    Attached,
    /// The kernel encrypts.
    Encrypting,
}

/// [`attach`] unless already attached, then [`install`].
pub(crate) fn encrypt(
    socket: BorrowedFd<'_>,
    stage: &mut Stage,
    keys: &TxKeys<'_>,
) -> Result<(), Errno> {
    if *stage == Stage::Plain {
        attach(socket)?;
        *stage = Stage::Attached;
    }
    install(socket, keys)?;
    *stage = Stage::Encrypting;
    Ok(())
}

/// Sends a record that is not application data, after everything sent before. True if the socket
/// took it whole; false if the socket is full: try again when there is room.
///
/// # Errors
/// Those of `sendmsg`.
pub fn send_control(
    socket: impl AsFd,
    control: ControlType,
    content: &[u8],
) -> Result<bool, Errno> {
    /// Room and alignment of one control message with one byte.
    #[repr(C, align(8))]
    struct Room([u8; 32]);
    let mut room = Room([0; 32]);
    // SAFETY: CMSG_SPACE only computes.
    let space = unsafe { libc::CMSG_SPACE(1) } as usize;
    assert!(space <= room.0.len(), "room for one byte of ancillary data");
    let mut piece = libc::iovec {
        iov_base: content.as_ptr().cast_mut().cast::<c_void>(),
        iov_len: content.len(),
    };
    // SAFETY: an all-zero msghdr is a valid one.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = room.0.as_mut_ptr().cast();
    // Its type, and that of `cmsg_len`, differs between C libraries.
    message.msg_controllen = space as _;
    // SAFETY: `msg_control` points to `msg_controllen` writable bytes, aligned for a cmsghdr; the
    // first header therefore exists, and its data has room for one byte.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_TLS;
        (*header).cmsg_type = libc::TLS_SET_RECORD_TYPE;
        (*header).cmsg_len = libc::CMSG_LEN(1) as _;
        libc::CMSG_DATA(header).write(control as u8);
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: every pointer in `message` outlives the call; the descriptor is open while borrowed.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, flags) };
    match usize::try_from(sent) {
        Ok(sent) => Ok(sent == content.len()),
        Err(_) => match last_errno() {
            Errno::AGAIN => Ok(false),
            errno => Err(errno),
        },
    }
}

/// Tests kernel TLS on a loopback connection.
///
/// # Errors
/// The connection cannot be set up (no loopback, no descriptors).
pub fn probe() -> io::Result<Support> {
    let mut results = Vec::with_capacity(CIPHERS.len());
    let mut can_update_keys = false;
    for cipher in CIPHERS {
        let pair = Pair::connect()?;
        let result = pair.try_cipher(cipher);
        if result.is_ok() && !can_update_keys {
            can_update_keys = pair.try_update(cipher);
        }
        results.push((cipher, result));
    }
    let ciphers = results.try_into().expect("as many results as ciphers");
    Ok(Support {
        ciphers,
        can_update_keys,
    })
}

/// A connection to ourselves.
struct Pair {
    socket: TcpStream,
    _peer: TcpStream,
}

impl Pair {
    fn connect() -> io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let socket = TcpStream::connect(listener.local_addr()?)?;
        let (peer, _) = listener.accept()?;
        Ok(Self {
            socket,
            _peer: peer,
        })
    }

    fn try_cipher(&self, cipher: Cipher) -> Result<(), KernelTlsUnavailable> {
        attach(&self.socket).map_err(KernelTlsUnavailable::of_attach)?;
        install(&self.socket, &sample_keys(cipher)).map_err(KernelTlsUnavailable::of_install)
    }

    fn try_update(&self, cipher: Cipher) -> bool {
        const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
        let is_sent = send_control(&self.socket, ControlType::Handshake, &KEY_UPDATE);
        is_sent == Ok(true) && install(&self.socket, &sample_keys(cipher)).is_ok()
    }
}

/// Keys that protect nothing.
fn sample_keys(cipher: Cipher) -> TxKeys<'static> {
    TxKeys {
        cipher,
        key: &[7; 32][..key_len(cipher)],
        iv: [7; 12],
        sequence: 0,
    }
}

fn key_len(cipher: Cipher) -> usize {
    match cipher {
        Cipher::Aes128Gcm => 16,
        Cipher::Aes256Gcm | Cipher::ChaCha20Poly1305 => 32,
    }
}

/// `struct tls12_crypto_info_*` (`linux/tls.h`), which serves TLS 1.3 too: version and cipher in
/// native byte order, then vector, key, salt and record sequence as bytes.
struct CryptoInfo {
    bytes: [u8; Self::LEN_MAX],
    len: usize,
}

impl CryptoInfo {
    /// AES-256-GCM: 4 + 8 + 32 + 4 + 8; ChaCha20-Poly1305 has 12 bytes of vector and no salt.
    const LEN_MAX: usize = 56;
    const TLS_1_3: u16 = 0x0304;

    fn new(keys: &TxKeys<'_>) -> Self {
        assert_eq!(
            keys.key.len(),
            key_len(keys.cipher),
            "the key is that of the cipher"
        );
        let (number, salt, vector): (u16, &[u8], &[u8]) = match keys.cipher {
            Cipher::Aes128Gcm => (51, &keys.iv[..4], &keys.iv[4..]),
            Cipher::Aes256Gcm => (52, &keys.iv[..4], &keys.iv[4..]),
            Cipher::ChaCha20Poly1305 => (54, &[], &keys.iv),
        };
        let mut info = Self {
            bytes: [0; Self::LEN_MAX],
            len: 0,
        };
        info.push(&Self::TLS_1_3.to_ne_bytes());
        info.push(&number.to_ne_bytes());
        info.push(vector);
        info.push(keys.key);
        info.push(salt);
        info.push(&keys.sequence.to_be_bytes());
        info
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Leaves no key on the stack, as far as possible.
    fn wipe(&mut self) {
        for byte in &mut self.bytes {
            // SAFETY: a valid pointer to one byte that this function owns; volatile so that it is
            // not optimised out.
            unsafe { std::ptr::from_mut(byte).write_volatile(0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_laid_out_as_the_kernel_reads_them() {
        let sizes = [
            (
                Cipher::Aes128Gcm,
                mem::size_of::<libc::tls12_crypto_info_aes_gcm_128>(),
            ),
            (
                Cipher::Aes256Gcm,
                mem::size_of::<libc::tls12_crypto_info_aes_gcm_256>(),
            ),
            (
                Cipher::ChaCha20Poly1305,
                mem::size_of::<libc::tls12_crypto_info_chacha20_poly1305>(),
            ),
        ];
        for (cipher, size) in sizes {
            assert_eq!(
                CryptoInfo::new(&sample_keys(cipher)).len,
                size,
                "{cipher:?}"
            );
        }
        let keys = TxKeys {
            cipher: Cipher::Aes128Gcm,
            key: &[0x11; 16],
            iv: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
            sequence: 0x0102,
        };
        let info = CryptoInfo::new(&keys);
        let bytes = info.as_bytes();
        assert_eq!(bytes[..2], 0x0304u16.to_ne_bytes());
        assert_eq!(bytes[2..4], 51u16.to_ne_bytes());
        assert_eq!(bytes[4..12], [5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(bytes[12..28], [0x11; 16]);
        assert_eq!(bytes[28..32], [1, 2, 3, 4]);
        assert_eq!(bytes[32..], [0, 0, 0, 0, 0, 0, 1, 2]);
    }

    #[test]
    fn a_probe_has_an_answer_for_every_cipher() {
        let support = probe().expect("loopback");
        match support.unavailable() {
            // Without kernel TLS there is a reason in words, and no key can be replaced.
            Some(why) => {
                assert!(!why.why.is_empty() && !support.can_update_keys);
                println!("no kernel TLS here: {why}");
            }
            None => assert!(support.has(Cipher::Aes128Gcm), "{support:?}"),
        }
    }

    #[test]
    fn a_socket_without_the_module_says_so() {
        let pair = Pair::connect().expect("loopback");
        let errno = install(&pair.socket, &sample_keys(Cipher::Aes128Gcm));
        assert!(errno.is_err(), "not attached");
    }

    #[test]
    fn errors_are_explained() {
        let why = KernelTlsUnavailable::of_attach(Errno::NOENT);
        assert!(why.to_string().contains("'tls' is not loaded"), "{why}");
        assert!(why.help.is_some_and(|help| help.contains("modprobe tls")));
        let why = KernelTlsUnavailable::of_install(Errno::BUSY);
        assert!(why.to_string().contains("cannot replace a key"), "{why}");
    }
}
