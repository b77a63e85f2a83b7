//! The PROXY protocol, versions 1 and 2: the first bytes of a connection, in which a proxy names
//! the client that it stands for.
//!
//! The header comes before everything else, TLS included. It is parsed from what has arrived so
//! far: an error is an error for any continuation, so the way in which the bytes are split makes no
//! difference.
//!
//! The further values of version 2 (TLVs) are skipped. Its checksum is not verified, as the
//! protocol permits: TCP has one, and a proxy that is trusted to name clients needs no other.

pub mod limits;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use self::limits::{HEADER_LEN_MAX, V1_LEN_MAX};

/// The connection's client, as its proxy describes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Origin {
    /// The proxy speaks for itself, such as to check the server's health (`LOCAL`).
    Proxy,
    /// A client that has no address (`AF_UNIX`), or whose address the proxy does not know
    /// (`UNKNOWN`, `AF_UNSPEC`) or reaches in another way than by TCP.
    Unknown,
    /// The client with this address.
    Client(SocketAddr),
}

/// The bytes are not, and cannot become, a header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Malformed;

/// Parses the header at the beginning of `input`: the origin of the connection, and the header's
/// length in bytes. `None` if the header is not complete.
///
/// # Errors
/// The header is malformed, or longer than [`HEADER_LEN_MAX`].
pub fn parse(input: &[u8]) -> Result<Option<(Origin, usize)>, Malformed> {
    if is_begun(input, V2_SIGNATURE) {
        parse_v2(input)
    } else if is_begun(input, V1_SIGNATURE) {
        parse_v1(input)
    } else {
        Err(Malformed)
    }
}

const V1_SIGNATURE: &[u8] = b"PROXY ";

/// Chosen by the protocol so that no server mistakes it for a request.
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The signature, version and command, family and transport, length.
const V2_FIXED_LEN: usize = 16;

/// Whether `input` starts with `signature`, as far as it goes.
fn is_begun(input: &[u8], signature: &[u8]) -> bool {
    let len = input.len().min(signature.len());
    input[..len] == signature[..len]
}

/// `PROXY TCP4 192.0.2.1 192.0.2.2 56324 443 CRLF`.
fn parse_v1(input: &[u8]) -> Result<Option<(Origin, usize)>, Malformed> {
    let longest = &input[..input.len().min(V1_LEN_MAX)];
    let Some(end) = memchr::memchr(b'\n', longest) else {
        return match longest.len() == V1_LEN_MAX {
            true => Err(Malformed),
            false => Ok(None),
        };
    };
    let line = longest[..end].strip_suffix(b"\r").ok_or(Malformed)?;
    let line = str::from_utf8(line).map_err(|_| Malformed)?;
    let mut words = line.split(' ').skip(1);
    let mut word = || words.next().ok_or(Malformed);
    let source = match word()? {
        "UNKNOWN" => return Ok(Some((Origin::Unknown, end + 1))),
        "TCP4" => {
            let source = address::<Ipv4Addr>(word()?)?;
            address::<Ipv4Addr>(word()?)?;
            IpAddr::V4(source)
        }
        "TCP6" => {
            let source = address::<Ipv6Addr>(word()?)?;
            address::<Ipv6Addr>(word()?)?;
            IpAddr::V6(source)
        }
        _ => return Err(Malformed),
    };
    let from = port(word()?)?;
    port(word()?)?;
    if words.next().is_some() {
        return Err(Malformed);
    }
    let client = SocketAddr::new(source, from);
    Ok(Some((Origin::Client(client), end + 1)))
}

fn address<A: std::str::FromStr>(text: &str) -> Result<A, Malformed> {
    text.parse().map_err(|_| Malformed)
}

fn port(text: &str) -> Result<u16, Malformed> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let has_zeros = text.len() > 1 && text.starts_with('0');
    text.parse()
        .ok()
        .filter(|_| is_plain && !has_zeros)
        .ok_or(Malformed)
}

fn parse_v2(input: &[u8]) -> Result<Option<(Origin, usize)>, Malformed> {
    let Some((fixed, rest)) = input.split_at_checked(V2_FIXED_LEN) else {
        return Ok(None);
    };
    let [command, family] = [fixed[12], fixed[13]];
    let len = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if !matches!(command, LOCAL | PROXY) || V2_FIXED_LEN + len > HEADER_LEN_MAX {
        return Err(Malformed);
    }
    // The family of LOCAL is to be ignored.
    let addresses_len = match family {
        _ if command == LOCAL => 0,
        0x00..=0x02 => 0,
        0x10..=0x12 => IPV4_LEN,
        0x20..=0x22 => IPV6_LEN,
        0x30..=0x32 => UNIX_LEN,
        _ => return Err(Malformed),
    };
    if len < addresses_len {
        return Err(Malformed);
    }
    let Some(block) = rest.get(..len) else {
        return Ok(None);
    };
    let origin = match (command, family) {
        (PROXY, TCP_IPV4) => {
            let source: [u8; 4] = part(block, 0);
            client(source.into(), part(block, 8))
        }
        (PROXY, TCP_IPV6) => {
            let source: [u8; 16] = part(block, 0);
            client(source.into(), part(block, 32))
        }
        (PROXY, _) => Origin::Unknown,
        _ => Origin::Proxy,
    };
    Ok(Some((origin, V2_FIXED_LEN + len)))
}

/// Version 2, and its two commands.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;

/// Family and transport of the connections that a server of HTTP over TCP can stand behind.
const TCP_IPV4: u8 = 0x11;
const TCP_IPV6: u8 = 0x21;

/// Lengths of the addresses of each family: source and destination, with ports where they have any.
const IPV4_LEN: usize = 12;
const IPV6_LEN: usize = 36;
const UNIX_LEN: usize = 216;

/// Bytes of a block whose length was checked.
fn part<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&block[at..at + N]);
    part
}

fn client(address: IpAddr, port: [u8; 2]) -> Origin {
    Origin::Client(SocketAddr::new(address, u16::from_be_bytes(port)))
}

#[cfg(test)]
mod tests;
