//! Parses the texts of values: listen addresses, content types, fields, switches.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gannet_archive::signature::PublicKey;
use gannet_content::host_name::host_name;
use gannet_content::limits::SUFFIX_MAX;
use gannet_content::mime::Types;
use gannet_io::named_file;
use gannet_io::unix_socket::Access;
use gannet_server::config::{HttpVersions, ListenAddress, Scheme, UnixAddress};
use gannet_server::{Network, Rate};
use gannet_site::pack::is_secret_key;

use crate::alt_svc;
use crate::command_line::nearest::nearest;
use crate::command_line::settings::{ColourChoice, Listen};
use crate::messages::cause;

/// The least room of releases on demand, in bytes: the index of a large site, and some files of it.
pub(crate) const ON_DEMAND_LEAST: u64 = 64 << 20;

/// The last value as text.
///
/// # Errors
/// The value is not UTF-8.
pub fn text(values: &[OsString]) -> Result<&str, String> {
    let value = values.last().map(OsString::as_os_str).unwrap_or_default();
    value.to_str().ok_or_else(|| "not UTF-8".to_owned())
}

/// The last value as a non-empty path.
///
/// # Errors
/// The path is empty.
pub fn path(values: &[OsString]) -> Result<PathBuf, String> {
    match values.last() {
        Some(value) if !value.is_empty() => Ok(PathBuf::from(value)),
        _ => Err("an empty path".into()),
    }
}

/// All values as non-empty paths.
///
/// # Errors
/// A path is empty.
pub fn paths(values: &[OsString]) -> Result<Vec<PathBuf>, String> {
    values
        .iter()
        .map(|value| path(std::slice::from_ref(value)))
        .collect()
}

/// Parses `true` or `false`, in the spellings usual in environment variables.
///
/// # Errors
/// The value is neither.
pub fn switch(values: &[OsString]) -> Result<bool, String> {
    match text(values)?.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" | "" => Ok(false),
        _ => Err("neither true nor false".into()),
    }
}

/// A whole number.
///
/// # Errors
/// The value is not a whole number, or out of the type's range.
pub fn number<N: std::str::FromStr>(values: &[OsString], range: &str) -> Result<N, String> {
    text(values)?
        .trim()
        .parse()
        .map_err(|_| format!("not a whole number {range}"))
}

