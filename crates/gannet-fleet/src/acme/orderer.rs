//! Keeps certificates of hosts: orders what is missing, renews what is due.

use std::path::{Path, PathBuf};
use std::time::Duration;

use instant_acme::{
    Account, AccountCredentials, CertificateIdentifier, Error, ExternalAccountKey, NewAccount,
};
use tokio::runtime::{Builder, Runtime};
use url::{Position, Url};

use super::OrderSettings;
use super::certificate::{self, Held, is_from};
use super::client::{Asked, Bounded};
use super::error::{AcmeError, Refusal};
use super::folder::{self, Folder};
use super::order::order;
use super::schedule::{Orders, back_off, is_late, renewal_of, within};
use crate::limits::{
    ACCOUNT_LEN_MAX, CERTIFICATE_LEN_MAX, CERTIFICATES_PER_WEEK, RENEWAL_LOOK_LEAST,
    RENEWAL_LOOK_MOST,
};

/// Something to tell.
#[derive(Debug)]
pub enum Event<'a> {
    /// There is a new certificate in a file.
    Ordered {
        /// For this host.
        host: &'a str,
        /// The chain and its key.
        file: PathBuf,
        /// Until when it is valid, Unix seconds.
        not_after: i64,
    },
    /// There is none, and it is tried again after this time.
    Failed {
        /// Why.
        error: AcmeError,
        /// When it is tried again.
        again: Duration,
        /// Until when the certificate is valid that should have been renewed, Unix seconds, if less than
        /// a third of its lifetime is left.
        until: Option<i64>,
    },
}

/// What a round has left to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Renewals {
    /// Until the next round.
    pub next: Duration,
    /// Hosts whose last order has failed.
    pub failing: usize,
    /// Hosts whose orders wait for others: there is a bound for each minute.
    pub waiting: usize,
}

/// Orders certificates. While it lives, nobody else uses its folder.
pub struct Orderer {
    runtime: Runtime,
    keeper: Keeper,
}

impl Orderer {
    /// Opens or makes the folder. `is_busy` is called if somebody else uses it, who is waited for.
    ///
    /// # Errors
    /// It is no URL of an ACME server, or the system refuses something.
    pub fn open(
        folder: &Path,
        hosts: &[String],
        settings: OrderSettings,
        is_busy: impl FnOnce(),
    ) -> Result<Self, AcmeError> {
        let refuse = |why: &str| AcmeError::Url(settings.server.clone(), why.to_owned());
        let directory = Url::parse(&settings.server).map_err(|it| refuse(&it.to_string()))?;
        if !matches!(directory.scheme(), "https" | "http") || directory.host().is_none() {
            return Err(refuse("not a URL with https"));
        }
        let asked = Asked::default();
        let client = Bounded::new(&directory, asked.clone())?;
        let folder = Folder::open(folder, is_busy)?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(AcmeError::io("order into", &folder.certificate("*")))?;
        let host = |name: &String| Host {
            name: name.clone(),
            failures: 0,
            due: i64::MIN,
            waits: false,
            issued: Vec::new(),
        };
        Ok(Self {
            runtime,
            keeper: Keeper {
                hosts: hosts.iter().map(host).collect(),
                directory,
                settings,
                client,
                asked,
                folder,
                account: None,
                orders: Orders::default(),
            },
        })
    }

    /// The thumbprint of the account's key (RFC 7638), which is public. Makes the account if there is
    /// none.
    ///
    /// # Errors
    /// There is no account.
    pub fn thumbprint(&mut self) -> Result<String, AcmeError> {
        let account = self.runtime.block_on(self.keeper.account())?;
        Ok(account.key_thumbprint().to_owned())
    }

