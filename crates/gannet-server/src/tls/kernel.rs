//! Whether the kernel encrypts large bodies, and if not, why.

use std::fmt;

use gannet_io::ktls::{self, KernelTlsUnavailable, Support, TxKeys};

use super::record::aead::{Cipher, Secrets};
use crate::bounds::tls::KERNEL_BODY_MIN;

/// The operator's choice (`--ktls`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Choice {
    /// Use kernel TLS if it is available.
    #[default]
    Auto,
    /// Require kernel TLS.
    On,
    /// Never use kernel TLS.
    Off,
}

/// Kernel TLS support for the connections of a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KernelTls {
    support: Result<Support, Off>,
}

/// Why kernel TLS is off.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Off {
    /// The operator disabled it.
    Chosen,
    /// The kernel does not support it.
    Unavailable(KernelTlsUnavailable),
    /// The probe failed.
    Untried(String),
}

impl Off {
    /// How to fix it, if known.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Unavailable(why) => why.help,
            Self::Chosen | Self::Untried(_) => None,
        }
    }
}

impl fmt::Display for Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen => f.write_str("switched off"),
            Self::Unavailable(why) => f.write_str(why.why),
            Self::Untried(why) => write!(f, "it could not be tried out: {why}"),
        }
    }
}

impl KernelTls {
    /// Probes the kernel with a connection to ourselves.
    ///
    /// # Errors
    /// Why kernel TLS is off, if the operator requires it.
    pub fn new(choice: Choice) -> Result<Self, Off> {
        let support = match choice {
            Choice::Off => Err(Off::Chosen),
            Choice::Auto | Choice::On => match ktls::probe() {
                Err(error) => Err(Off::Untried(error.to_string())),
                Ok(support) => match support.unavailable() {
                    Some(why) => Err(Off::Unavailable(why.clone())),
                    None => Ok(support),
                },
            },
        };
        match (choice, support) {
            (Choice::On, Err(why)) => Err(why),
            (_, support) => Ok(Self { support }),
        }
    }

    /// Support for every cipher, for a simulated kernel.
    #[must_use]
    pub fn assumed(can_update_keys: bool) -> Self {
        let ciphers = [
            ktls::Cipher::Aes128Gcm,
            ktls::Cipher::Aes256Gcm,
            ktls::Cipher::ChaCha20Poly1305,
        ];
        Self {
            support: Ok(Support {
                ciphers: ciphers.map(|cipher| (cipher, Ok(()))),
                can_update_keys,
            }),
        }
    }

    /// Whether to hand a connection over now: a body of `body_len` bytes is about to be sent, in
    /// TLS 1.3, with a cipher that the kernel supports.
    #[must_use]
    pub fn wants(&self, cipher: Cipher, body_len: u64) -> bool {
        body_len >= KERNEL_BODY_MIN
            && self
                .support
                .as_ref()
                .is_ok_and(|support| support.has(kernel_cipher(cipher)))
    }

    /// Whether the kernel can continue with another key. If not, a connection that needs one ends
    /// after the response in progress.
    #[must_use]
    pub fn can_update_keys(&self) -> bool {
        self.support
            .as_ref()
            .is_ok_and(|support| support.can_update_keys)
    }

    /// Why it is off; `None` if it is on.
    #[must_use]
    pub fn off(&self) -> Option<&Off> {
        self.support.as_ref().err()
    }
}

/// The keys that the kernel needs to continue encrypting.
#[must_use]
pub fn tx_keys(secrets: &Secrets) -> TxKeys<'_> {
    TxKeys {
        cipher: kernel_cipher(secrets.cipher),
        key: secrets.key(),
        iv: secrets.iv,
        sequence: secrets.sequence,
    }
}

fn kernel_cipher(cipher: Cipher) -> ktls::Cipher {
    match cipher {
        Cipher::Aes128Gcm => ktls::Cipher::Aes128Gcm,
        Cipher::Aes256Gcm => ktls::Cipher::Aes256Gcm,
        Cipher::ChaCha20Poly1305 => ktls::Cipher::ChaCha20Poly1305,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switched_off_is_off() {
        let kernel = KernelTls::new(Choice::Off).expect("not required");
        assert_eq!(
            kernel.off().map(ToString::to_string).as_deref(),
            Some("switched off")
        );
        assert!(!kernel.wants(Cipher::Aes128Gcm, u64::MAX) && !kernel.can_update_keys());
    }

    #[test]
    fn only_large_bodies_are_worth_it() {
        let ciphers = [
            (ktls::Cipher::Aes128Gcm, Ok(())),
            (ktls::Cipher::Aes256Gcm, Ok(())),
            (
                ktls::Cipher::ChaCha20Poly1305,
                Err(KernelTlsUnavailable::of_install(errno())),
            ),
        ];
        let kernel = KernelTls {
            support: Ok(Support {
                ciphers,
                can_update_keys: true,
            }),
        };
        assert!(kernel.wants(Cipher::Aes128Gcm, 64 << 10) && kernel.can_update_keys());
        assert!(!kernel.wants(Cipher::Aes128Gcm, (64 << 10) - 1));
        assert!(
            !kernel.wants(Cipher::ChaCha20Poly1305, 1 << 30),
            "the kernel does not support it"
        );
    }

    fn errno() -> gannet_io::driver::Errno {
        gannet_io::driver::Errno::NOENT
    }

    #[test]
    fn who_insists_is_told_the_truth() {
        match (KernelTls::new(Choice::On), KernelTls::new(Choice::Auto)) {
            (Ok(on), Ok(auto)) => assert_eq!((on.off(), auto.off()), (None, None)),
            (Err(why), Ok(auto)) => assert_eq!(Some(&why), auto.off()),
            (_, Err(why)) => panic!("kernel TLS was not required: {why}"),
        }
    }
}