/// One of a closed set of values.
///
/// # Errors
/// The value is not in the set; the message names the set, and the nearest member if there is one.
pub fn choice<T: Clone>(values: &[OsString], set: &[(&'static str, T)]) -> Result<T, String> {
    let given = text(values)?;
    if let Some((_, value)) = set.iter().find(|(name, _)| *name == given) {
        return Ok(value.clone());
    }
    let names: Vec<&str> = set.iter().map(|(name, _)| *name).collect();
    let meant = match nearest(given, names.iter().copied()) {
        Some(name) => format!(" (did you mean '{name}'?)"),
        None => String::new(),
    };
    Err(format!("not one of {}{meant}", names.join(", ")))
}

/// Where compressed text of a directory comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Compression {
    /// Copies that lie there are sent.
    pub is_stored: bool,
    /// Text without one is compressed while it is served.
    pub is_made: bool,
    /// The folder of the copies, if they are not beside their originals.
    pub copies: Option<PathBuf>,
}

impl Default for Compression {
    /// `auto`.
    fn default() -> Self {
        Self {
            is_stored: true,
            is_made: true,
            copies: None,
        }
    }
}

/// Parses `auto`, `stored`, `off` or a path, which has a slash.
///
/// # Errors
/// The value is none of these.
pub fn compression(values: &[OsString]) -> Result<Compression, String> {
    let set = [
        ("auto", (true, true)),
        ("stored", (true, false)),
        ("off", (false, false)),
    ];
    let copies = path(values)
        .ok()
        .filter(|it| it.as_os_str().as_bytes().contains(&b'/'));
    let (is_stored, is_made) = match &copies {
        Some(_) => (true, true),
        None => choice(values, &set)
            .map_err(|wrong| format!("{wrong}, and no path: a folder here is ./NAME"))?,
    };
    Ok(Compression {
        is_stored,
        is_made,
        copies,
    })
}

/// Parses versions of HTTP: `1,2,3`.
///
/// # Errors
/// One is unknown, or there is none.
pub fn http_versions(text: &str) -> Result<HttpVersions, String> {
    let mut versions = HttpVersions::NONE;
    for word in text.split(',').map(str::trim) {
        match word {
            "1" | "1.1" => versions.http1 = true,
            "2" => versions.http2 = true,
            "3" => versions.http3 = true,
            _ => return Err("not a list of 1, 2 and 3".into()),
        }
    }
    Ok(versions)
}

/// When to use colours.
///
/// # Errors
/// The value is not one of the choices.
pub fn colour(values: &[OsString]) -> Result<ColourChoice, String> {
    let set = [
        ("auto", ColourChoice::Auto),
        ("always", ColourChoice::Always),
        ("never", ColourChoice::Never),
    ];
    choice(values, &set)
}

/// Parses an address to listen on: `127.0.0.1:8080`, `[::1]:8080`, `unix:PATH`; `:8080`, `8080` and
/// `localhost:8080` mean loopback; each may end in `,proxy`.
///
/// # Errors
/// The value has none of these forms.
pub fn listen(value: &OsString) -> Result<Listen, String> {
    if let Some(rest) = value.as_bytes().strip_prefix(b"unix:") {
        let (address, is_proxied) = unix_address(rest)?;
        return Ok(Listen {
            address: ListenAddress::Unix(address),
            scheme: None,
            is_proxied,
        });
    }
    let text = value.to_str().ok_or("not UTF-8")?.trim();
    let (text, is_proxied) = match text.strip_suffix(PROXIED) {
        Some(text) => (text, true),
        None => (text, false),
    };
    if let Some((_, option)) = text.split_once(',') {
        return Err(format!(
            "an address has no option '{option}': ',proxy' is the only one; further addresses have a flag each"
        ));
    }
    let schemes = [("http://", Scheme::Http), ("https://", Scheme::Https)];
    let mut schemes = schemes.into_iter();
    let named = schemes.find_map(|(prefix, scheme)| Some((text.strip_prefix(prefix)?, scheme)));
    let (text, scheme) = match named {
        Some((rest, scheme)) => (rest.strip_suffix('/').unwrap_or(rest), Some(scheme)),
        None => (text, None),
    };
    Ok(Listen {
        address: ListenAddress::Tcp(socket_address(text)?),
        scheme,
        is_proxied,
    })
}

/// Ends an address whose clients are proxies that name their own.
const PROXIED: &str = ",proxy";

/// Parses `PATH,mode=0660,group=NAME,proxy`; returns whether it is proxied. A comma not followed by
/// `WORD=` or `proxy` belongs to the path.
fn unix_address(text: &[u8]) -> Result<(UnixAddress, bool), String> {
    let mut access = Access::default();
    let mut is_proxied = false;
    let mut path = text;
    while let Some(at) = path.iter().rposition(|byte| *byte == b',') {
        if &path[at..] == PROXIED.as_bytes() {
            is_proxied = true;
            path = &path[..at];
            continue;
        }
        let option = str::from_utf8(&path[at + 1..]).unwrap_or_default();
        let is_word = |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase());
        let Some((word, value)) = option.split_once('=').filter(|(word, _)| is_word(word)) else {
            break;
        };
        match word {
            "mode" => {
                let mode = u32::from_str_radix(value, 8)
                    .ok()
                    .filter(|mode| *mode <= 0o777);
                let mode = mode.ok_or_else(|| {
                    format!("'{value}' is not a mode from 0000 to 0777, such as 0660")
                })?;
                access.mode = Some(mode);
            }
            "group" if !value.is_empty() => access.group = Some(value.to_owned()),
            "group" => return Err("no name after 'group='".into()),
            _ => {
                return Err(format!(
                    "a Unix socket has no option '{word}', only mode, group and proxy"
                ));
            }
        }
        path = &path[..at];
    }
    let path = std::ffi::OsStr::from_bytes(path);
    // sun_path of sockaddr_un has 108 bytes with its final zero.
    match path.len() {
        0 => Err("no path after 'unix:'".into()),
        1..=107 => {
            let path = PathBuf::from(path);
            Ok((UnixAddress { path, access }, is_proxied))
        }
        len => Err(format!(
            "a path of {len} bytes; a Unix socket's may have 107"
        )),
    }
}