    /// Does what is due at `now`, Unix seconds, and says what came of it.
    pub fn round(&mut self, now: i64, tell: &mut dyn FnMut(Event<'_>)) -> Renewals {
        self.runtime.block_on(self.keeper.round(now, tell))
    }
}

struct Host {
    name: String,
    /// In a row.
    failures: u32,
    /// When to look again, Unix seconds.
    due: i64,
    /// For other orders.
    waits: bool,
    /// When this process got certificates for it in the last week, Unix seconds.
    issued: Vec<i64>,
}

/// What comes next for a host without failures; see [`Host`].
struct Next {
    due: i64,
    waits: bool,
}

struct Keeper {
    hosts: Vec<Host>,
    directory: Url,
    settings: OrderSettings,
    client: Bounded,
    asked: Asked,
    folder: Folder,
    account: Option<Account>,
    orders: Orders,
}

/// What to do about a host.
enum Due {
    /// Nothing before this time.
    At(i64),
    /// An order, in place of this certificate.
    Now(Option<CertificateIdentifier<'static>>),
}

impl Keeper {
    async fn round(&mut self, now: i64, tell: &mut dyn FnMut(Event<'_>)) -> Renewals {
        for at in 0..self.hosts.len() {
            let (name, due) = (self.hosts[at].name.clone(), self.hosts[at].due);
            if due > now {
                continue;
            }
            let held = self.held(&name);
            let valid = held.as_ref().ok().and_then(|held| held.as_ref());
            let validity = valid.map(|held| (held.not_before, held.not_after));
            let done = match held {
                Ok(held) => self.attend(at, held, now, tell).await,
                Err(error) => Err(error),
            };
            let host = &mut self.hosts[at];
            match done {
                Ok(Next { due, waits }) => {
                    (host.failures, host.due, host.waits) = (0, due, waits);
                }
                Err(error) => {
                    host.failures += 1;
                    let again = back_off(host.failures, self.asked.take());
                    host.due = now + again.as_secs().cast_signed();
                    host.waits = false;
                    let late = validity.filter(|validity| is_late(*validity, now));
                    tell(Event::Failed {
                        error,
                        again,
                        until: late.map(|(_, not_after)| not_after),
                    });
                }
            }
        }
        let next = self.hosts.iter().map(|host| host.due).min();
        let next = next.unwrap_or(i64::MAX).saturating_sub(now).max(1);
        Renewals {
            next: Duration::from_secs(next.unsigned_abs()),
            failing: self.hosts.iter().filter(|host| host.failures > 0).count(),
            waiting: self.hosts.iter().filter(|host| host.waits).count(),
        }
    }

    /// Orders if that is due; returns when to look again.
    async fn attend(
        &mut self,
        at: usize,
        held: Option<Held>,
        now: i64,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Next, AcmeError> {
        let replaced = match self.due(held, now).await {
            Due::At(due) => return Ok(Next { due, waits: false }),
            Due::Now(replaced) => replaced,
        };
        if let Some(wait) = self.orders.wait(now) {
            let due = now + wait.cast_signed();
            return Ok(Next { due, waits: true });
        }
        let challenge = self.settings.challenge;
        let host = self.hosts[at].name.clone();
        let host = host.as_str();
        let fail = |cause| AcmeError::Order {
            host: host.to_owned(),
            cause,
            challenge,
        };
        let earlier = &mut self.hosts[at].issued;
        earlier.retain(|it| (now - WEEK_S..=now).contains(it));
        if earlier.len() >= CERTIFICATES_PER_WEEK {
            return Err(fail(Refusal::new(
                "each new certificate is due for renewal at once: is the clock of this machine right?",
            )));
        }
        let account = self.account().await?;
        let context = (&self.settings, &self.folder);
        let issued = order(&account, host, replaced, context).await;
        let issued = issued.map_err(fail)?;
        self.hosts[at].issued.push(now);
        let file = self.folder.certificate(host);
        let text = certificate::file(self.directory.as_str(), &issued.chain, &issued.key);
        folder::replace(&file, text.as_bytes())?;
        let Held {
            not_before,
            not_after,
            ..
        } = issued.held;
        tell(Event::Ordered {
            host,
            file,
            not_after,
        });
        // Ordering again would not help.
        match (not_before - CLOCK_TOLERANCE..not_after).contains(&now) {
            true => Ok(Next {
                due: now + RENEWAL_LOOK_LEAST.as_secs().cast_signed(),
                waits: false,
            }),
            false => Err(fail(Refusal::new(
                "the new certificate is not valid now: is the clock of this machine right?",
            ))),
        }
    }

    /// The certificate of a host, if it is one from this server.
    fn held(&self, host: &str) -> Result<Option<Held>, AcmeError> {
        let path = self.folder.certificate(host);
        let Some(file) = folder::read(&path, CERTIFICATE_LEN_MAX)? else {
            return Ok(None);
        };
        let held = Held::parse(&file).ok();
        let is_ours = is_from(self.directory.as_str(), &file);
        Ok(held.filter(|held| is_ours && held.is_for(host)))
    }

    async fn due(&mut self, held: Option<Held>, now: i64) -> Due {
        let Some(held) = held else {
            return Due::Now(None);
        };
        let validity = (held.not_before, held.not_after);
        if held.not_after <= now {
            return Due::Now(None);
        }
        let own = renewal_of(validity);
        let asked = match &held.id {
            Some(id) => self.asked_renewal(id).await,
            None => None,
        };
        let (at, look) = match asked {
            Some((at, look)) => (at, now + look),
            // It may be there the next time.
            None => (own, now + RENEWAL_LOOK_MOST.as_secs().cast_signed() / 4),
        };
        match at <= now {
            true => Due::Now(held.id),
            false => Due::At(at.min(look)),
        }
    }

    /// When the server wants a certificate renewed, and after how many seconds to ask again; `None` if it
    /// does not say, which is no failure of a renewal.
    async fn asked_renewal(&mut self, id: &CertificateIdentifier<'static>) -> Option<(i64, i64)> {
        let account = self.account().await.ok()?;
        let asked = account.renewal_info(id).await;
        // How long to wait with this is said elsewhere.
        self.asked.take();
        let (info, again) = asked.ok()?;
        let window = info.suggested_window;
        let (start, end) = (window.start.unix_timestamp(), window.end.unix_timestamp());
        let again = again.clamp(RENEWAL_LOOK_LEAST, RENEWAL_LOOK_MOST);
        // A point that was chosen before would be forgotten by a restart anyway: within a window that has
        // begun, each look renews with the part of it that has passed.
        let at = within(start, end);
        Some((at, again.as_secs().cast_signed()))
    }

    async fn account(&mut self) -> Result<Account, AcmeError> {
        if let Some(account) = &self.account {
            return Ok(account.clone());
        }
        let server = &self.directory[Position::BeforeHost..Position::AfterPort];
        let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '-');
        let server = server.replace(|it| !is_plain(it), "_");
        let path = self.folder.account(&server);
        let fail = |error: Error| AcmeError::Account {
            server: self.directory.to_string(),
            cause: error.into(),
        };
        let damaged =
            |error: serde_json::Error| AcmeError::Damaged(path.clone(), error.to_string());
        let builder = Account::builder_with_http(Box::new(self.client.clone()));
        let account = match folder::read(&path, ACCOUNT_LEN_MAX)? {
            Some(text) => {
                let credentials: AccountCredentials =
                    serde_json::from_slice(&text).map_err(damaged)?;
                builder.from_credentials(credentials).await.map_err(fail)?
            }
            None => {
                let contact = self.settings.email.iter();
                let contact: Vec<String> = contact.map(|it| format!("mailto:{it}")).collect();
                let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
                let wanted = NewAccount {
                    contact: &contact,
                    terms_of_service_agreed: true,
                    only_return_existing: false,
                };
                let binding = self.settings.binding.as_ref();
                let binding = binding.map(|it| ExternalAccountKey::new(it.key_id.clone(), &it.key));
                let directory = self.directory.to_string();
                let made = builder.create(&wanted, directory, binding.as_ref()).await;
                let (account, credentials) = made.map_err(fail)?;
                let text = serde_json::to_vec(&credentials).map_err(damaged)?;
                folder::replace(&path, &text)?;
                account
            }
        };
        Ok(self.account.insert(account).clone())
    }
}

const WEEK_S: i64 = 7 * 86_400;

/// Seconds by which a clock may be behind: servers let certificates begin an hour early.
const CLOCK_TOLERANCE: i64 = 3600;
