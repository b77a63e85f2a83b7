//! A store behind a URL: objects of an object store, or files of a web server.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::StreamExt;
use gannet_store::ReleaseId;
use gannet_store::limits::POINTER_LEN_MAX;
use http::header::AUTHORIZATION;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    ClientOptions, GetOptions, HeaderValue, ObjectStore, ObjectStoreScheme, RetryConfig,
    UpdateVersion,
};
use percent_encoding::percent_decode_str;
use tokio::time::{sleep, timeout};
use url::{Position, Url};

use crate::bounded::{Bounded, Condition, streamed};
use crate::error::{Cause, FleetError};
use crate::limits::{ATTEMPTS_MAX, BODY_LEAST};
use crate::pace::{Body, Meter, Patience};
use crate::trust::{has_authorities, trusting_mozillas};

/// A store behind a URL.
pub struct Remote {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// How releases are written in parts; `None` for a store that is only read.
    pub(crate) parts: Option<Arc<dyn MultipartStore>>,
    /// Its folder there.
    pub(crate) folder: Path,
    /// Its URL without what is secret.
    shown: String,
    /// Whose it is there, where a URL does not say that.
    service: String,
    pub(crate) patience: Patience,
}

/// The text of a pointer.
pub(crate) struct Text {
    pub(crate) text: Vec<u8>,
    /// Of this state of it; `None` if the server names none.
    pub(crate) entity_tag: Option<String>,
    /// The same by the object store's own count.
    version: Option<String>,
}

impl Text {
    /// What the text may be replaced under.
    pub(crate) fn version(&self) -> UpdateVersion {
        UpdateVersion {
            e_tag: self.entity_tag.clone(),
            version: self.version.clone(),
        }
    }
}

/// Takes pieces of a release's file, each with its place there.
pub(crate) type Pass<'p> = &'p mut dyn FnMut(u64, &[u8]) -> Result<(), FleetError>;