/// Parses listen addresses. A list in an environment variable is split at commas, which also
/// separates the options of an address from it: they are joined again.
///
/// # Errors
/// A value is not an address.
pub fn listens(values: &[OsString]) -> Result<Vec<Listen>, String> {
    let mut whole: Vec<OsString> = Vec::new();
    for value in values {
        let is_option = |option: &str| value.as_bytes().starts_with(option.as_bytes());
        match whole.last_mut() {
            Some(last)
                if value.as_bytes() == b"proxy"
                    || last.as_bytes().starts_with(b"unix:")
                        && (is_option("mode=") || is_option("group=")) =>
            {
                last.push(",");
                last.push(value);
            }
            _ => whole.push(value.clone()),
        }
    }
    whole.iter().map(listen).collect()
}

/// A TCP address: a Unix socket is an error.
///
/// # Errors
/// The value is not a TCP address.
pub fn tcp_address(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    if text.starts_with("unix:") {
        return Err("TCP only: write ADDR:PORT, [ADDR]:PORT or a port".into());
    }
    socket_address(text).map_err(|cause| cause.replace(", a port, or unix:PATH", ", or a port"))
}

/// All values as TCP addresses.
///
/// # Errors
/// One is not.
pub fn tcp_addresses(values: &[OsString]) -> Result<Vec<SocketAddr>, String> {
    values
        .iter()
        .map(|value| tcp_address(text(std::slice::from_ref(value))?))
        .collect()
}

/// Parses `ADDR:PORT`, or a bare port on loopback.
///
/// # Errors
/// The value is neither.
pub fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let port = text
        .strip_prefix("localhost:")
        .or_else(|| text.strip_prefix(':'))
        .unwrap_or(text);
    if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) {
        let port = port
            .parse()
            .map_err(|_| "not a port from 0 to 65535".to_owned())?;
        return Ok(SocketAddr::new(loopback, port));
    }
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
        return Err("an address without a port: write ADDR:PORT, or [ADDR]:PORT for IPv6".into());
    }
    let (host, port) = text.rsplit_once(':').unwrap_or_default();
    let is_ip = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    if is_ip || host == "localhost" || (host.is_empty() && !port.is_empty()) {
        return Err(format!("'{port}' is not a port from 0 to 65535"));
    }
    if host == "*" {
        return Err("not an address but '*': write 0.0.0.0:PORT, or [::]:PORT for IPv6".into());
    }
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if !host.is_empty() && host.bytes().all(|it| it.is_ascii_digit() || it == b'.') {
        return Err(format!(
            "'{host}' is not an IP address: write ADDR:PORT, or a port"
        ));
    }
    if !host.is_empty() && host.bytes().all(is_letter) {
        return Err(format!(
            "not an address but a name, '{host}': write the address of an interface, ADDR:PORT; \
             '--site {host}=PATH' serves a site for a name"
        ));
    }
    Err("not an address: write ADDR:PORT, [ADDR]:PORT, a port, or unix:PATH".into())
}

/// Maximum length in bytes of a public key file, which has a comment and one line.
const PUBLIC_KEY_LEN_MAX: u64 = 64 << 10;

/// Parses a minisign public key in Base64, or reads it from the named file. Returns the Base64.
///
/// # Errors
/// The value is neither.
pub fn public_key(text: &str) -> Result<String, String> {
    if PublicKey::parse(text).is_some() {
        return Ok(text.trim().to_owned());
    }
    let content = named_file::read_text(Path::new(text), PUBLIC_KEY_LEN_MAX).map_err(|error| {
        let error = cause(&error);
        format!("neither a minisign public key nor a file that can be read: {error}")
    })?;
    if is_secret_key(&content) {
        return Err(
            "it is a secret key, which stays with the signer; the public one is in the .pub file \
                    beside it"
                .into(),
        );
    }
    let key = content
        .lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty());
    key.filter(|key| PublicKey::parse(key).is_some())
        .map(str::to_owned)
        .ok_or_else(|| "the file has no minisign public key".to_owned())
}

