//! Download errors in words, with the next step.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use gannet_io::cause::{cause, next_step, printable};
use gannet_io::quantities::lasting;
use rustls::pki_types::UnixTime;
use rustls::{CertificateError, InvalidMessage};

use super::response::Head;
use super::url::Url;

/// Why a download failed.
#[derive(Debug)]
pub enum GetError {
    /// The certificates to trust cannot be read; why, in words.
    Certificates(String),
    /// The destination of `Client::print` cannot be written.
    Output(io::Error),
    /// Everything else.
    Failed {
        /// What was being done: `download`, `write`, ...
        doing: &'static str,
        /// A URL as it was typed, or a path.
        object: String,
        /// Why not.
        cause: String,
        /// What to do about it, if that is known.
        help: Option<String>,
        /// Alternatives for the caller, in this order.
        remedies: Vec<Remedy>,
    },
}

/// An alternative that helps. Programs name the flag for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Remedy {
    /// Accept any certificate.
    AcceptAny,
    /// Trust the authority that signed the certificate, or accept any.
    TrustAuthority,
    /// Use another version of HTTP: there is no HTTP/3 over UDP.
    OtherVersion,
    /// Resume: the bytes received so far are kept.
    Resume,
    /// Fetch everything instead of resuming.
    FetchAll,
}

impl GetError {
    /// Wraps an error of the system while `doing` something with a file.
    pub(super) fn of_system(doing: &'static str, path: &Path, error: &io::Error) -> Self {
        Self::Failed {
            doing,
            object: path.display().to_string(),
            cause: cause(error),
            help: next_step(error).map(Into::into),
            remedies: Vec::new(),
        }
    }

    /// Adds a remedy.
    pub(super) fn with(mut self, remedy: Remedy) -> Self {
        if let Self::Failed { remedies, .. } = &mut self {
            remedies.push(remedy);
        }
        self
    }
}

impl fmt::Display for GetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificates(why) => write!(f, "certificates: {why}"),
            Self::Output(error) => write!(f, "cannot write output: {}", cause(error)),
            Self::Failed {
                doing,
                object,
                cause,
                ..
            } => write!(f, "cannot {doing} '{}': {cause}", printable(object)),
        }
    }
}

impl std::error::Error for GetError {}

