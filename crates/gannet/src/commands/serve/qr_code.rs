//! The QR code of the served address, so that a phone opens it without typing.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use gannet_server::config::{ListenAddress, Scheme};
use qrcode::{Color, EcLevel, QrCode};

use crate::command_line::settings::Settings;
use crate::commands::serve::Terminal;
use crate::commands::serve::addresses::{public_urls, url, urls};

/// Light modules around the code, which scanners need (ISO/IEC 18004 section 9.1).
const QUIET: usize = 4;

/// The code to print at start: if the operator wants one, of the first address that there is; by
/// default on a terminal, of one that other machines reach.
#[must_use]
pub(super) fn wanted(
    settings: &Settings,
    addresses: &[(ListenAddress, Scheme)],
    interfaces: &[IpAddr],
    terminal: &Terminal,
) -> Option<String> {
    let is_wanted = settings.qr;
    if !is_wanted.unwrap_or(terminal.is_output) {
        return None;
    }
    let is_tcp = |one: &&(ListenAddress, Scheme)| matches!(one.0, ListenAddress::Tcp(_));
    let first = || {
        let (address, scheme) = addresses.iter().find(is_tcp)?;
        Some(urls(address, *scheme, interfaces).swap_remove(0).0)
    };
    let hosts = &settings.tls.acme.hosts;
    let mut public = addresses
        .iter()
        .flat_map(|one| public_urls(&one.0, one.1, hosts));
    let found = public.next();
    let found = found.or_else(|| reachable(addresses, interfaces, &routed_addresses()));
    let url = found.or_else(|| is_wanted.and_then(|_| first()))?;
    render(&url, terminal.colour)
}

/// The URL that a code shows: the first one by which other machines can connect, if possible
/// encrypted.
///
/// Of several interfaces the one counts that `preferred` names: a machine with containers has many
/// addresses that no other machine can reach.
fn reachable(
    addresses: &[(ListenAddress, Scheme)],
    interfaces: &[IpAddr],
    preferred: &[IpAddr],
) -> Option<String> {
    let of_scheme = |wanted: Scheme| {
        let tcp = addresses.iter().filter_map(move |one| match one {
            (ListenAddress::Tcp(bound), scheme) if *scheme == wanted => Some(bound),
            _ => None,
        });
        let address = |bound: &SocketAddr| {
            let is_same = |ip: &&IpAddr| ip.is_ipv4() == bound.is_ipv4();
            match bound.ip() {
                ip if ip.is_loopback() => None,
                ip if !ip.is_unspecified() => Some(SocketAddr::new(ip, bound.port())),
                _ => {
                    let known = preferred.iter().filter(|ip| interfaces.contains(ip));
                    let ip = known.chain(interfaces).find(is_same)?;
                    Some(SocketAddr::new(*ip, bound.port()))
                }
            }
        };
        tcp.clone()
            .find_map(address)
            .map(|found| url(found, wanted))
    };
    of_scheme(Scheme::Https).or_else(|| of_scheme(Scheme::Http))
}

