//! Certificates from an ACME server (RFC 8555), ordered and renewed.
//!
//! An [`Orderer`] has an account, whose key stays in its folder, and one certificate for each host. Each
//! round orders what is missing, and renews what is due: when the server's renewal information (RFC
//! 9773) says so, else after two thirds of the lifetime. It proves control of a name by HTTP-01, which
//! any server answers that knows the account's thumbprint, or by TLS-ALPN-01, for which it puts a
//! certificate where a server on this machine reads it.
//!
//! ```text
//! DIR/lock                        held while an orderer lives, with the number of its process
//! DIR/account-SERVER.json         the account at a server, with its key
//! DIR/account-SERVER.json.lost    the one before, which the server does not know any more
//! DIR/account-SERVER.json.draft   the same, until there is another one with its key
//! DIR/history-SERVER              failures, and orders of the last week
//! DIR/certificates/HOST.pem       the chain and its key, in one file: they are replaced together
//! DIR/certificates/.HOST.order    the key and the order, until there is a certificate
//! DIR/challenges/NAME.pem         a certificate for a challenge, while it lasts
//! ```
//!
//! `SERVER` is the host of the server's directory and a digest of its URL. Nothing is requested of a server
//! before what comes of it can be kept: a key is on the disk before its certificate is ordered, with room
//! for that, and so is the attempt, which counts as failed until it has succeeded. An orderer
//! that is killed in between continues the same order after its restart.
//!
//! All files have the mode 0600, and are replaced as a whole. The ACME server is trusted with nothing
//! but what it certifies: whatever it sends costs at most the bounds in [`limits`](crate::limits).

mod account;
mod certificate;
mod client;
mod draft;
mod error;
mod folder;
mod history;
mod on_demand;
mod order;
mod orderer;
mod schedule;
mod server;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64_URL;

use crate::limits::ORDER_TIMEOUT_SHARED;

pub use error::AcmeError;
pub use folder::{CERTIFICATES, CHALLENGES};
pub use orderer::{Event, Orderer, Renewals};
pub use server::check_server;

/// Let's Encrypt.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Its server for tests: high limits, and certificates that no client trusts.
pub const STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// How control of a name is proved.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Challenge {
    /// HTTP-01 (RFC 8555 section 8.3), at port 80.
    #[default]
    Http,
    /// TLS-ALPN-01 (RFC 8737), at port 443.
    Tls,
}

/// What binds an account to one that exists elsewhere (RFC 8555 section 7.3.4).
#[derive(Clone)]
pub struct Binding {
    /// The identifier of its key.
    key_id: String,
    key: Vec<u8>,
}

impl Binding {
    /// The key is in base64url, as servers show it; `None` if it is not.
    #[must_use]
    pub fn new(key_id: String, key: &str) -> Option<Self> {
        let key = key
            .trim_end_matches('=')
            .replace('+', "-")
            .replace('/', "_");
        let key = BASE64_URL.decode(key).ok()?;
        (!key.is_empty()).then_some(Self { key_id, key })
    }
}

/// What to order, from whom.
#[derive(Clone)]
pub struct OrderSettings {
    /// The URL of the server's directory.
    pub server: String,
    /// Where the server may send messages.
    pub email: Option<String>,
    /// The name of a profile that the server offers.
    pub profile: Option<String>,
    /// For servers that ask for it.
    pub binding: Option<Binding>,
    /// How control of names is proved.
    pub challenge: Challenge,
    /// How long an order may take while other hosts wait; it is gone on with after a pause.
    pub patience: Duration,
}

impl Default for OrderSettings {
    fn default() -> Self {
        Self {
            server: LETS_ENCRYPT.to_owned(),
            email: None,
            profile: None,
            binding: None,
            challenge: Challenge::default(),
            patience: ORDER_TIMEOUT_SHARED,
        }
    }
}
