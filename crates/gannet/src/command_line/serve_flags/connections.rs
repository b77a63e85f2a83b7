//! Flags of `gannet serve` for addresses and HTTPS.

use clap::ValueHint;
use gannet_server::tls::clients::Demand;
use gannet_server::tls::kernel::Choice;

use crate::alt_svc;
use crate::command_line::flag::{FILES, Flag, Group, Value, one, one_of};
use crate::command_line::settings::Settings;
use crate::command_line::values::{
    choice, field_value, http_versions, listens, number, paths, switch, tcp_address, tcp_addresses,
    text,
};

/// The flags, in the order in which they are described.
pub(super) const FLAGS: &[Flag<Settings>] = &[
    Flag {
        name: "listen",
        short: Some('l'),
        value: Value::Many {
            name: "ADDR:PORT",
            separator: ',',
            joint: None,
            hint: ValueHint::Other,
        },
        group: Group::Addresses,
        default: "",
        brief: "[ADDR]:PORT for IPv6, or unix:PATH; repeatable",
        details: "A port alone means loopback: 8080 is 127.0.0.1:8080; port 0 takes any free \
            port. http:// or https:// in front selects the protocol; otherwise it is HTTPS if \
            there is a certificate. A Unix socket may have a mode and a group: \
            unix:/run/gannet/gannet.sock,mode=0660,group=www-data. With ',proxy' at the end, \
            connections start with a header of the PROXY protocol (version 1 or 2) by a proxy of \
            --trust, or by any client of a Unix socket.",
        is_common: true,
        apply: |settings, values| {
            settings.listen = listens(values)?;
            Ok(())
        },
    },
    Flag {
        name: "port",
        short: Some('p'),
        value: one("N"),
        group: Group::Addresses,
        default: "8080",
        brief: "the port, on loopback unless exposed",
        details: "Without it, gannet takes the next free port, up to 8099, if 8080 is in use. A \
            port that you name is never changed.",
        is_common: true,
        apply: |settings, values| {
            settings.port = Some(number(values, "from 0 to 65535")?);
            Ok(())
        },
    },
    Flag {
        name: "expose",
        short: Some('e'),
        value: Value::Switch,
        group: Group::Addresses,
        default: "false",
        brief: "listen on all interfaces, IPv4 and IPv6",
        details: "The first lines then list this machine's URLs on the network.",
        is_common: true,
        apply: |settings, values| {
            settings.expose = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "qr",
        short: None,
        value: Value::Switch,
        group: Group::Addresses,
        default: "",
        brief: "print the QR code of the address; the default on a terminal where others can connect",
        details: "It shows the first address that other machines reach, HTTPS before HTTP, or if \
            only this machine can connect, that one. --qr=false prints none.",
        is_common: false,
        apply: |settings, values| {
            settings.qr = Some(switch(values)?);
            Ok(())
        },
    },
    Flag {
        name: "metrics",
        short: None,
        value: one("ADDR:PORT"),
        group: Group::Addresses,
        default: "",
        brief: "answer /metrics (Prometheus text) and /health here",
        details: "A port alone means loopback.",
        is_common: false,
        apply: |settings, values| {
            settings.server.metrics = Some(tcp_address(text(values)?)?);
            Ok(())
        },
    },
    Flag {
        name: "http",
        short: None,
        value: one("VERSIONS"),
        group: Group::Addresses,
        default: "1,2,3",
        brief: "the versions of HTTP, separated by commas",
        details: "Without 1, HTTP/1 gets 505, except redirects to HTTPS and challenges of \
            --acme. 2 is spoken over TLS and, by prior knowledge, in clear text; 3 at the UDP \
            port of each HTTPS address, if that can be bound.",
        is_common: false,
        apply: |settings, values| {
            settings.server.http = http_versions(text(values)?)?;
            Ok(())
        },
    },
    Flag {
        name: "tls",
        short: None,
        value: Value::Switch,
        group: Group::Tls,
        default: "false",
        brief: "HTTPS with a certificate for development",
        details: "It is signed by gannet's own authority, stored in $XDG_DATA_HOME/gannet/tls \
            and valid for this machine only; 'gannet cert' writes the authority's certificate, \
            for a browser to import. The default port is then 8443. --tls-cert takes precedence.",
        is_common: true,
        apply: |settings, values| {
            settings.tls.development = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "tls-cert",
        short: None,
        value: FILES,
        group: Group::Tls,
        default: "",
        brief: "HTTPS with this certificate (PEM); repeatable",
        details: "Every TCP address of --listen then speaks HTTPS, unless it is written \
            http://ADDR:PORT. The file holds the whole chain; of several certificates, each \
            client gets the one that matches its server name, else the first. Reloaded when the \
            file changes, and on SIGHUP.",
        is_common: true,
        apply: |settings, values| {
            settings.tls.certificates = paths(values)?;
            Ok(())
        },
    },
    Flag {
        name: "tls-key",
        short: None,
        value: FILES,
        group: Group::Tls,
        default: "",
        brief: "its private key (PEM); repeatable",
        details: "One for each certificate, in the same order; none if each certificate's file \
            also holds its key.",
        is_common: true,
        apply: |settings, values| {
            settings.tls.keys = paths(values)?;
            Ok(())
        },
    },
    Flag {
        name: "http-redirect",
        short: None,
        value: Value::Many {
            name: "ADDR:PORT",
            separator: ',',
            joint: None,
            hint: ValueHint::Other,
        },
        group: Group::Tls,
        default: "",
        brief: "answer HTTP here with a redirect (301) to HTTPS; repeatable",
        details: "A port alone means loopback. All interfaces are 0.0.0.0:80 and [::]:80.",
        is_common: false,
        apply: |settings, values| {
            settings.tls.redirects = tcp_addresses(values)?;
            Ok(())
        },
    },
    Flag {
        name: "hsts",
        short: None,
        value: Value::Switch,
        group: Group::Tls,
        default: "false",
        brief: "tell browsers to use HTTPS only, for two years",
        details: "Adds strict-transport-security to answers over TLS (a proxy of --trust may have ended it), and a policy that makes \
            browsers load subresources over HTTPS (upgrade-insecure-requests). For other values \
            use --header.",
        is_common: false,
        apply: |settings, values| {
            settings.tls.hsts = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "early-data",
        short: None,
        value: Value::Switch,
        group: Group::Tls,
        default: "false",
        brief: "answer GET and HEAD in TLS 1.3 early data (0-RTT)",
        details: "Saves a returning client one round trip. An attacker on the path can replay \
            such a request, which is harmless for static content; other methods get 425.",
        is_common: false,
        apply: |settings, values| {
            settings.tls.early_data = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "tls-client-ca",
        short: None,
        value: FILES,
        group: Group::Tls,
        default: "",
        brief: "serve only clients with a certificate of this authority (PEM); repeatable",
        details: "For HTTPS and HTTP/3, not for http:// addresses and Unix sockets. A file may \
            have several certificates, at most 64 in all files; it is reloaded like --tls-cert. \
            Sessions are not resumed.",
        is_common: false,
        apply: |settings, values| {
            settings.tls.client_authorities = paths(values)?;
            Ok(())
        },
    },
    Flag {
        name: "tls-client-auth",
        short: None,
        value: one_of("WHETHER", &["required", "optional"]),
        group: Group::Tls,
        default: "",
        brief: "whether clients need the certificate: required (the default) or optional",
        details: "Only with --tls-client-ca. optional also serves clients that show none; one \
            that does not verify is refused either way.",
        is_common: false,
        apply: |settings, values| {
            let choices = [
                ("required", Demand::Required),
                ("optional", Demand::Optional),
            ];
            settings.tls.client_demand = Some(choice(values, &choices)?);
            Ok(())
        },
    },
    Flag {
        name: "tls-min",
        short: None,
        value: one_of("VERSION", &["1.2", "1.3"]),
        group: Group::Tls,
        default: "1.2",
        brief: "the oldest version of TLS: 1.2 or 1.3",
        details: "HTTP/3 always uses 1.3.",
        is_common: false,
        apply: |settings, values| {
            settings.tls.tls12 = choice(values, &[("1.2", true), ("1.3", false)])?;
            Ok(())
        },
    },
    Flag {
        name: "alt-svc",
        short: None,
        value: one("VALUE"),
        group: Group::Keys,
        default: "",
        brief: "how answers over TLS announce HTTP/3 (alt-svc)",
        details: "By default they name the UDP port, for one day: h3=\":443\"; ma=86400. An \
            empty value announces nothing; 'clear' has browsers forget what was announced.",
        is_common: false,
        apply: |settings, values| {
            let value = field_value(text(values)?)?;
            if !value.is_empty() {
                alt_svc::check(&value)?;
            }
            settings.tls.alt_svc = Some(value);
            Ok(())
        },
    },
    Flag {
        name: "ktls",
        short: None,
        value: one_of("WHEN", &["auto", "on", "off"]),
        group: Group::Tls,
        default: "auto",
        brief: "let the kernel encrypt large bodies: auto, on or off",
        details: "A TLS 1.3 connection is handed over before its first body of 64 KiB or more. \
            auto does so where the kernel has the 'tls' module; on is an error where it has not.",
        is_common: false,
        apply: |settings, values| {
            settings.tls.kernel = choice(
                values,
                &[
                    ("auto", Choice::Auto),
                    ("on", Choice::On),
                    ("off", Choice::Off),
                ],
            )?;
            Ok(())
        },
    },
];
