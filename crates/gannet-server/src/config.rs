//! The server's configuration: typed, complete, and validated by the code that builds it.

pub(crate) mod network;
pub(crate) mod rate;
pub mod receipts;
pub mod supply;
pub(crate) mod template;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::bounds::limits::{CACHE_MEMORY_LEAST, RULES_MEMORY_USUAL, SITES_AT_START_MAX};
use crate::config::network::Network;
use crate::config::rate::Rate;
use crate::config::template::Template;
use crate::tls::{kernel, watch};
use gannet_content::policy::defaults::DefaultFields;
use gannet_content::routing::Routing;
use gannet_content::rules::headers::is_coding_forbidden;
use gannet_content::rules::pattern::Pattern;
use gannet_io::links::Outside;
use gannet_io::unix_socket::Access;
use gannet_io::user::User;

/// Which I/O engine to use.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum EngineChoice {
    /// io_uring if the kernel supports every operation needed; otherwise epoll, with the reason
    /// logged.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// epoll.
    Epoll,
}

/// Where to listen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ListenAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(UnixAddress),
}

impl fmt::Display for ListenAddress {
    /// The operator's notation: `127.0.0.1:8080`, `unix:/run/socket`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(unix) => write!(f, "unix:{}", unix.path.display()),
        }
    }
}

/// A Unix socket.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnixAddress {
    /// Path of the socket file.
    pub path: PathBuf,
    /// Permissions of the socket file.
    pub access: Access,
}

/// The protocol of an address.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Scheme {
    /// HTTP in clear text.
    #[default]
    Http,
    /// HTTP over TLS.
    Https,
    /// HTTP in clear text; every request is redirected to the same URL under `https`.
    Redirect,
}

/// Versions of HTTP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HttpVersions {
    /// HTTP/1; see [`ContentOptions::refuses_http1`].
    pub http1: bool,
    /// HTTP/2.
    pub http2: bool,
    /// HTTP/3, where HTTPS is spoken.
    pub http3: bool,
}

impl HttpVersions {
    /// No version.
    pub const NONE: Self = Self {
        http1: false,
        http2: false,
        http3: false,
    };
}

impl Default for HttpVersions {
    fn default() -> Self {
        Self {
            http1: true,
            http2: true,
            http3: true,
        }
    }
}

/// The operator's TLS settings.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsConfig {
    /// Where the certificates come from.
    pub source: watch::CertificateSource,
    /// Whether the kernel encrypts large bodies.
    pub kernel: kernel::Choice,
    /// Records that one key of a connection may encrypt before it is replaced, 256 to 2^23. If it
    /// cannot be replaced, the connection ends after the current response, or at twice as many
    /// records.
    pub key_records_max: u64,
    /// Serve HTTP/3 on the same addresses, over UDP.
    pub http3: bool,
    /// What answers by the other versions say of it (`alt-svc`, RFC 7838 section 3) instead of its port;
    /// empty for nothing.
    pub alt_svc: Option<String>,
}

/// A source of content.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Content {
    /// A live directory.
    Directory(PathBuf),
    /// One host's directory within a folder that has one for each host. If its entry is a symbolic
    /// link, it is followed only within that folder.
    HostFolder(PathBuf),
    /// One file, served at `/` and at `/its-name`.
    File(PathBuf),
    /// A compiled archive.
    Archive(PathBuf),
    /// A store of releases, each a compiled archive.
    Store(PathBuf),
    /// A folder with an entry for each of many hosts: each is opened at the first request for it.
    Many(Many),
}

/// See [`Content::Many`].
#[derive(Clone)]
pub struct Many {
    /// The folder.
    pub folder: PathBuf,
    /// The entries found in it at the start. None is for all hosts. If they are few, they are the
    /// contents before this one as well, except those whose hosts have other content.
    pub found: Vec<Hosted>,
    /// Finds them again.
    pub find: fn(&Path) -> io::Result<Vec<Hosted>>,
    /// Folders outside of it into which links may lead, those of entries included.
    pub outside: Outside,
}

impl Many {
    /// Whether they are so few that each is content of its own as well, opened at the start.
    #[must_use]
    pub fn are_opened_at_start(&self) -> bool {
        self.found.len() <= SITES_AT_START_MAX
    }
}

impl fmt::Debug for Many {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.found.len();
        write!(f, "Many({}, {count} hosts)", self.folder.display())
    }
}

