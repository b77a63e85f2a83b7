//! The account at a server: made once, found again in its file, and replaced if the server has lost it.
//!
//! ```text
//! (no file) --newAccount--> file --loaded--> in use --"unknown", "deactivated"--> put aside
//!     ^                                                                               |
//!     +---------- a draft with the same key, if the server let an account have it ----+
//! ```
//!
//! Servers answer challenges for one key. If it can stay, it stays on the disk from the moment at which the
//! account is put aside until there is a new one, however often that fails in between; if it cannot, the
//! new one is reported.

use std::fs;
use std::path::{Path, PathBuf};

use instant_acme::{Account, AccountBuilder, AccountCredentials, Error, ExternalAccountKey, Key};
use instant_acme::{NewAccount, Problem};
use serde_json::{Value, json};
use url::Url;

use super::client::{AcmeHttp, RequestedPause};
use super::error::{AcmeError, AcmeRefusal, is_of_nonce};
use super::folder::{self, Folder, Room};
use super::history::{ACCOUNT, History};
use super::{Binding, OrderSettings, server};
use crate::limits::{ACCOUNT_LEN_MAX, NONCE_ATTEMPTS};

/// See the module documentation.
pub(super) struct Accounts {
    directory: Url,
    contact: Vec<String>,
    binding: Option<Binding>,
    client: AcmeHttp,
    pause: RequestedPause,
    path: PathBuf,
    current: Option<Account>,
    /// What belongs into the file, but could not be written.
    unwritten: Option<Vec<u8>>,
    /// When this process may ask again, Unix seconds.
    due: Option<i64>,
    /// Why it has to wait, if it was this process that failed.
    refusal: Option<AcmeRefusal>,
    /// What to report that is no reason not to order.
    pub(super) warnings: Vec<AcmeError>,
    /// Where an account was put that is to be replaced, until that is reported.
    aside: Option<PathBuf>,
    /// The thumbprint that was reported last.
    reported: Option<String>,
}

/// What is new of an account, and was not reported yet.
#[derive(Default)]
pub(super) struct News {
    /// It took the place of the one that is kept here.
    pub(super) aside: Option<PathBuf>,
    /// It has a key with another thumbprint than the last one that was reported.
    pub(super) thumbprint: Option<String>,
}

impl Accounts {
    /// The account of these settings. A file under its former name gets the present one.
    pub(super) fn new(
        (directory, settings): (&Url, &OrderSettings),
        (client, pause): (AcmeHttp, RequestedPause),
        folder: &Folder,
    ) -> Result<Self, AcmeError> {
        let path = folder.account(&server::file_name(directory));
        let former = folder.account(&server::former_file_name(directory));
        if !path.exists()
            && let Some(text) = folder::read(&former, ACCOUNT_LEN_MAX)?
            && serde_json::from_slice::<Value>(&text)
                .is_ok_and(|it| it["directory"] == directory.as_str())
        {
            fs::rename(&former, &path).map_err(AcmeError::io("rename", &former))?;
        }
        let email = settings.email.iter();
        Ok(Self {
            directory: directory.clone(),
            contact: email.map(|it| format!("mailto:{it}")).collect(),
            binding: settings.binding.clone(),
            client,
            pause,
            path,
            current: None,
            unwritten: None,
            due: None,
            refusal: None,
            warnings: Vec::new(),
            aside: None,
            reported: None,
        })
    }

    /// What to report of the account, once.
    pub(super) fn news(&mut self) -> News {
        let Some(account) = &self.current else {
            return News::default();
        };
        let thumbprint = Some(account.key_thumbprint().to_owned());
        let is_new = thumbprint != self.reported;
        self.reported.clone_from(&thumbprint);
        News {
            aside: self.aside.take(),
            thumbprint: thumbprint.filter(|_| is_new),
        }
    }

    /// The operator has this thumbprint.
    pub(super) fn reported(&mut self, thumbprint: &str) {
        self.reported = Some(thumbprint.to_owned());
    }

    /// When it is requested again after a failure, Unix seconds.
    pub(super) fn due(&self, now: i64) -> i64 {
        self.due.unwrap_or(now)
    }

    /// The account. It is loaded, or made.
    ///
    /// # Errors
    /// There is none.
    pub(super) async fn get(
        &mut self,
        history: &mut History,
        now: i64,
    ) -> Result<Account, AcmeError> {
        if let Some(account) = self.current.clone() {
            self.keep();
            return Ok(account);
        }
        let due = *self
            .due
            .get_or_insert_with(|| history.first_due(ACCOUNT, now));
        if now < due {
            if let Some(cause) = self.refusal.clone() {
                return Err(self.refused(cause));
            }
            return Err(AcmeError::Waits {
                host: None,
                server: self.directory.to_string(),
                failures: history.failures(ACCOUNT),
                until: due,
                history: history.path().to_owned(),
            });
        }
        let got = match folder::read(&self.path, ACCOUNT_LEN_MAX)? {
            Some(text) => self.load(&text).await,
            None => match self.drafted()? {
                None => self.make(None, history, now).await,
                Some(known) => {
                    self.aside = Some(self.lost());
                    self.make(Some(&known), history, now).await
                }
            },
        };
        self.outcome(&got, history, now);
        self.current = got.as_ref().ok().cloned();
        got
    }