impl Remote {
    /// A store at `https://HOST/PATH`, `http://...`, `s3://BUCKET/PATH`, `gs://...`, `az://...` or
    /// `file:///PATH`. Nothing is sent yet. Credentials are those of the environment, by the names
    /// that the providers' own tools use, or of the machine.
    ///
    /// # Errors
    /// It is no such URL, settings in the environment contradict each other, or they name authorities
    /// that are not there.
    pub fn open(url: &str, patience: Patience) -> Result<Self, FleetError> {
        let refuse = |shown: &str, why: String| FleetError::Url {
            url: shown.to_owned(),
            why,
        };
        // An error of parsing does not repeat what it could not read, and neither does this.
        let mut parsed = Url::parse(url).map_err(|error| refuse("URL", error.to_string()))?;
        let login = login(&parsed);
        // Neither messages nor libraries get to see it. A URL without a host has none.
        let _ = (parsed.set_username(""), parsed.set_password(None));
        let shown = parsed[..Position::AfterPath]
            .trim_end_matches('/')
            .to_owned();
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(refuse(&shown, "it has a query or a fragment".into()));
        }
        let is_web = matches!(parsed.scheme(), "http" | "https");
        if login.is_some() && !is_web {
            return Err(refuse(&shown, "it has a name or a password".into()));
        }
        let found = match is_web {
            // Also one whose host is that of a provider: then its own scheme asks for credentials.
            true => Path::from_url_path(parsed.path())
                .map(|folder| (ObjectStoreScheme::Http, folder))
                .map_err(drop),
            false => ObjectStoreScheme::parse(&parsed).map_err(drop),
        };
        let (scheme, folder) = found.map_err(|()| refuse(&shown, "not a URL of a store".into()))?;
        let made = |trusted| clients(&scheme, &parsed, (trusted, login.clone()), patience);
        let clients = match made(&ClientOptions::new()) {
            // Perhaps for want of authorities. They are looked for once, and for a folder not at all.
            Err(_) if !has_authorities().map_err(FleetError::Trust)? => made(&trusting_mozillas()),
            made => made,
        };
        let clients = clients.map_err(|why| refuse(&shown, why))?;
        let clients = clients.ok_or_else(|| refuse(&shown, "not a URL of a store".into()))?;
        Ok(Self {
            objects: clients.objects,
            parts: clients.parts,
            folder,
            shown,
            service: clients.service,
            patience,
        })
    }

    /// A store of objects in memory.
    #[cfg(test)]
    pub(crate) fn of(objects: Arc<dyn ObjectStore>, patience: Patience) -> Self {
        Self {
            objects,
            parts: None,
            folder: Path::from("site"),
            shown: "memory:///site".into(),
            service: String::new(),
            patience,
        }
    }

    /// Its URL, without a password.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.shown
    }

    /// What no other store has: its URL, and the service or the account that the environment names.
    #[must_use]
    pub fn identity(&self) -> String {
        format!("{}\n{}", self.shown, self.service)
    }

    /// What tells a service or an account from others that may have a bucket of the same name: `default`
    /// for the provider's own, else 16 hexadecimal digits. `None` for a store whose URL says it all.
    #[must_use]
    pub fn service(&self) -> Option<String> {
        self.parts.as_ref().map(|_| match self.service.as_str() {
            "" => "default".to_owned(),
            service => blake3::hash(service.as_bytes()).to_hex()[..16].to_owned(),
        })
    }

    /// What an error calls the pointer in force.
    pub(crate) fn pointer_name(&self) -> PathBuf {
        PathBuf::from(self.name(CURRENT))
    }

    pub(crate) fn name(&self, object: &str) -> String {
        format!("{}/{object}", self.shown)
    }

    pub(crate) fn refuse(&self, object: &str, cause: Cause) -> FleetError {
        FleetError::Remote {
            doing: "read",
            object: self.name(object),
            cause,
        }
    }

    pub(crate) fn refuse_release(&self, id: ReleaseId, cause: Cause) -> FleetError {
        self.refuse(&release_name(id), cause)
    }

    pub(crate) fn at(&self, object: &str) -> Path {
        let parts = object.split('/');
        parts.fold(self.folder.clone(), |path, part| path.join(part))
    }

    /// The pointer in force, which is asked for in several attempts if need be and `is_only`; `None` if it has
    /// this entity tag still.
    pub(crate) async fn pointer(
        &self,
        known: Option<&str>,
        is_only: bool,
    ) -> Result<Option<Text>, FleetError> {
        let attempt = async || self.text(CURRENT, known).await;
        let patience = self.patience;
        let read = match is_only {
            true => patience.attempts(attempt).await,
            false => attempt().await,
        };
        match read {
            Ok(text) => Ok(Some(text)),
            Err(Cause::Objects(object_store::Error::NotModified { .. })) if known.is_some() => {
                Ok(None)
            }
            Err(cause) => Err(self.refuse(CURRENT, cause)),
        }
    }

    /// The entry of the log with this serial, which is asked for in several attempts if need be and
    /// `is_only`, and what errors call it; `None` if there is none.
    pub(crate) async fn logged(
        &self,
        serial: u64,
        is_only: bool,
    ) -> Result<Option<(PathBuf, Vec<u8>)>, FleetError> {
        let object = format!("{LOG}/{serial}");
        let read = match is_only {
            true => self.text_in_attempts(&object).await,
            false => self.text(&object, None).await,
        };
        match read {
            Ok(text) => Ok(Some((PathBuf::from(self.name(&object)), text.text))),
            Err(cause) if cause.is_absence() => Ok(None),
            Err(cause) => Err(self.refuse(&object, cause)),
        }
    }

    /// An entry of the log that was listed, unless it has been removed since.
    pub(crate) async fn listed_entry(&self, serial: u64) -> Result<Option<Vec<u8>>, FleetError> {
        let object = format!("{LOG}/{serial}");
        match self.text_in_attempts(&object).await {
            Ok(text) => Ok(Some(text.text)),
            Err(cause) if cause.is_none() => Ok(None),
            Err(cause) => Err(self.refuse(&object, cause)),
        }
    }

    /// A text, in several attempts if need be.
    pub(crate) async fn text_in_attempts(&self, object: &str) -> Result<Text, Cause> {
        let patience = self.patience;
        patience
            .attempts(async || self.text(object, None).await)
            .await
    }

    pub(crate) async fn text(&self, object: &str, known: Option<&str>) -> Result<Text, Cause> {
        let read = async {
            let options = GetOptions::new().with_extensions(streamed());
            let options = options.with_if_none_match(known);
            let answer = self.objects.get_opts(&self.at(object), options).await;
            let answer = answer.map_err(Cause::Objects)?;
            let entity_tag = answer.meta.e_tag.clone();
            let version = answer.meta.version.clone();
            let mut text = Vec::new();
            let mut pieces = answer.into_stream();
            while let Some(piece) = pieces.next().await {
                let piece = piece.map_err(Cause::Objects)?;
                if text.len() + piece.len() > POINTER_LEN_MAX {
                    return Err(Cause::Long);
                }
                text.extend_from_slice(&piece);
            }
            Ok(Text {
                text,
                entity_tag,
                version,
            })
        };
        let read = timeout(self.patience.answer, read).await;
        read.unwrap_or(Err(Cause::NoAnswer))
    }

    /// Reads a range of the file of a release, which has `size` bytes, and passes it on in pieces, each
    /// with its place in the file. A body that breaks off is continued from there.
    pub(crate) async fn range(
        &self,
        (id, size): (ReleaseId, u64),
        range: Range<u64>,
        meter: &mut Meter,
        pass: Pass<'_>,
    ) -> Result<(), FleetError> {
        let object = release_name(id);
        let mut at = range.start;
        let mut attempts = 1;
        while at < range.end {
            let before = at;
            let attempt = self.attempt((&object, size), &mut at, range.end, meter, pass);
            let ended = attempt.await;
            if at - before >= BODY_LEAST {
                attempts = 1;
            }
            match ended {
                Ok(()) => {}
                Err(Stop::Passing(error)) => return Err(error),
                Err(Stop::Reading(cause)) if cause.is_passing() && attempts < ATTEMPTS_MAX => {
                    sleep(self.patience.pause * attempts).await;
                    attempts += 1;
                }
                Err(Stop::Reading(cause)) => return Err(self.refuse(&object, cause)),
            }
        }
        Ok(())
    }

    /// Reads from `at` on to `end`; `at` is then where it stopped.
    async fn attempt(
        &self,
        (object, size): (&str, u64),
        at: &mut u64,
        end: u64,
        meter: &mut Meter,
        pass: Pass<'_>,
    ) -> Result<(), Stop> {
        let path = self.at(object);
        let options = GetOptions::new().with_extensions(streamed());
        let options = options.with_range(Some(*at..end));
        let answer = timeout(self.patience.answer, self.objects.get_opts(&path, options))
            .await
            .map_err(|_| Cause::NoAnswer)?
            .map_err(Cause::Objects)?;
        let found = answer.meta.size;
        if found != size {
            let expected = size;
            return Err(Cause::OtherLen { found, expected }.into());
        }
        let mut body = Body::new(answer.into_stream(), end - *at, self.patience);
        while let Some(piece) = body.next(meter).await? {
            pass(*at, &piece).map_err(Stop::Passing)?;
            *at += piece.len() as u64;
        }
        Ok(())
    }
}