impl PartialEq for Many {
    fn eq(&self, other: &Self) -> bool {
        self.folder == other.folder && self.found == other.found
    }
}

impl Eq for Many {}

impl Content {
    /// Its path, as the operator gave it.
    #[must_use]
    pub fn into_path(self) -> PathBuf {
        match self {
            Self::Directory(path)
            | Self::HostFolder(path)
            | Self::File(path)
            | Self::Archive(path)
            | Self::Store(path) => path,
            Self::Many(many) => many.folder,
        }
    }
}

/// Content and its hosts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hosted {
    /// Lower-case names without port; empty: every host that no other content names.
    pub hosts: Vec<String>,
    /// The content served for them.
    pub content: Content,
    /// It is the entry of this name in a folder of hosts. Of an archive, the site for that host is served
    /// alone or, if there is none, the one for all hosts; if there is none either, it is refused.
    pub entry: Option<String>,
}

/// How to answer a host that no content names.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UnknownHost {
    /// The content without host names; if there is none, 421.
    #[default]
    Default,
    /// 404.
    NotFound,
    /// 421 (RFC 9110 section 15.5.20).
    Misdirected,
    /// Ignore the host: the content without host names answers every request; without such content,
    /// the first one does.
    Ignore,
}

/// How content is mapped to responses.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct ContentOptions {
    /// List directories without an index page (directory mode).
    pub listing: bool,
    /// Answer a path that names no file and does not look like an asset with `/index.html`, status
    /// 200.
    pub spa: bool,
    /// `/about` answers `about.html`.
    pub clean_urls: bool,
    /// Use the `.br`, `.zst` and `.gz` files beside the original.
    pub sidecars: bool,
    /// The folder of these files, if they are not beside the originals.
    pub copies: Option<PathBuf>,
    /// Code text that has no sidecar in the background, for later requests (directory mode).
    pub compress: bool,
    /// Serve `NAME` from `NAME.gz` if there is no `NAME`.
    pub compressed_only: bool,
    /// Serve dotfiles. Otherwise they are neither served nor listed, except `.well-known`.
    pub dotfiles: bool,
    /// Folders outside of a live directory into which its symbolic links may lead.
    pub follow_links: Outside,
    /// Content types by file name suffix (without the dot); they take precedence over the built-in
    /// table.
    pub types: Vec<(String, String)>,
    /// Fields added to every response: lower-case names, validated values.
    pub fields: Vec<(String, String)>,
    /// Which file answers which path (directory mode), and which dialect the site's rules files are
    /// read in.
    pub routing: Routing,
    /// The default response fields.
    pub defaults: DefaultFields,
    /// How to answer a host that no content names.
    pub unknown_host: UnknownHost,
    /// Decoded path of the health check; it takes precedence over content.
    pub health: Option<String>,
    /// Requests over HTTP/1 get 505, but for challenges and redirects to HTTPS.
    pub refuses_http1: bool,
    /// The thumbprint of the key of an ACME account (RFC 8555 section 8.1): challenges by HTTP-01 are
    /// answered for it, for every host; they take precedence over content and redirects.
    pub acme_thumbprint: Option<String>,
    /// Serve a built-in `/favicon.ico` for sites without one, because browsers request it
    /// unprompted.
    pub favicon: bool,
    /// Say in each response whether it waited for the disk, and for how long (`server-timing`).
    pub server_timing: bool,
    /// Answer every `GET` with this text instead of content: measures the engine's upper limit.
    pub dummy: Option<&'static str>,
    /// Bytes of files and archives that each server keeps in memory, over all workers. Archives
    /// that are copied by default take at most half of it. `None`: 256 MiB, on every machine.
    pub cache_memory: Option<u64>,
    /// Bytes that all encoders of text may take together while a site is served; text for which an encoder
    /// needs more than its part is not coded with it.
    pub encoder_memory: u64,
    /// Bytes that the rules of all sites may hold together.
    pub rules_memory: u64,
    /// Files longer than small ones and up to this length are copied into sealed memory and sent
    /// from there, so that no change of the file can alter bytes already queued; the copies count
    /// against `cache_memory`. Longer files are sent from the file itself, slice by slice.
    pub snapshot_max: u64,
    /// Copy archives of any length into sealed memory, as long as they fit half of `cache_memory`:
    /// the operator named that. Otherwise only short ones.
    pub copies_long_archives: bool,
    /// The minisign public key, in Base64, that must verify an archive's signature, and that of the
    /// pointer in a store.
    pub require_signature: Option<String>,
    /// Who fetches parts of releases on demand.
    pub supply: Option<supply::Supply>,
    /// The name of this server among those that serve the same store: it decides in which stage of
    /// a release this one takes part.
    pub node: String,
    /// The domain below which each release of an archive or a store answers under a name of its own,
    /// its ID.
    pub previews: Option<String>,
}

