//! Which ACME server: the URL of its directory.

use url::{Host, Position, Url};

use super::error::AcmeError;

/// Reads the URL of a directory: HTTPS, but on this machine.
pub(super) fn directory(typed: &str) -> Result<Url, AcmeError> {
    parse(typed).map_err(|why| AcmeError::Url(typed.to_owned(), why))
}

/// Whether this can be the URL of an ACME server's directory.
///
/// # Errors
/// Why it cannot: it is no URL, or one over which nothing is ordered.
pub fn check_server(typed: &str) -> Result<(), String> {
    parse(typed).map(drop)
}

fn parse(typed: &str) -> Result<Url, String> {
    let url = Url::parse(typed).map_err(|error| error.to_string())?;
    match url.scheme() {
        "https" if url.has_host() => Ok(url),
        "http" if is_local(&url) => Ok(url),
        "http" => Err("in clear text, only a server at 127.0.0.1 or [::1] is used".into()),
        _ => Err("not a URL with https".into()),
    }
}

/// Whether only this machine sees what is sent there.
pub(super) fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        _ => false,
    }
}

/// What the files of a server are named after: its host, to be read, and all of its URL.
pub(super) fn file_name(directory: &Url) -> String {
    let digest = blake3::hash(directory.as_str().as_bytes()).to_hex();
    let host = plain(&directory[Position::BeforeHost..Position::AfterHost]);
    format!("{host}-{}", &digest[..16])
}

/// What the file of an account was named after before: servers of one host shared it.
pub(super) fn former_file_name(directory: &Url) -> String {
    plain(&directory[Position::BeforeHost..Position::AfterPort])
}

fn plain(text: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '-');
    text.replace(|it| !is_plain(it), "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_asked_over_https_or_on_this_machine() {
        for url in [
            "https://ca.test/directory",
            "https://ca.test:14000/dir",
            "http://127.0.0.1:14000/dir",
            "http://[::1]:1/dir",
        ] {
            check_server(url).expect(url);
        }
        for (url, why) in [
            ("", "relative URL"),
            ("nowhere", "relative URL"),
            ("ca.test/directory", "relative URL"),
            ("https://", "empty host"),
            ("http://ca.test/dir", "in clear text"),
            ("http://localhost/dir", "in clear text"),
            ("http://192.0.2.1/dir", "in clear text"),
            ("ftp://ca.test/dir", "not a URL with https"),
            ("localhost:14000", "not a URL with https"),
            ("data:a", "not a URL with https"),
        ] {
            let error = check_server(url).expect_err(url);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn each_directory_of_a_host_has_files_of_its_own() {
        let name = |url: &str| file_name(&Url::parse(url).expect("a URL"));
        let one = name("https://ca.test/acme/one/directory");
        assert!(one.starts_with("ca.test-") && one.len() == "ca.test-".len() + 16);
        assert_ne!(one, name("https://ca.test/acme/two/directory"));
        assert_ne!(one, name("https://ca.test:444/acme/one/directory"));
        assert!(name("http://[::1]:1/../../etc").starts_with("___1_-"));
    }
}