/// Why a range was not read to its end.
enum Stop {
    /// The store's fault.
    Reading(Cause),
    /// What was read could not be passed on.
    Passing(FleetError),
}

impl From<Cause> for Stop {
    fn from(cause: Cause) -> Self {
        Self::Reading(cause)
    }
}

/// The library's clients for a store.
struct Clients {
    objects: Arc<dyn ObjectStore>,
    parts: Option<Arc<dyn MultipartStore>>,
    service: String,
}

impl Clients {
    fn of(client: impl ObjectStore + MultipartStore, service: String) -> Self {
        let client = Arc::new(client);
        Self {
            objects: Arc::clone(&client) as _,
            parts: Some(client),
            service,
        }
    }

    fn read_only(client: impl ObjectStore) -> Self {
        Self {
            objects: Arc::new(client),
            parts: None,
            service: String::new(),
        }
    }
}

/// The library's clients for a kind of store; `None` for one that holds nothing.
fn clients(
    scheme: &ObjectStoreScheme,
    url: &Url,
    (trusted, login): (&ClientOptions, Option<HeaderValue>),
    patience: Patience,
) -> Result<Option<Clients>, String> {
    // Attempts are ours: the library's take minutes, and say nothing.
    let retry = RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    };
    let options = |is_clear: bool| options(trusted, is_clear, patience);
    let why = |error| Cause::Objects(error).to_string();
    let service = |named: &[Option<String>]| {
        let named = named.iter().flatten().map(|it| it.trim_end_matches('/'));
        named.collect::<Vec<_>>().join("\n")
    };
    let is_clear = |url: Option<String>| url.is_some_and(|url| url.starts_with("http://"));
    Ok(Some(match scheme {
        ObjectStoreScheme::AmazonS3 => {
            let builder = AmazonS3Builder::from_env().with_url(url.as_str());
            let endpoints = [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::S3Endpoint];
            let endpoints = endpoints.map(|key| builder.get_config_value(&key));
            let service = service(&endpoints);
            let options = options(endpoints.into_iter().any(is_clear));
            let builder = builder.with_client_options(options).with_retry(retry);
            Clients::of(
                builder
                    // Other services than Amazon's lack it, and few objects are removed at once.
                    .with_disable_bulk_delete(true)
                    .with_http_connector(Bounded::new(Condition::Unsigned))
                    .build()
                    .map_err(why)?,
                service,
            )
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            let builder = GoogleCloudStorageBuilder::from_env().with_url(url.as_str());
            let endpoint = builder.get_config_value(&GoogleConfigKey::BaseUrl);
            let service = service(std::slice::from_ref(&endpoint));
            let builder = builder
                .with_client_options(options(is_clear(endpoint)))
                .with_retry(retry);
            Clients::of(
                builder
                    .with_http_connector(Bounded::new(Condition::Untaken))
                    .build()
                    .map_err(why)?,
                service,
            )
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let builder = MicrosoftAzureBuilder::from_env().with_url(url.as_str());
            let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
            let account = builder.get_config_value(&AzureConfigKey::AccountName);
            let service = service(&[account, endpoint.clone()]);
            let options = options(is_clear(endpoint));
            let builder = builder.with_client_options(options).with_retry(retry);
            let credentials = Arc::new(OnceLock::new());
            let condition = Condition::Signed(Arc::clone(&credentials));
            let client = builder.with_http_connector(Bounded::new(condition)).build();
            let client = client.map_err(why)?;
            let _ = credentials.set(Arc::clone(client.credentials()));
            Clients::of(client, service)
        }
        ObjectStoreScheme::Http => {
            let options = options(url.scheme() == "http");
            web_server(url, options, login, retry).map_err(why)?
        }
        ObjectStoreScheme::Local => Clients::read_only(LocalFileSystem::new()),
        _ => return Ok(None),
    }))
}

