//! Flags of `gannet serve` for proxies and clients.

use clap::ValueHint;

use crate::command_line::flag::{Flag, Group, Value, one};
use crate::command_line::settings::Settings;
use crate::command_line::values::{networks, number, rate, switch, text, trusted};
use crate::quantities::parse_size;

/// Networks, as flags take them.
const NETWORKS: Value = Value::Many {
    name: "CIDR",
    separator: ',',
    joint: None,
    hint: ValueHint::Other,
};

/// The flags, in the order in which they are described.
pub(super) const FLAGS: &[Flag<Settings>] = &[
    Flag {
        name: "trust",
        short: None,
        value: NETWORKS,
        group: Group::Addresses,
        default: "",
        brief: "proxies whose word about their clients counts; repeatable",
        details: "192.0.2.10, 10.0.0.0/8, 2001:db8::/32, loopback, private (RFC 1918, RFC 4193), \
            or unix for all peers at a Unix socket. Forwarded, else X-Forwarded-For and -Proto, \
            of their requests name the client and the scheme; such fields of others are ignored. \
            Only they may connect to an address of --listen with ',proxy'.",
        is_common: false,
        apply: |settings, values| {
            let clients = &mut settings.server.clients;
            (clients.trust, clients.trust_unix) = trusted(values)?;
            Ok(())
        },
    },
    Flag {
        name: "trust-host",
        short: None,
        value: Value::Switch,
        group: Group::Addresses,
        default: "false",
        brief: "take the host from X-Forwarded-Host of these proxies, or Forwarded",
        details: "For proxies that send a Host of their own. They have to set or remove the \
            field in each request: otherwise clients choose the site.",
        is_common: false,
        apply: |settings, values| {
            settings.server.clients.trust_host = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "allow",
        short: None,
        value: NETWORKS,
        group: Group::Limits,
        default: "",
        brief: "only these clients may connect; repeatable",
        details: "Networks as for --trust. The longest matching prefix of --allow and --deny \
            wins, and --deny between equal ones; clients without a match may connect unless \
            there is an --allow. Others are closed at once, or get 403 behind a proxy of \
            --trust.",
        is_common: false,
        apply: |settings, values| {
            settings.server.clients.allow = networks(values)?;
            Ok(())
        },
    },
    Flag {
        name: "deny",
        short: None,
        value: NETWORKS,
        group: Group::Limits,
        default: "",
        brief: "these clients may not connect; repeatable",
        details: "See --allow.",
        is_common: false,
        apply: |settings, values| {
            settings.server.clients.deny = networks(values)?;
            Ok(())
        },
    },
    Flag {
        name: "client.connections",
        short: None,
        value: one("N"),
        group: Group::Keys,
        default: "0",
        brief: "concurrent connections of one client; 0: no limit",
        details: "A client is an IPv4 address, or a /64 network of IPv6. Further connections are closed \
            at once. Proxies of --trust and clients of Unix sockets have no limits of their own.",
        is_common: false,
        apply: |settings, values| {
            settings.server.clients.connections = number(values, "from 0 to 4294967295")?;
            Ok(())
        },
    },
    Flag {
        name: "client.requests",
        short: None,
        value: one("RATE"),
        group: Group::Keys,
        default: "",
        brief: "requests of one client, such as 20/s or 600/m",
        details: "Also /h. What a client has not used for ten seconds it may use at once, or as \
            many as ',burst=N' says. Further requests get 429 with retry-after.",
        is_common: false,
        apply: |settings, values| {
            settings.server.clients.requests = Some(rate(text(values)?)?);
            Ok(())
        },
    },
    Flag {
        name: "client.rate",
        short: None,
        value: one("SIZE"),
        group: Group::Keys,
        default: "0",
        brief: "bytes that one client is sent in a second; 0: no limit",
        details: "At least 1K. Each connection is slowed down to it; while all of them together are more \
            than ten seconds ahead of it, further requests get 429.",
        is_common: false,
        apply: |settings, values| {
            let rate = parse_size(text(values)?)?;
            if (1..1024).contains(&rate) {
                return Err("less than 1K in a second".into());
            }
            settings.server.clients.bytes_per_second = rate;
            Ok(())
        },
    },
];