    /// Remembers what came of asking for an account.
    fn outcome<T>(&mut self, got: &Result<T, AcmeError>, history: &mut History, now: i64) {
        match got {
            Ok(_) => {
                (self.due, self.refusal) = (None, None);
                self.warnings.extend(history.succeeded(ACCOUNT, now).err());
            }
            Err(AcmeError::Account { cause, .. }) => {
                self.refusal = Some(cause.clone());
                let (wait, kept) = history.failed(ACCOUNT, now, self.pause.take());
                self.due = Some(now + wait.as_secs().cast_signed());
                self.warnings.extend(kept.err());
            }
            Err(_) => {}
        }
    }

    /// The account whose key the next one is to have. A binding takes a key of its own.
    fn drafted(&self) -> Result<Option<OnDisk>, AcmeError> {
        if self.binding.is_some() {
            return Ok(None);
        }
        let path = self.draft();
        let text = folder::read(&path, ACCOUNT_LEN_MAX)?;
        text.map(|text| parse(&path, &text)).transpose()
    }

    fn draft(&self) -> PathBuf {
        self.path.with_extension("json.draft")
    }

    /// Where an account is kept that the server does not know any more.
    fn lost(&self) -> PathBuf {
        self.path.with_extension("json.lost")
    }

    async fn load(&mut self, text: &[u8]) -> Result<Account, AcmeError> {
        let OnDisk {
            credentials,
            mut file,
        } = parse(&self.path, text)?;
        self.remove_draft();
        let account = self.builder().from_credentials(credentials).await;
        let account = account.map_err(|error| self.refuse(error))?;
        if let (Some(binding), Some(bound)) = (&self.binding, file.get("binding"))
            && *bound != binding.key_id.as_str()
        {
            self.warnings.push(AcmeError::Bound {
                server: self.directory.to_string(),
                key_id: binding.key_id.clone(),
                path: self.path.clone(),
            });
        }
        if !self.contact.is_empty() && file.get("contact") != Some(&json!(self.contact)) {
            self.update_contact(&account, &mut file).await;
            // As it was, if the server has refused: the next start tells it again.
            self.unwritten = Some(file.to_string().into_bytes());
            self.keep();
        }
        Ok(account)
    }

    /// Makes an account, with a known key or a new one. That it can be kept is made sure of first.
    async fn make(
        &mut self,
        known: Option<&OnDisk>,
        history: &mut History,
        now: i64,
    ) -> Result<Account, AcmeError> {
        let room = Room::new(&self.path, ACCOUNT_LEN_MAX)?;
        history.begin(ACCOUNT, now)?;
        let mut made = self.create(known).await;
        for _ in 1..NONCE_ATTEMPTS {
            if made.as_ref().is_err_and(is_of_nonce) {
                made = self.create(known).await;
            }
        }
        let (account, credentials) = made.map_err(|error| self.refuse(error))?;
        let mut file = damaged(&self.path, serde_json::to_value(&credentials))?;
        file["binding"] = json!(self.binding.as_ref().map(|it| &it.key_id));
        match known {
            Some(_) if self.contact.is_empty() => {}
            Some(_) => self.update_contact(&account, &mut file).await,
            None => file["contact"] = json!(self.contact),
        }
        let text = file.to_string().into_bytes();
        // The account is there, and another one would not be easier to keep.
        match room.fill(&text) {
            Ok(()) => self.remove_draft(),
            Err(error) => {
                self.warnings.push(error);
                self.unwritten = Some(text);
            }
        }
        Ok(account)
    }

    /// Asks the server for an account.
    async fn create(&self, known: Option<&OnDisk>) -> Result<(Account, AccountCredentials), Error> {
        let directory = self.directory.to_string();
        match known {
            Some(known) => {
                let key = known.credentials.private_key().clone_key();
                let own = Key::from_pkcs8_der(key.clone_key())?;
                let builder = self.builder();
                builder.create_from_key((own, key.into()), directory).await
            }
            None => {
                let contact: Vec<&str> = self.contact.iter().map(String::as_str).collect();
                let wanted = NewAccount {
                    contact: &contact,
                    terms_of_service_agreed: true,
                    only_return_existing: false,
                };
                let binding = self.binding.as_ref();
                let binding = binding.map(|it| ExternalAccountKey::new(it.key_id.clone(), &it.key));
                let builder = self.builder();
                builder.create(&wanted, directory, binding.as_ref()).await
            }
        }
    }

    /// Tells the server the address.
    async fn update_contact(&mut self, account: &Account, file: &mut Value) {
        let contact: Vec<&str> = self.contact.iter().map(String::as_str).collect();
        match account.update_contacts(&contact).await {
            Ok(()) => file["contact"] = json!(self.contact),
            // An order is refused with the same, and that is seen to.
            Err(Error::Api(problem)) if loss(&problem).is_some() => {}
            Err(error) => self.warnings.push(AcmeError::Contact {
                server: self.directory.to_string(),
                cause: error.into(),
            }),
        }
        self.pause.take();
    }

