//! What a server is started with: typed, complete, already validated by whoever fills it in.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::tls::{kernel, watch};
use gannet_content::policy::defaults::DefaultFields;
use gannet_content::routing::Routing;
use gannet_io::unix_socket::Access;

/// Which engine to use.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum EngineChoice {
    /// io_uring where the kernel has what is needed, else epoll, saying why.
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
    /// As it is named: `127.0.0.1:8080`, `unix:/run/socket`.
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
    /// Its file.
    pub path: PathBuf,
    /// Who may connect.
    pub access: Access,
}

/// What is spoken at an address.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Scheme {
    /// HTTP in clear text.
    #[default]
    Http,
    /// HTTP over TLS.
    Https,
    /// HTTP in clear text, where every request is answered with the same URL under `https`.
    Redirect,
}

/// What the operator decides about TLS.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsConfig {
    /// Where the certificates come from.
    pub source: watch::Source,
    /// Whether the kernel encrypts large bodies.
    pub kernel: kernel::Choice,
    /// Records that a key of a connection encrypts before it is replaced, 256 to 2^23. Where it cannot
    /// be replaced, the connection ends after the answer under way, or at twice as many records.
    pub key_records_max: u64,
    /// Answers tell browsers to come back by HTTPS only (RFC 6797).
    pub hsts: bool,
    /// HTTP/3 is spoken at the same addresses, over UDP.
    pub http3: bool,
}

/// What is served.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Content {
    /// A live directory.
    Directory(PathBuf),
    /// A live directory in a folder that has one for each host. A symbolic link by its name is
    /// followed only if it stays in that folder.
    HostFolder(PathBuf),
    /// One file, answered at `/` and at `/its-name`.
    File(PathBuf),
    /// A compiled archive.
    Archive(PathBuf),
}

/// Content, and the hosts that it is for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hosted {
    /// Names in lower case, without port; none for every host that no other content names.
    pub hosts: Vec<String>,
    /// What is served there.
    pub content: Content,
}

/// What answers for a host that no content names.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UnknownHost {
    /// The content without host names; if there is none, 421.
    #[default]
    Default,
    /// 404.
    NotFound,
    /// 421 (RFC 9110 section 15.5.20).
    Misdirected,
    /// Hosts make no difference: the content without host names answers for all of them, else the
    /// first.
    Ignore,
}

/// How content becomes answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ContentOptions {
    /// Directories without an index page are answered with a listing (directory mode).
    pub listing: bool,
    /// Paths that name nothing and do not look like an asset are answered with `/index.html`, 200.
    pub spa: bool,
    /// `/about` answers `about.html`.
    pub clean_urls: bool,
    /// `.br`, `.zst` and `.gz` files beside the original are used.
    pub sidecars: bool,
    /// `NAME.gz` answers for a `NAME` that is not there.
    pub compressed_only: bool,
    /// Dotfiles are served (they never are listed or served otherwise, `.well-known` excepted).
    pub dotfiles: bool,
    /// Content types by file name suffix (without the dot), before the built-in table.
    pub types: Vec<(String, String)>,
    /// Fields added to every answer: lower-case names, checked values.
    pub fields: Vec<(String, String)>,
    /// Which file answers which path (directory mode), and whose reading of the site's rules files
    /// is followed.
    pub routing: Routing,
    /// The fields that answers have without being asked for.
    pub defaults: DefaultFields,
    /// What answers for a host that no content names.
    pub unknown_host: UnknownHost,
    /// This path, decoded, answers that the server is well, whatever is served.
    pub health: Option<String>,
    /// A site without a `/favicon.ico` is given one, as browsers ask for it unbidden.
    pub favicon: bool,
    /// Every `GET` is answered with this, whatever is served: the most that the engine can do.
    pub dummy: Option<&'static str>,
    /// Bytes of files and archives kept in memory by each server, over all workers. Archives that
    /// are copied unasked take at most half of them.
    pub cache_memory: u64,
    /// Files up to this length (but longer than small ones) are copied into sealed memory and
    /// sent from there, so that no change of the file can reach a byte that was sent; they count
    /// against `cache_memory`. Longer ones are sent from the file itself, slice by slice.
    pub snapshot_max: u64,
    /// Copy an archive of any length into sealed memory.
    pub archive_memory: bool,
    /// Read an archive that is not copied once at start, so that it is in the page cache.
    pub preload: bool,
    /// The minisign public key, in Base64, whose signature an archive must have.
    pub require_signature: Option<String>,
}