/// The addresses from which this machine would reach others, by the kernel's routes. Connecting a
/// datagram socket sends nothing; the addresses are those of documentation (RFC 5737, RFC 3849).
fn routed_addresses() -> Vec<IpAddr> {
    let from = |any: &str, other: &str| {
        let socket = UdpSocket::bind((any.parse::<IpAddr>().ok()?, 0)).ok()?;
        socket.connect((other.parse::<IpAddr>().ok()?, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let both = [("0.0.0.0", "192.0.2.1"), ("::", "2001:db8::1")];
    let found = both.iter().filter_map(|(any, other)| from(any, other));
    found.collect()
}

/// The code of a text, two rows of modules in a line; `None` if the text is too long for a code.
///
/// With colours it is black on white in any terminal. Without them light modules are drawn, since
/// most terminals are dark; scanners mostly read the opposite, too.
fn render(text: &str, colour: bool) -> Option<String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
    let (width, modules) = (code.width(), code.to_colors());
    let is_drawn = |x: usize, y: usize| {
        let inside = (QUIET..QUIET + width).contains(&x) && (QUIET..QUIET + width).contains(&y);
        let is_dark = inside && modules[(y - QUIET) * width + x - QUIET] == Color::Dark;
        is_dark == colour
    };
    let side = width + 2 * QUIET;
    let mut lines = String::new();
    for y in (0..side).step_by(2) {
        lines.push_str(if colour { "\x1b[38;5;16;48;5;231m" } else { "" });
        for x in 0..side {
            // The number of rows is odd: below the last one is nothing.
            lines.push(match (is_drawn(x, y), y + 1 < side && is_drawn(x, y + 1)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            });
        }
        lines.push_str(if colour { "\x1b[0m\n" } else { "\n" });
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_one_that_others_reach() {
        let check = |listen: &[(&str, Scheme)], expect: Option<&str>| {
            let addresses: Vec<_> = listen
                .iter()
                .map(|(address, scheme)| {
                    let address = address.parse().expect("an address of the test");
                    (ListenAddress::Tcp(address), *scheme)
                })
                .collect();
            let ip = |text: &str| text.parse::<IpAddr>().expect("an address of the test");
            let interfaces = ["172.17.0.1", "192.0.2.7", "2001:db8::7"].map(ip);
            // The last one is not an interface's, as behind a change of addresses.
            let preferred = ["198.51.100.1", "192.0.2.7"].map(ip);
            let found = reachable(&addresses, &interfaces, &preferred);
            assert_eq!(found.as_deref(), expect, "{listen:?}");
        };
        use Scheme::{Http, Https, Redirect};
        check(&[], None);
        check(&[("127.0.0.1:8080", Http), ("[::1]:8080", Http)], None);
        let both = [("0.0.0.0:8080", Http), ("[::]:8080", Http)];
        check(&both, Some("http://192.0.2.7:8080/"));
        check(&both[1..], Some("http://[2001:db8::7]:8080/"));
        check(&[("203.0.113.9:80", Http)], Some("http://203.0.113.9/"));
        check(
            &[
                ("0.0.0.0:80", Redirect),
                ("0.0.0.0:8080", Http),
                ("[::]:443", Https),
            ],
            Some("https://[2001:db8::7]/"),
        );
        check(&[("0.0.0.0:80", Redirect)], None);
    }

    /// The code is what its library made of the text, read back from the characters.
    #[test]
    fn a_code_has_two_rows_in_a_line_and_a_quiet_zone() {
        let text = "http://192.0.2.7:8080/";
        let code = QrCode::with_error_correction_level(text, EcLevel::L).expect("short");
        let width = code.width();
        for colour in [false, true] {
            let drawn = render(text, colour).expect("short");
            let mut rows = Vec::new();
            for line in drawn.lines() {
                let line = line
                    .trim_start_matches("\x1b[38;5;16;48;5;231m")
                    .trim_end_matches("\x1b[0m");
                assert_eq!(line.chars().count(), width + 2 * QUIET);
                let upper = line.chars().map(|c| matches!(c, '█' | '▀') == colour);
                let lower = line.chars().map(|c| matches!(c, '█' | '▄') == colour);
                rows.extend([upper.collect::<Vec<bool>>(), lower.collect()]);
            }
            for y in 0..width + 2 * QUIET {
                for x in 0..width + 2 * QUIET {
                    let inside = |at| (QUIET..QUIET + width).contains(&at);
                    let is_dark =
                        inside(x) && inside(y) && code[(x - QUIET, y - QUIET)] == Color::Dark;
                    assert_eq!(rows[y][x], is_dark, "{x} {y}");
                }
            }
        }
        assert_eq!(render(&"x".repeat(8_000), true), None);
    }
}