    /// Writes what could not be written.
    fn keep(&mut self) {
        let Some(text) = &self.unwritten else { return };
        match folder::replace(&self.path, text) {
            Ok(()) => {
                self.unwritten = None;
                self.remove_draft();
            }
            Err(error) => self.warnings.push(error),
        }
    }

    /// The account is in its file.
    fn remove_draft(&self) {
        // If it stays, the next start removes it.
        let _ = fs::remove_file(self.draft());
    }

    /// The server has refused an order as if it did not know the account: makes a new one if that is so.
    /// `None` if the account is as it was.
    ///
    /// # Errors
    /// There is no account now. The next one that is asked for has the same key, if that can be.
    pub(super) async fn replace(
        &mut self,
        history: &mut History,
        now: i64,
    ) -> Result<Option<Account>, AcmeError> {
        let replaced = self.try_replace(history, now).await;
        self.outcome(&replaced, history, now);
        replaced
    }

    async fn try_replace(
        &mut self,
        history: &mut History,
        now: i64,
    ) -> Result<Option<Account>, AcmeError> {
        let Some(text) = folder::read(&self.path, ACCOUNT_LEN_MAX)? else {
            return Ok(None);
        };
        let kept = parse(&self.path, &text)?;
        let key = kept.credentials.private_key().clone_key();
        let own = Key::from_pkcs8_der(key.clone_key()).map_err(|it| self.refuse(it))?;
        let directory = self.directory.to_string();
        let builder = self.builder();
        let loss = match builder.from_key((own, key.into()), directory).await {
            Ok((account, _)) if self.is_current(&account) => return Ok(None),
            // It has another URL now, which a new request for it brings.
            Ok(_) => Loss::Unknown,
            Err(Error::Api(problem)) => match loss(&problem) {
                Some(loss) => loss,
                None => return Err(self.refuse(Error::Api(problem))),
            },
            Err(error) => return Err(self.refuse(error)),
        };
        if history.is_replaced(now) {
            return Err(AcmeError::Gone {
                server: self.directory.to_string(),
                history: history.path().to_owned(),
            });
        }
        // With the same key, servers need no other thumbprint. A binding takes a new
        // request, and the key of an account that was closed stays closed.
        let is_same = loss == Loss::Unknown && self.binding.is_none();
        match is_same {
            true => folder::replace(&self.draft(), &text)?,
            false => self.remove_draft(),
        }
        history.issued(ACCOUNT, now)?;
        let aside = self.lost();
        fs::rename(&self.path, &aside).map_err(AcmeError::io("rename", &self.path))?;
        (self.current, self.aside) = (None, Some(aside));
        let known = is_same.then_some(&kept);
        let account = self.make(known, history, now).await?;
        self.current = Some(account.clone());
        Ok(Some(account))
    }

    fn is_current(&self, account: &Account) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| current.id() == account.id())
    }

    fn builder(&self) -> AccountBuilder {
        Account::builder_with_http(Box::new(self.client.clone()))
    }

    fn refuse(&self, error: Error) -> AcmeError {
        self.refused(AcmeRefusal::from(error))
    }

    fn refused(&self, cause: AcmeRefusal) -> AcmeError {
        let draft = Some(self.draft());
        AcmeError::Account {
            server: self.directory.to_string(),
            cause,
            draft: draft.filter(|draft| self.binding.is_none() && draft.exists()),
        }
    }
}

/// The content of the file.
struct OnDisk {
    credentials: AccountCredentials,
    /// The same, with `contact`, the addresses that the server has, and `binding`, the identifier of the
    /// key to which the account was bound. Files of earlier versions have neither.
    file: Value,
}

fn parse(path: &Path, text: &[u8]) -> Result<OnDisk, AcmeError> {
    let file: Value = damaged(path, serde_json::from_slice(text))?;
    Ok(OnDisk {
        credentials: damaged(path, serde_json::from_value(file.clone()))?,
        file,
    })
}

fn damaged<T>(path: &Path, read: Result<T, serde_json::Error>) -> Result<T, AcmeError> {
    read.map_err(|error| AcmeError::Damaged(path.to_owned(), error.to_string()))
}

/// What has happened to an account.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Loss {
    /// The server does not know its key.
    Unknown,
    /// It was closed: its key is of no use any more (RFC 8555 section 7.3.6).
    Closed,
}

/// What a server says of an account that it does not let order (RFC 8555 section 6.7).
pub(super) fn is_lost(problem: &Problem) -> bool {
    loss(problem).is_some()
}

fn loss(problem: &Problem) -> Option<Loss> {
    match AcmeRefusal::of_problem(problem).kind.as_deref() {
        Some("accountDoesNotExist") => Some(Loss::Unknown),
        Some("unauthorized") => Some(Loss::Closed),
        _ => None,
    }
}
