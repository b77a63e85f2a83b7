//! The settings of `gannet serve`, before any path is inspected or opened, or any address bound.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use gannet_server::config::{Config, ListenAddress, Scheme, UnknownHost};

use crate::command_line::site_settings::SiteSettings;
use gannet_server::Template;
use gannet_server::tls::clients::Demand;
use gannet_server::tls::kernel::Choice;
use gannet_server::tls::limits::ENCRYPTED_RECORDS_MAX;

/// The settings of `serve`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// The path to serve; `None` is the current directory.
    pub path: Option<PathBuf>,
    /// Where a store that is followed is copied to; `None` is a folder of the user's or service's state.
    pub copy: Option<PathBuf>,
    /// Bytes that the copy of a store may take, of whose releases parts are fetched when they are requested.
    pub on_demand: Option<u64>,
    /// Where publishers bring releases to the store that is served.
    pub receive: Option<SocketAddr>,
    /// Addresses, in the order given.
    pub listen: Vec<Listen>,
    /// The port on loopback, or on all interfaces with `expose`.
    pub port: Option<u16>,
    /// Listen on all interfaces.
    pub expose: bool,
    /// Print the QR code of the address; `None` is on a terminal, where other machines can connect.
    pub qr: Option<bool>,
    /// The TLS flags.
    pub tls: TlsSettings,
    /// How paths are resolved, and which fields answers have.
    pub site: SiteSettings,
    /// Additional sites: their hosts and the path served for them.
    pub sites: Vec<(Vec<String>, PathBuf)>,
    /// The directory has a folder for each host.
    pub hosts: bool,
    /// The user to run as, and perhaps its group: `NAME[:GROUP]`.
    pub user: Option<String>,
    /// Memory limit of the process in bytes; 0 is no limit.
    pub max_memory: u64,
    /// Descriptor limit of the process; 0 is as many as allowed.
    pub max_descriptors: u64,
    /// The server's configuration; its `log` is filled in later from `log` below, which depends on
    /// the terminal.
    pub server: Config,
    /// How requests are logged.
    pub log: LogChoice,
    /// Whether colours are used.
    pub colour: ColourChoice,
    /// Print errors only.
    pub quiet: bool,
}

/// A value of `--listen`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listen {
    /// The address.
    pub address: ListenAddress,
    /// The scheme; `None` is HTTPS on TCP if there is a certificate, else HTTP.
    pub scheme: Option<Scheme>,
    /// Connections start with a header of the PROXY protocol.
    pub is_proxied: bool,
}

/// The TLS flags.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsSettings {
    /// HTTPS, with a certificate for development unless one is named.
    pub development: bool,
    /// Files of certificate chains, the default first.
    pub certificates: Vec<PathBuf>,
    /// Certificates that are ordered.
    pub acme: AcmeSettings,
    /// Files of their private keys, in the same order; empty if each certificate's file holds its
    /// key.
    pub keys: Vec<PathBuf>,
    /// The addresses that redirect HTTP to HTTPS.
    pub redirects: Vec<SocketAddr>,
    /// Browsers are to use HTTPS only.
    pub hsts: bool,
    /// Accept early data (0-RTT).
    pub early_data: bool,
    /// Files of the authorities of which clients are asked for a certificate.
    pub client_authorities: Vec<PathBuf>,
    /// Whether clients need it, if that is set.
    pub client_demand: Option<Demand>,
    /// TLS 1.2 is enabled.
    pub tls12: bool,
    /// What answers say of HTTP/3, if it is not to be made up; empty for nothing.
    pub alt_svc: Option<String>,
    /// Whether the kernel encrypts large bodies.
    pub kernel: Choice,
    /// Maximum number of records encrypted with one key of a connection.
    pub key_records_max: u64,
}

/// Certificates that a process beside the server orders.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AcmeSettings {
    /// Names and addresses, each with a certificate of its own.
    pub hosts: Vec<String>,
    /// Certificates are ordered for hosts of sites when they are requested.
    pub is_on_demand: bool,
    /// Where the account and the certificates are kept.
    pub folder: Option<PathBuf>,
    /// The contact of the account.
    pub email: Option<String>,
    /// The URL of the ACME server's directory, if it is not Let's Encrypt's.
    pub server: Option<String>,
    /// The name of a profile that the server offers.
    pub profile: Option<String>,
    /// The identifier of a key for an account.
    pub key_id: Option<String>,
    /// The file of that key.
    pub key: Option<PathBuf>,
}

impl Settings {
    /// Whether one site is served for every host.
    #[must_use]
    pub fn ignores_host(&self) -> bool {
        self.server.content.unknown_host == UnknownHost::Ignore
    }
}

impl AcmeSettings {
    /// Whether any are ordered.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.is_on_demand || !self.hosts.is_empty()
    }
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            development: false,
            certificates: Vec::new(),
            acme: AcmeSettings::default(),
            keys: Vec::new(),
            redirects: Vec::new(),
            hsts: false,
            early_data: false,
            client_authorities: Vec::new(),
            client_demand: None,
            tls12: true,
            alt_svc: None,
            kernel: Choice::default(),
            key_records_max: ENCRYPTED_RECORDS_MAX,
        }
    }
}

/// The log format as configured.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum LogChoice {
    /// Pretty on a terminal, else off.
    #[default]
    Auto,
    /// One short line per request, for people.
    Pretty,
    /// The combined log format.
    Combined,
    /// The same with the host in front.
    Vcombined,
    /// One JSON object per line.
    Json,
    /// The operator's own format.
    Own(Arc<Template>),
    /// No log.
    Off,
}

/// Whether colours are used.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ColourChoice {
    /// On a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}