/// In place of hosts that certificates are ordered for: those of sites, when they are requested.
pub const ON_DEMAND: &str = "on-demand";

/// Hosts that certificates are ordered for, none twice.
///
/// # Errors
/// One is neither a name without a wildcard nor an IP address.
pub fn acme_hosts(values: &[OsString]) -> Result<Vec<String>, String> {
    let mut hosts = Vec::with_capacity(values.len());
    for value in values {
        let host = acme_host(&value.to_string_lossy())?;
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    Ok(hosts)
}

fn acme_host(typed: &str) -> Result<String, String> {
    let inner = typed.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    if let Ok(address) = inner.unwrap_or(typed).parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    if typed.contains('*') {
        return Err(format!(
            "'{typed}': a wildcard needs a challenge by DNS, which gannet does not do; name each host"
        ));
    }
    host_name(typed).map_err(|why| format!("'{typed}': {why}"))
}

/// The directory of an ACME server, or `staging`.
///
/// # Errors
/// It is no URL over which certificates are ordered.
pub fn acme_server(typed: &str) -> Result<String, String> {
    if typed != "staging" {
        check_acme_server(typed).map_err(|why| {
            format!("{why}; give https://HOST/PATH, a server's directory, or 'staging'")
        })?;
    }
    Ok(typed.to_owned())
}

#[cfg(feature = "fleet")]
fn check_acme_server(typed: &str) -> Result<(), String> {
    gannet_fleet::acme::check_server(typed)
}

/// Without the feature, nothing is ordered, which an error says instead.
#[cfg(not(feature = "fleet"))]
fn check_acme_server(_: &str) -> Result<(), String> {
    Ok(())
}

/// The thumbprint of a key (RFC 7638): SHA-256 in base64url.
///
/// # Errors
/// It is not.
pub fn thumbprint(typed: &str) -> Result<String, String> {
    const LEN: usize = 43;
    let is_of_it = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    match typed.len() == LEN && typed.bytes().all(is_of_it) {
        true => Ok(typed.to_owned()),
        false => Err(format!(
            "not a thumbprint: {LEN} letters, digits, '-' and '_'"
        )),
    }
}

/// Parses `SUFFIX=TYPE`, with or without the suffix's dot.
///
/// # Errors
/// The value has another form.
pub fn content_type(value: &OsString) -> Result<(String, String), String> {
    let text = value.to_str().ok_or("not UTF-8")?;
    let form = || "not of the form SUFFIX=TYPE, such as md=text/markdown".to_owned();
    let (suffix, media_type) = text.split_once('=').ok_or_else(form)?;
    let suffix = suffix.trim().trim_start_matches('.').to_ascii_lowercase();
    let media_type = media_type.trim();
    let (main, rest) = media_type.split_once('/').ok_or_else(form)?;
    let sub = rest.split(';').next().unwrap_or_default().trim();
    if suffix.is_empty() || suffix.contains('/') || !is_token(main) || !is_token(sub) {
        return Err(form());
    }
    field_value(media_type)?;
    if Types::new([(&*suffix, media_type)]).is_err() {
        let last = match suffix.rsplit_once('.') {
            Some((_, last)) => format!("'{last}' alone: what follows the last dot of a name"),
            None => format!("one of at most {SUFFIX_MAX} letters"),
        };
        return Err(format!("'{suffix}' is not a suffix; give {last}"));
    }
    Ok((suffix, media_type.to_owned()))
}

/// Parses `Name: value`; the name is returned in lower case.
///
/// # Errors
/// The value has another form (RFC 9110 5.1, 5.5), or the field frames or describes the message and
/// is set by the server alone.
pub fn field(value: &OsString) -> Result<(String, String), String> {
    /// Fields that would break framing, or contradict the server's own, if set from outside.
    const OWN: [&str; 15] = [
        "accept-ranges",
        "connection",
        "content-encoding",
        "content-length",
        "content-range",
        "date",
        "etag",
        "keep-alive",
        "last-modified",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "location",
        "content-type",
    ];
    let text = value.to_str().ok_or("not UTF-8")?;
    let (name, value) = text
        .split_once(':')
        .ok_or("not of the form 'Name: value'".to_owned())?;
    let name = name.trim().to_ascii_lowercase();
    if !is_token(&name) {
        return Err("not a field name before the colon".into());
    }
    if OWN.contains(&name.as_str()) {
        return Err(format!("gannet itself decides '{name}'"));
    }
    let value = field_value(value)?;
    if name == "alt-svc" {
        alt_svc::check(&value)?;
    }
    Ok((name, value))
}

/// A field's value without the white space around it.
///
/// # Errors
/// RFC 9110 section 5.5: visible characters, spaces and tabs; no line ends, which would start a new
/// field.
pub fn field_value(value: &str) -> Result<String, String> {
    let value = value.trim_matches([' ', '\t']);
    match value.chars().find(|c| c.is_control() && *c != '\t') {
        Some(control) => Err(format!("a control character ({control:?}) in the value")),
        None if value.len() > 4096 => Err("a value longer than 4096 bytes".into()),
        None => Ok(value.to_owned()),
    }
}

/// Parses the proxies to trust: networks, and whether the clients of Unix sockets are among them.
///
/// # Errors
/// A value is none of these.
pub fn trusted(values: &[OsString]) -> Result<(Vec<Network>, bool), String> {
    let mut all = Vec::new();
    let mut is_unix_trusted = false;
    for value in values {
        for part in value.to_str().ok_or("not UTF-8")?.split(',').map(str::trim) {
            match part {
                "unix" => is_unix_trusted = true,
                network => all.extend(Network::parse(network)?),
            }
        }
    }
    Ok((all, is_unix_trusted))
}

/// Parses networks. A value may be a list, as in the environment.
///
/// # Errors
/// A value is not a network.
pub fn networks(values: &[OsString]) -> Result<Vec<Network>, String> {
    match trusted(values)? {
        (networks, false) => Ok(networks),
        (_, true) => Err("clients of Unix sockets have no address".into()),
    }
}

/// Parses a rate: `20/s`, `600/m`, `1000/h`, each perhaps followed by `,burst=N`.
///
/// # Errors
/// It has none of these forms, or is 0.
pub fn rate(text: &str) -> Result<Rate, String> {
    let cause = || "not a rate such as 20/s, 600/m or 20/s,burst=50".to_owned();
    let (rate, burst) = match text.split_once(',') {
        Some((rate, burst)) => (rate, Some(burst.strip_prefix("burst=").ok_or_else(cause)?)),
        None => (text, None),
    };
    let burst = burst.map(str::parse).transpose().map_err(|_| cause())?;
    let (count, unit) = rate.split_once('/').ok_or_else(cause)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(cause()),
    };
    let count = count.parse().map_err(|_| cause())?;
    Rate::new(count, seconds * 1_000_000_000, burst).ok_or_else(cause)
}