/// The tail of a long file that is sent as copies is the longest copied file divided by this: 1 MiB
/// of 4. As a rule, the peer acknowledges the pages before the tail while the tail is sent.
const TAIL_PART: u64 = 4;

impl ContentOptions {
    /// Bytes that may be kept in memory.
    #[must_use]
    pub fn cache_memory(&self) -> u64 {
        self.cache_memory.unwrap_or(CACHE_MEMORY_LEAST)
    }

    /// Bytes at the end of a long file that are sent as copies where its pages are sent.
    pub(crate) fn tail_len(&self) -> u64 {
        self.snapshot_max.max(crate::bounds::limits::SMALL_FILE_MAX) / TAIL_PART
    }

    /// Whether text is coded while it is served: the operator may forbid it for every response.
    #[must_use]
    pub fn codes_text(&self) -> bool {
        let mut fields = self.fields.iter();
        // Without a cache, each request would have its file coded anew.
        let may_keep = self.cache_memory != Some(0);
        self.compress
            && may_keep
            && !fields.any(|(name, value)| is_coding_forbidden(name, value.as_bytes()))
    }

    /// Whether archives must be copied into memory, outside of `cache_memory`: a signature holds for
    /// every byte sent.
    #[must_use]
    pub fn copies_archives(&self) -> bool {
        self.require_signature.is_some()
    }
}

impl Default for ContentOptions {
    fn default() -> Self {
        Self {
            listing: true,
            spa: false,
            clean_urls: true,
            sidecars: true,
            copies: None,
            compress: true,
            compressed_only: false,
            dotfiles: false,
            follow_links: Outside::default(),
            types: Vec::new(),
            fields: Vec::new(),
            routing: Routing::default(),
            defaults: DefaultFields::default(),
            unknown_host: UnknownHost::default(),
            health: None,
            refuses_http1: false,
            acme_thumbprint: None,
            favicon: true,
            server_timing: false,
            dummy: None,
            cache_memory: None,
            encoder_memory: u64::MAX,
            rules_memory: RULES_MEMORY_USUAL,
            snapshot_max: 4 << 20,
            copies_long_archives: false,
            require_signature: None,
            supply: None,
            node: String::new(),
            previews: None,
        }
    }
}

/// Timeouts and limits: milliseconds, bytes, counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// From accept, or from the first byte of a request, until the request head is complete.
    pub head_timeout_ms: u64,
    /// For a persistent connection without a request in progress.
    pub idle_timeout_ms: u64,
    /// For a send without progress: the peer accepts no bytes.
    pub progress_timeout_ms: u64,
    /// Minimum bytes per second that a peer must accept, averaged over a send that has lasted
    /// longer than `progress_timeout_ms`; 0 disables the check.
    pub send_rate_min: u64,
    /// Connections per server; at the limit, new ones are accepted only as others end. 0: as many
    /// as the descriptor limit allows.
    pub connections_max: u32,
    /// How long responses in progress may take after a stop was requested.
    pub grace_ms: u64,
    /// Delay before received bytes are processed, to simulate latency; 0: none.
    pub delay_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_timeout_ms: 15_000,
            idle_timeout_ms: 75_000,
            progress_timeout_ms: 60_000,
            send_rate_min: 500,
            connections_max: 0,
            grace_ms: 30_000,
            delay_ms: 0,
        }
    }
}

/// Format of the access log.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum LogFormat {
    /// Not at all.
    #[default]
    Off,
    /// A short line for people, optionally in colour.
    Pretty {
        /// Use ANSI colours.
        colour: bool,
    },
    /// The combined log format.
    Combined,
    /// The combined format preceded by the host.
    Vcombined,
    /// The operator's own.
    Own(Arc<Template>),
    /// One JSON object per line.
    Json,
}