/// The end of a long file that leaves as copies is one of so many parts of the longest file that is
/// copied whole: 1 MiB of 4. The pages before it are acknowledged while it leaves, as a rule.
const TAIL_PART: u64 = 4;

impl ContentOptions {
    /// How much of the end of a long file leaves as copies where its pages are sent.
    pub(crate) fn tail_len(&self) -> u64 {
        self.snapshot_max.max(crate::limits::SMALL_FILE_MAX) / TAIL_PART
    }

    /// Whether archives are copied into memory whatever that takes: on request, or because a
    /// signature has to hold for every byte that is sent.
    #[must_use]
    pub fn copies_archives(&self) -> bool {
        self.archive_memory || self.require_signature.is_some()
    }
}

impl Default for ContentOptions {
    fn default() -> Self {
        Self {
            listing: true,
            spa: false,
            clean_urls: true,
            sidecars: true,
            compressed_only: false,
            dotfiles: false,
            types: Vec::new(),
            fields: Vec::new(),
            routing: Routing::default(),
            defaults: DefaultFields::default(),
            unknown_host: UnknownHost::default(),
            health: None,
            favicon: true,
            dummy: None,
            cache_memory: 256 << 20,
            snapshot_max: 4 << 20,
            archive_memory: false,
            preload: false,
            require_signature: None,
        }
    }
}

/// Timeouts and limits. Milliseconds, bytes, counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// From accept, or from the first byte of a request, until its head is complete.
    pub head_timeout_ms: u64,
    /// A persistent connection without a request under way.
    pub idle_timeout_ms: u64,
    /// A send during which the peer takes nothing.
    pub progress_timeout_ms: u64,
    /// The least bytes per second that a peer must take, averaged over a send once it has lasted
    /// longer than `progress_timeout_ms`; 0 switches it off.
    pub send_rate_min: u64,
    /// Connections per server; more are accepted only as others end. 0: what the descriptor limit
    /// allows.
    pub connections_max: u32,
    /// How long running answers may take after a stop was asked for.
    pub grace_ms: u64,
    /// What arrives is looked at this much later, to imitate latency; 0: at once.
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

/// How requests are logged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LogFormat {
    /// Not at all.
    #[default]
    Off,
    /// A short line for people, in colour if asked.
    Pretty {
        /// Use ANSI colours.
        colour: bool,
    },
    /// The combined log format.
    Combined,
    /// The same with the host before all of it, as Apache's `vhost_combined`.
    CombinedHost,
    /// One JSON object a line.
    Json,
}

/// Everything a server is started with.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Config {
    /// Which engine.
    pub engine: EngineChoice,
    /// Number of workers; 0 means one per core that this process may use.
    pub workers: usize,
    /// Timeouts and limits.
    pub limits: Limits,
    /// TCP connections are accepted when their first bytes are there.
    pub defer_accept: bool,
    /// How requests are logged.
    pub log: LogFormat,
    /// Where they are logged; `None` is standard output.
    pub log_file: Option<PathBuf>,
    /// Where metrics and health are answered.
    pub metrics: Option<SocketAddr>,
    /// How content becomes answers.
    pub content: ContentOptions,
    /// Needed if one of the addresses speaks [`Scheme::Https`].
    pub tls: Option<TlsConfig>,
}
