//! Why a download failed, in words, with the next step.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustls::CertificateError;
use rustls::pki_types::UnixTime;

use super::response::Head;
use super::url::Url;
use crate::messages::{Failure, cause, printable};

/// Seconds of a day.
const DAY_S: u64 = 24 * 60 * 60;

/// The content cannot be written: an error of this machine's, not of the server's.
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

/// `error`, met in writing what becomes `path`.
pub(super) fn unwritten(path: &Path, error: &io::Error) -> io::Error {
    let (path, cause) = (path.to_owned(), cause(error));
    io::Error::new(error.kind(), Unwritten { path, cause })
}

/// A response that is not the content.
pub(super) fn unexpected(head: &Head) -> io::Error {
    let status = head.status;
    io::Error::other(format!(
        "the server answers {status} (expected the content)"
    ))
}

/// `error`, met at `url`, which a redirection from `asked` led to.
pub(super) fn redirected(error: io::Error, asked: &Url, url: &Url) -> io::Error {
    if asked == url {
        return error;
    }
    let text = format!("{} (redirected to {url})", in_words(&error));
    io::Error::new(error.kind(), text)
}

/// The failure to download the URL that was typed.
pub(super) fn failure(typed: &str, error: &io::Error) -> Failure {
    let inner = error.get_ref();
    if let Some(unwritten) = inner.and_then(|e| e.downcast_ref::<Unwritten>()) {
        return Failure::new("write", unwritten.path.display(), &unwritten.cause);
    }
    let text = in_words(error);
    let failure = Failure::new("download", typed, &text);
    if text.starts_with(NOBODY) {
        return failure.help("name its authority with --cacert, or believe anyone with --insecure");
    }
    if text.contains("address information") {
        return failure.help("no server of this name is known: is it spelt right?");
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => failure.help("nobody listens there"),
        _ => failure,
    }
}

/// How the text of a certificate of unknown origin begins.
const NOBODY: &str = "the server's certificate is signed by nobody known here";

/// What an error says, for those who do not know the libraries it comes from.
fn in_words(error: &io::Error) -> String {
    let inner = error.get_ref();
    let Some(tls) = inner.and_then(|e| e.downcast_ref::<rustls::Error>()) else {
        return printable(&cause(error));
    };
    let rustls::Error::InvalidCertificate(certificate) = tls else {
        return printable(&format!("TLS: {tls}"));
    };
    let days = |from: UnixTime, to: UnixTime| to.as_secs().saturating_sub(from.as_secs()) / DAY_S;
    match certificate {
        CertificateError::UnknownIssuer => NOBODY.to_owned(),
        CertificateError::ExpiredContext { time, not_after } => {
            let days = days(*not_after, *time);
            format!("the server's certificate expired {days} days ago")
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            let days = days(*time, *not_before);
            format!("the server's certificate is not valid for another {days} days")
        }
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
            printable(&format!(
                "the server's certificate is not for '{expected}' (it is for {presented})"
            ))
        }
        _ => printable(&format!("the server's certificate: {tls}")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn said(certificate: CertificateError) -> String {
        let error = rustls::Error::InvalidCertificate(certificate);
        failure("https://h/", &io::Error::other(error)).to_string()
    }

    #[test]
    fn certificates_are_told_about_in_words() {
        let at = |day: u64| UnixTime::since_unix_epoch(Duration::from_secs(day * DAY_S));
        let expired = CertificateError::ExpiredContext {
            time: at(12),
            not_after: at(10),
        };
        let text = said(expired);
        assert!(text.ends_with("certificate expired 2 days ago"), "{text}");
        let early = CertificateError::NotValidYetContext {
            time: at(10),
            not_before: at(13),
        };
        assert!(said(early).ends_with("is not valid for another 3 days"));
        let other = CertificateError::NotValidForNameContext {
            expected: "h".try_into().expect("a name"),
            presented: vec!["DnsName(\"o\")".into()],
        };
        assert!(said(other).ends_with("is not for 'h' (it is for o)"));
        assert!(said(CertificateError::UnknownIssuer).contains("help: name its authority"));
    }

    #[test]
    fn a_redirection_is_told_and_what_cannot_be_written_is_not_the_servers_fault() {
        let [asked, url] = ["http://h/", "http://o/"].map(|text| Url::parse(text).expect("good"));
        let refused = || io::Error::from_raw_os_error(111);
        let text = failure("h", &redirected(refused(), &asked, &url)).to_string();
        assert!(
            text.contains("(ECONNREFUSED) (redirected to http://o/)"),
            "{text}"
        );
        assert!(text.ends_with("help: nobody listens there"), "{text}");
        let full = io::Error::from_raw_os_error(28);
        let text = failure("h", &unwritten(Path::new("x"), &full)).to_string();
        assert_eq!(
            text,
            "gannet: cannot write 'x': no space left on device (ENOSPC)"
        );
    }
}
