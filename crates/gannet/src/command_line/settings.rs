//! The settings of `gannet serve`, before anything is inspected, opened or bound.

use std::net::SocketAddr;
use std::path::PathBuf;

use gannet_server::config::{Config, ListenAddress, Scheme};

use crate::command_line::site_settings::SiteSettings;
use gannet_server::tls::kernel::Choice;
use gannet_server::tls::limits::ENCRYPTED_RECORDS_MAX;

/// The settings of `serve`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// What to serve; `None` is the current directory, if there is a terminal.
    pub path: Option<PathBuf>,
    /// Addresses, in the order given.
    pub listen: Vec<Listen>,
    /// The port on loopback, or on all interfaces with `expose`.
    pub port: Option<u16>,
    /// Listen on all interfaces.
    pub expose: bool,
    /// What is asked of TLS.
    pub tls: TlsSettings,
    /// What answers a path, and with which fields.
    pub site: SiteSettings,
    /// Further sites: their hosts, and what to serve there.
    pub sites: Vec<(Vec<String>, PathBuf)>,
    /// The directory has a folder for each host.
    pub hosts: bool,
    /// Hosts make no difference.
    pub ignore_host: bool,
    /// The most memory of the process, bytes; 0 is no limit.
    pub max_memory: u64,
    /// The most descriptors of the process; 0 is as many as allowed.
    pub max_descriptors: u64,
    /// What the server is started with; its `log` is filled in from `log` below, which depends on
    /// the terminal.
    pub server: Config,
    /// How requests are logged.
    pub log: LogChoice,
    /// Whether colours are used.
    pub colour: ColourChoice,
    /// Say nothing at start.
    pub quiet: bool,
}

/// A value of `--listen`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listen {
    /// Where.
    pub address: ListenAddress,
    /// What is spoken there; `None` is HTTPS on TCP if there is a certificate, else HTTP.
    pub scheme: Option<Scheme>,
}

/// What is asked of TLS.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsSettings {
    /// HTTPS, with a certificate for development unless one is named.
    pub development: bool,
    /// Files of certificate chains, the default first.
    pub certificates: Vec<PathBuf>,
    /// Files of their keys, in the same order; empty if each file has both.
    pub keys: Vec<PathBuf>,
    /// Where clear HTTP is answered with a redirect to HTTPS.
    pub redirect: Option<SocketAddr>,
    /// Browsers are told to use HTTPS only.
    pub hsts: bool,
    /// Early data (0-RTT) is taken.
    pub early_data: bool,
    /// `--http3`.
    pub http3: bool,
    /// Whether the kernel encrypts.
    pub kernel: Choice,
    /// Records that one key of a connection encrypts.
    pub key_records_max: u64,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            development: false,
            certificates: Vec::new(),
            keys: Vec::new(),
            redirect: None,
            hsts: false,
            early_data: false,
            http3: false,
            kernel: Choice::default(),
            key_records_max: ENCRYPTED_RECORDS_MAX,
        }
    }
}

/// How requests are logged, as asked for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LogChoice {
    /// Pretty on a terminal, else off.
    #[default]
    Auto,
    /// A short line for people.
    Pretty,
    /// The combined log format.
    Combined,
    /// The same with the host in front.
    CombinedHost,
    /// One JSON object a line.
    Json,
    /// Not at all.
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