/// Whether it is a token (RFC 9110 section 5.6.2).
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_are_read_in_all_their_forms() {
        let check = |text: &str, expect: Result<&str, &str>| {
            let got = listen(&OsString::from(text)).map(|listen| match listen.address {
                ListenAddress::Tcp(address) => address.to_string(),
                ListenAddress::Unix(UnixAddress { path, access }) => match access {
                    Access { mode, group } if mode.is_some() || group.is_some() => {
                        let mode = mode.map(|mode| format!("{mode:o}"));
                        format!("{} {mode:?} {group:?}", path.display())
                    }
                    _ => path.display().to_string(),
                },
            });
            match expect {
                Ok(expect) => assert_eq!(got.as_deref(), Ok(expect), "{text:?}"),
                Err(part) => {
                    let cause = got.expect_err(text);
                    assert!(cause.contains(part), "{text:?}: {cause:?} lacks {part:?}");
                }
            }
        };
        check("8080", Ok("127.0.0.1:8080"));
        check("http://8080", Ok("127.0.0.1:8080"));
        check("8080,proxy", Ok("127.0.0.1:8080"));
        check("https://[::1]:8443/,proxy", Ok("[::1]:8443"));
        check("8080,proxy=v2", Err("no option 'proxy=v2'"));
        check("127.0.0.1:80,proxi", Err("no option 'proxi'"));
        check("127.0.0.1:99999", Err("'99999' is not a port from 0 to"));
        check("localhost:80a", Err("'80a' is not a port from 0 to"));
        check("[::1]:x", Err("'x' is not a port from 0 to"));
        check(":80a", Err("'80a' is not a port from 0 to"));
        check("300.1.1.1:80", Err("'300.1.1.1' is not an IP address"));
        check("https://[::1]:8443/", Ok("[::1]:8443"));
        check("https://192.0.2.1", Err("without a port"));
        check("ftp://192.0.2.1:21", Err("not an address"));
        check(":8080", Ok("127.0.0.1:8080"));
        check("localhost:8080", Ok("127.0.0.1:8080"));
        check("0.0.0.0:80", Ok("0.0.0.0:80"));
        check("[::1]:8080", Ok("[::1]:8080"));
        check("unix:/run/gannet.sock", Ok("/run/gannet.sock"));
        check(
            "unix:/s,mode=0660,group=www-data",
            Ok("/s Some(\"660\") Some(\"www-data\")"),
        );
        check("unix:/s,group=33", Ok("/s None Some(\"33\")"));
        check("unix:/a,b", Ok("/a,b"));
        check("unix:/a,b,mode=600", Ok("/a,b Some(\"600\") None"));
        check("unix:/a,mode=0999", Err("not a mode"));
        check("unix:/a,mode=1777", Err("not a mode"));
        check("unix:/a,group=", Err("no name after"));
        check("unix:/a,user=x", Err("no option 'user'"));
        check("unix:,mode=0600", Err("no path"));
        check("65536", Err("0 to 65535"));
        check("127.0.0.1", Err("without a port"));
        check("::1", Err("without a port"));
        check("[::1]", Err("without a port"));
        check("example.org:80", Err("not an address but a name"));
        check("*:80", Err("write 0.0.0.0:PORT"));
        check("unix:", Err("no path"));
        check("", Err("not an address"));
        check(&format!("unix:/{}", "x".repeat(107)), Err("107"));
    }

    #[test]
    fn fields_are_checked_and_framing_is_out_of_reach() {
        let check = |text: &str, expect: Option<(&str, &str)>| {
            let got = field(&OsString::from(text)).ok();
            let expect = expect.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(got, expect, "{text:?}");
        };
        check("X-Frame-Options: DENY", Some(("x-frame-options", "DENY")));
        check("Alt-Svc: clear", Some(("alt-svc", "clear")));
        check("Alt-Svc: h3=:443", None);
        check(
            "cache-control:no-store",
            Some(("cache-control", "no-store")),
        );
        check("x-empty:", Some(("x-empty", "")));
        check("no colon", None);
        check("bad name: x", None);
        check(": x", None);
        check("x: a\r\nset-cookie: b", None);
        check("Content-Length: 5", None);
        check("Transfer-Encoding: chunked", None);
    }

    #[test]
    fn content_types_are_checked() {
        let check = |text: &str, expect: Option<(&str, &str)>| {
            let got = content_type(&OsString::from(text)).ok();
            let expect = expect.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(got, expect, "{text:?}");
        };
        check("md=text/markdown", Some(("md", "text/markdown")));
        check(
            ".MD = text/markdown; charset=utf-8",
            Some(("md", "text/markdown; charset=utf-8")),
        );
        check("md", None);
        check("=text/plain", None);
        check("tar.gz=text/plain", None);
        check("suffix-of-seventeen=text/plain", None);
        check("md=text", None);
        check("md=text/", None);
        check("md=text/plain\n", Some(("md", "text/plain")));
        check("md=text/plain;\r\nx: y", None);
    }
}