/// What all clients have in common.
fn options(trusted: &ClientOptions, is_clear: bool, patience: Patience) -> ClientOptions {
    trusted
        .clone()
        .with_allow_http(is_clear)
        .with_user_agent(HeaderValue::from_static(concat!(
            "gannet/",
            env!("CARGO_PKG_VERSION")
        )))
        .with_connect_timeout(patience.answer)
        // Bodies may take as long as they keep their rate.
        .with_timeout_disabled()
}

/// The client for a store behind a web server.
fn web_server(
    url: &Url,
    mut options: ClientOptions,
    login: Option<HeaderValue>,
    retry: RetryConfig,
) -> object_store::Result<Clients> {
    if let Some(login) = login {
        // Not sent to other hosts, where a redirect may lead.
        options = options.with_default_headers([(AUTHORIZATION, login)].into_iter().collect());
    }
    let builder = HttpBuilder::new()
        .with_url(&url[..Position::BeforePath])
        .with_client_options(options)
        .with_retry(retry);
    let connector = Bounded::new(Condition::Untaken);
    let client = builder.with_http_connector(connector).build()?;
    Ok(Clients::read_only(client))
}

/// The value of `Authorization` for the name and the password in a URL (RFC 7617 section 2).
fn login(url: &Url) -> Option<HeaderValue> {
    let password = url.password();
    if url.username().is_empty() && password.is_none() {
        return None;
    }
    let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    let pair = [
        decoded(url.username()),
        b":".to_vec(),
        decoded(password.unwrap_or_default()),
    ];
    let mut value = HeaderValue::from_str(&format!("Basic {}", BASE64.encode(pair.concat())))
        .expect("Base64 is ASCII");
    value.set_sensitive(true);
    Some(value)
}

/// The object of a release.
pub(crate) fn release_name(id: ReleaseId) -> String {
    format!("releases/{id}.gannet")
}

/// The object of the pointer in force.
pub(crate) const CURRENT: &str = "current";
/// The folder of all pointers.
pub(crate) const LOG: &str = "log";
