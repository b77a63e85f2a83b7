//! Flags of `gannet serve` for proxies and clients.

use clap::ValueHint;

use crate::command_line::flag::{Flag, Group, Value};
use crate::command_line::settings::Settings;
use crate::command_line::values::trusted;

/// Networks, as flags take them.
const NETWORKS: Value = Value::Many {
    name: "CIDR",
    separator: ',',
    joint: None,
    hint: ValueHint::Other,
};

/// The flags, in the order in which they are described.
pub(super) const FLAGS: &[Flag<Settings>] = &[Flag {
    name: "trust",
    short: None,
    value: NETWORKS,
    group: Group::Addresses,
    default: "",
    brief: "believe what these proxies say of their clients; repeatable",
    details: "192.0.2.10, 10.0.0.0/8, 2001:db8::/32, loopback, private (RFC 1918, RFC 4193), or unix \
        for whoever connects to a Unix socket. Of their requests Forwarded, else X-Forwarded-For, \
        -Proto and -Host, tell the client for the log, the scheme and the host. Only they may \
        connect to an address of --listen with ',proxy'. Such fields of others are ignored.",
    is_common: false,
    apply: |settings, values| {
        let clients = &mut settings.server.clients;
        (clients.trust, clients.trust_unix) = trusted(values)?;
        Ok(())
    },
}];
