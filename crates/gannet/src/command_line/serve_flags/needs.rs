//! The precondition for each flag of `gannet serve` to have an effect.
//!
//! A flag without effect is rejected, since its user expects one. The table covers every flag, as a
//! test checks, so that a new one cannot be forgotten.

/// What is served at a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A live directory.
    Directory,
    /// One file.
    File,
    /// A compiled archive.
    Archive,
    /// A store of releases.
    Store,
}

/// A precondition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Need {
    /// None, or its absence is reported where the flag is read.
    Nothing,
    /// The server serves content of one of these kinds.
    Served(&'static [Kind]),
    /// The server serves content, not the constant answers.
    Content,
    /// HTTPS is enabled.
    Https,
    /// HTTPS is enabled, or a trusted proxy may speak it.
    HttpsOrTrust,
    /// At least one address speaks HTTPS.
    HttpsAddress,
    /// At least one TCP address.
    Tcp,
    /// Clients with an address: by TCP, or named by a trusted proxy.
    Clients,
    /// A Unix socket, if its peers are to be trusted.
    UnixIfTrusted,
    /// Some proxy is trusted.
    Trust,
    /// Requests are logged.
    Log,
    /// Requests are distinguished by host.
    Hosts,
}

const DIRECTORY: Need = Need::Served(&[Kind::Directory]);
const LIVE: Need = Need::Served(&[Kind::Directory, Kind::File]);
const ARCHIVE: Need = Need::Served(&[Kind::Archive, Kind::Store]);

/// Each flag with what it needs.
pub const NEEDS: &[(&str, Need)] = &[
    ("path", Need::Content),
    (
        "spa",
        Need::Served(&[Kind::Directory, Kind::Archive, Kind::Store]),
    ),
    ("no-listing", DIRECTORY),
    ("no-clean-urls", DIRECTORY),
    ("compat", DIRECTORY),
    ("no-rules", DIRECTORY),
    ("index", DIRECTORY),
    ("trailing-slash", DIRECTORY),
    // The server's own pages and redirects have these fields for every kind of content.
    ("no-security-fields", Need::Nothing),
    ("cors", LIVE),
    ("site", Need::Content),
    ("hosts", Need::Content),
    ("unknown-host", Need::Hosts),
    ("health", Need::Nothing),
    ("server-timing", Need::Nothing),
    ("no-favicon", Need::Content),
    ("compress", LIVE),
    ("compressed-only", DIRECTORY),
    ("dotfiles", DIRECTORY),
    ("follow-links", LIVE),
    ("type", LIVE),
    ("header", Need::Nothing),
    ("require-signature", Need::Content),
    ("copy", Need::Served(&[Kind::Store])),
    ("on-demand", Need::Served(&[Kind::Store])),
    ("receive", Need::Served(&[Kind::Store])),
    ("previews", ARCHIVE),
    ("password-file", Need::Content),
    ("password-path", Need::Content),
    ("node", Need::Served(&[Kind::Store])),
    ("listen", Need::Nothing),
    ("port", Need::Nothing),
    ("expose", Need::Nothing),
    ("trust", Need::UnixIfTrusted),
    ("trust-host", Need::Trust),
    ("qr", Need::Tcp),
    ("metrics", Need::Nothing),
    ("http", Need::Nothing),
    ("tls", Need::HttpsAddress),
    ("acme", Need::HttpsAddress),
    ("acme-dir", Need::HttpsAddress),
    ("acme.email", Need::HttpsAddress),
    ("acme-server", Need::HttpsAddress),
    ("acme.profile", Need::HttpsAddress),
    ("acme.eab-kid", Need::HttpsAddress),
    ("acme.eab-key", Need::HttpsAddress),
    ("acme.thumbprint", Need::Nothing),
    ("tls-cert", Need::HttpsAddress),
    ("tls-key", Need::Https),
    ("tls-client-ca", Need::Https),
    ("tls-client-auth", Need::Https),
    ("tls-min", Need::Https),
    ("alt-svc", Need::Https),
    ("http-redirect", Need::Https),
    ("hsts", Need::HttpsOrTrust),
    ("early-data", Need::Https),
    ("ktls", Need::Https),
    ("dummy", Need::Nothing),
    ("dummy-empty", Need::Nothing),
    ("delay", Need::Nothing),
    ("tls-key-records", Need::Https),
    ("max-memory", Need::Nothing),
    ("max-descriptors", Need::Nothing),
    ("cache-memory", Need::Content),
    ("head-timeout", Need::Nothing),
    ("idle-timeout", Need::Nothing),
    ("progress-timeout", Need::Nothing),
    ("send-rate-min", Need::Nothing),
    ("max-connections", Need::Nothing),
    ("allow", Need::Clients),
    ("deny", Need::Clients),
    ("client.connections", Need::Clients),
    ("client.requests", Need::Clients),
    ("client.rate", Need::Clients),
    ("grace", Need::Nothing),
    ("engine", Need::Nothing),
    ("workers", Need::Nothing),
    ("sandbox", Need::Nothing),
    ("user", Need::Nothing),
    ("log", Need::Nothing),
    // Messages about clients on standard error have it, too.
    ("log.mask", Need::Nothing),
    ("log.sample", Need::Log),
    ("log-file", Need::Log),
    ("report", Need::Nothing),
    ("quiet", Need::Nothing),
    ("color", Need::Nothing),
];