/// The content cannot be written: a local error, not the server's.
#[derive(Debug)]
struct Unwritten {
    path: PathBuf,
    cause: String,
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for Unwritten {}

/// Wraps `error`, which occurred while writing the file that becomes `path`.
pub(super) fn unwritten(path: &Path, error: &io::Error) -> io::Error {
    let (path, cause) = (path.to_owned(), cause(error));
    io::Error::new(error.kind(), Unwritten { path, cause })
}

/// A response that violates its protocol, or is cut off.
pub(super) fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// No HTTP/3 at this port: another version may work.
pub(super) fn no_http3(text: String) -> io::Error {
    io::Error::other(Reason {
        text,
        help: None,
        remedy: Some(Remedy::OtherVersion),
    })
}

/// A response without the requested content.
pub(super) fn unexpected(head: &Head) -> io::Error {
    let status = head.status;
    let help = match status {
        // HTTPS servers answer clear text with this, and many servers answer malformed requests
        // with it.
        400 => Some("if the port is that of HTTPS, use https:// there"),
        401 | 403 | 407 => Some("gannet get has no credentials for it"),
        404 | 410 => Some("nothing is at this URL: check its path"),
        421 => Some("the server does not serve this host: check the name"),
        429 | 500..=599 => Some("the server is unavailable: try again later"),
        _ => None,
    };
    let text = format!("the server answers {status} (expected the content)");
    io::Error::other(Reason {
        text,
        help,
        remedy: None,
    })
}

/// Wraps `error`, which occurred at `url` after a redirection from `asked`.
pub(super) fn redirected(error: io::Error, asked: &Url, url: &Url) -> io::Error {
    if asked == url {
        return error;
    }
    let mut reason = reason_of(&error);
    reason.text += &format!(" (redirected to {url})");
    io::Error::new(error.kind(), reason)
}

/// Converts an error of the download of the URL that was typed.
pub(super) fn failure(asked: &Url, error: &io::Error) -> GetError {
    let inner = error.get_ref();
    if let Some(unwritten) = inner.and_then(|e| e.downcast_ref::<Unwritten>()) {
        return GetError::Failed {
            doing: "write",
            object: unwritten.path.display().to_string(),
            cause: unwritten.cause.clone(),
            help: next_step(&error.kind().into()).map(Into::into),
            remedies: Vec::new(),
        };
    }
    failed("download", asked.typed(), error)
}

/// Converts an error while `doing` something with `object` that involves a server.
#[must_use]
pub fn failed(doing: &'static str, object: &str, error: &io::Error) -> GetError {
    let reason = reason_of(error);
    GetError::Failed {
        doing,
        object: object.to_owned(),
        cause: reason.text,
        help: reason.help.map(Into::into),
        remedies: reason.remedy.into_iter().collect(),
    }
}

/// An error in words for users who do not know the libraries involved, with the next step.
#[derive(Clone, Debug)]
struct Reason {
    text: String,
    help: Option<&'static str>,
    remedy: Option<Remedy>,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Reason {}

/// Describes an error, with the next step.
fn reason_of(error: &io::Error) -> Reason {
    let inner = error.get_ref();
    if let Some(reason) = inner.and_then(|e| e.downcast_ref::<Reason>()) {
        return reason.clone();
    }
    if let Some(tls) = inner.and_then(|e| e.downcast_ref::<rustls::Error>()) {
        let mut reason = of_tls(tls);
        reason.text = printable(&reason.text);
        return reason;
    }
    let text = printable(&cause(error));
    let help = match error.kind() {
        io::ErrorKind::ConnectionRefused => Some("nothing listens there: is the port right?"),
        io::ErrorKind::ConnectionReset => {
            Some("the server, or a device on the path, closed the connection: try again")
        }
        io::ErrorKind::TimedOut => Some("the server or the network may be down: try again"),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Some("its address is unreachable: check this machine's network")
        }
        _ if text.contains("address information") => Some("unknown host name: is it spelt right?"),
        _ => None,
    };
    Reason {
        text,
        help,
        remedy: None,
    }
}

fn of_tls(error: &rustls::Error) -> Reason {
    match error {
        rustls::Error::InvalidCertificate(certificate) => {
            let (why, help, remedy) = of_certificate(certificate);
            let text = format!("the server's certificate {why}");
            Reason { text, help, remedy }
        }
        // The first bytes are not a TLS record: clear text.
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Reason {
            text: "the server does not speak TLS there".into(),
            help: Some("use http:// there, or name the port of HTTPS"),
            remedy: None,
        },
        other => Reason {
            text: format!("TLS: {other}"),
            help: None,
            remedy: None,
        },
    }
}

/// Continues the sentence `the server's certificate`.
fn of_certificate(error: &CertificateError) -> (String, Option<&'static str>, Option<Remedy>) {
    let between =
        |from: UnixTime, to: UnixTime| lasting(to.as_secs().saturating_sub(from.as_secs()));
    let accept_any = Some(Remedy::AcceptAny);
    let of_names = Some("use a name that it has");
    let of_clock = Some("is this machine's clock right?");
    match error {
        CertificateError::UnknownIssuer => (
            "is signed by an unknown authority".into(),
            None,
            Some(Remedy::TrustAuthority),
        ),
        CertificateError::ExpiredContext { time, not_after } => {
            let ago = between(*not_after, *time);
            (format!("expired {ago} ago"), None, accept_any)
        }
        CertificateError::Expired => ("has expired".into(), None, accept_any),
        CertificateError::NotValidYetContext { time, not_before } => {
            let left = between(*time, *not_before);
            let why = format!("is not valid for another {left}");
            (why, of_clock, None)
        }
        CertificateError::NotValidYet => ("is not valid yet".into(), of_clock, None),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let expected = expected.to_str();
            let names = presented.iter().map(|name| {
                let name = name.strip_prefix("DnsName(\"").unwrap_or(name);
                name.strip_suffix("\")").unwrap_or(name)
            });
            let presented = names.collect::<Vec<_>>().join(", ");
            let why = format!("is not for '{expected}' (it is for {presented})");
            (why, of_names, accept_any)
        }
        CertificateError::NotValidForName => ("is for another name".into(), of_names, accept_any),
        // The default of `openssl req -x509`.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            let why = "is a CA certificate, not a server's";
            (why.into(), None, accept_any)
        }
        // The default of `openssl x509 -req` for many years.
        CertificateError::Other(other) if other.to_string().contains("UnsupportedCertVersion") => {
            let why = "is X.509 version 1, which has no host names (expected 3)";
            (why.into(), None, accept_any)
        }
        other => (format!("is not trusted: {other}"), None, accept_any),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The error with its help and its remedy.
    fn shown(typed: &str, error: &io::Error) -> String {
        let error = failure(&Url::parse(typed).expect("good"), error);
        let mut text = error.to_string();
        if let GetError::Failed { help, remedies, .. } = error {
            text.extend(help.map(|help| format!("\nhelp: {help}")));
            let remedies = remedies.iter();
            text.extend(remedies.map(|remedy| format!("\nremedy: {remedy:?}")));
        }
        text
    }