/// What the lines of the access log have, and which responses have one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogLines {
    /// Clients are logged without their ports, and without the last 8 bits of an IPv4 address or the
    /// last 80 bits of an IPv6 address.
    pub is_masked: bool,
    /// One response in so many has a line, besides every one with a status of 500 and more; at least
    /// 1, with which every one has.
    pub one_in: u32,
}

impl Default for LogLines {
    fn default() -> Self {
        Self {
            is_masked: false,
            one_in: 1,
        }
    }
}

/// Whether a server confines its threads, and the one that calls
/// [`serve`](crate::Prepared::serve) with them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SandboxChoice {
    /// No: for a process that does other things as well.
    Off,
    /// As far as the kernel can.
    #[default]
    Auto,
    /// Completely, or not start.
    Require,
}

/// A user to run as.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RunAs {
    /// As the operator named it.
    pub name: String,
    /// Its rights.
    pub user: User,
}

/// Whom to believe about clients, and what each of them may do.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClientRules {
    /// The addresses of proxies. They may name the client of a connection at a proxied address, and
    /// that of each request.
    pub trust: Vec<Network>,
    /// Every peer of a Unix socket is such a proxy.
    pub trust_unix: bool,
    /// The host that they name in fields of their own selects the site, in place of the request's.
    pub trust_host: bool,
    /// Clients that may connect; if it is not empty, no others may.
    pub allow: Vec<Network>,
    /// Clients that may not. The longest matching prefix of both lists wins.
    pub deny: Vec<Network>,
    /// Maximum number of connections of a client; 0: no limit.
    pub connections: u32,
    /// Maximum number of requests of a client.
    pub requests: Option<Rate>,
    /// Maximum number of bytes that a client is sent in a second; 0: no limit.
    pub bytes_per_second: u64,
}

impl ClientRules {
    /// Whether there may be a proxy that is believed.
    #[must_use]
    pub fn trusts_anyone(&self) -> bool {
        self.trust_unix || !self.trust.is_empty()
    }

    /// Whether what a client does has to be counted.
    pub(crate) fn has_limits(&self) -> bool {
        self.connections > 0 || self.limits_requests()
    }

    /// Whether some clients may not connect.
    pub(crate) fn has_lists(&self) -> bool {
        !self.allow.is_empty() || !self.deny.is_empty()
    }

    /// Whether a client may be refused a request.
    pub(crate) fn limits_requests(&self) -> bool {
        self.requests.is_some() || self.bytes_per_second > 0
    }
}

/// Who may have what a server has, besides what its sites say.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PasswordOptions {
    /// A file of users, who alone may have the paths.
    pub file: Option<PathBuf>,
    /// The paths, of all sites; empty for all.
    pub paths: Vec<Pattern>,
}

/// The complete configuration of a server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Config {
    /// The I/O engine.
    pub engine: EngineChoice,
    /// Number of workers; 0 means one per core that this process may use.
    pub workers: usize,
    /// Timeouts and limits.
    pub limits: Limits,
    /// Proxies and their clients.
    pub clients: ClientRules,
    /// Users and passwords.
    pub passwords: PasswordOptions,
    /// The versions of HTTP that are spoken; over TLS [`Options`](crate::tls::config::Options) and
    /// [`TlsConfig::http3`] have to agree.
    pub http: HttpVersions,
    /// Format of the access log.
    pub log: LogFormat,
    /// Its lines.
    pub log_lines: LogLines,
    /// The access log's file; `None` is standard output.
    pub log_file: Option<PathBuf>,
    /// Address of the metrics and health endpoints.
    pub metrics: Option<SocketAddr>,
    /// What the process beside the server that receives releases has counted.
    pub receipts: Option<receipts::Receipts>,
    /// How often a line about the traffic is written to standard error.
    pub report_every: Option<Duration>,
    /// How content is mapped to responses.
    pub content: ContentOptions,
    /// Required if any address speaks [`Scheme::Https`].
    pub tls: Option<TlsConfig>,
    /// Send `Strict-Transport-Security` to clients over TLS, so that browsers return only over HTTPS
    /// (RFC 6797); a trusted proxy may have ended TLS.
    pub hsts: bool,
    /// Whether threads give up rights that they do not need.
    pub sandbox: SandboxChoice,
    /// The user whose rights the process has while it serves; `None`: those it was started with.
    pub run_as: Option<RunAs>,
}