    fn said(certificate: CertificateError) -> String {
        let error = rustls::Error::InvalidCertificate(certificate);
        shown("https://h/", &io::Error::other(error))
    }

    #[test]
    fn certificates_are_told_about_in_words() {
        let at = |hour: u64| UnixTime::since_unix_epoch(Duration::from_secs(hour * 3600));
        let expired = CertificateError::ExpiredContext {
            time: at(15),
            not_after: at(10),
        };
        let text = said(expired);
        assert!(
            text.contains(
                "'https://h/': the server's certificate expired 5 hours ago\nremedy: AcceptAny"
            ),
            "{text}"
        );
        let early = CertificateError::NotValidYetContext {
            time: at(0),
            not_before: at(72),
        };
        assert!(said(early).contains("is not valid for another 3 days\nhelp: is this machine's"));
        let other = CertificateError::NotValidForNameContext {
            expected: "h".try_into().expect("a name"),
            presented: vec!["DnsName(\"o\")".into()],
        };
        assert!(said(other).contains(
            "is not for 'h' (it is for o)\nhelp: use a name that it has\nremedy: AcceptAny"
        ));
        assert!(said(CertificateError::UnknownIssuer).ends_with("\nremedy: TrustAuthority"));
    }

    #[test]
    fn clear_text_where_tls_is_expected_is_told_with_the_way_out() {
        let error = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        let text = shown("https://h/", &io::Error::other(error));
        assert_eq!(
            text,
            "cannot download 'https://h/': the server does not speak TLS there\n\
             help: use http:// there, or name the port of HTTPS"
        );
    }

    #[test]
    fn a_redirection_is_told_and_what_cannot_be_written_is_not_the_servers_fault() {
        let [asked, url] = ["http://h/", "http://o/"].map(|text| Url::parse(text).expect("good"));
        let refused = || io::Error::from_raw_os_error(111);
        let text = shown("h", &redirected(refused(), &asked, &url));
        assert!(
            text.contains("(ECONNREFUSED) (redirected to http://o/)"),
            "{text}"
        );
        assert!(text.contains("\nhelp: nothing listens there"), "{text}");
        let full = io::Error::from_raw_os_error(28);
        let text = shown("h", &unwritten(Path::new("x"), &full));
        assert_eq!(
            text,
            "cannot write 'x': no space left on device (ENOSPC)\n\
             help: free some space there, or choose another place"
        );
    }
}
