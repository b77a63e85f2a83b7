//! Flags of `gannet serve` for certificates that are ordered.

use std::ffi::OsString;

use clap::ValueHint;

use crate::command_line::flag::{Flag, Group, Value, one};
use crate::command_line::settings::Settings;
use crate::command_line::values::{ON_DEMAND, acme_hosts, acme_server, path, text, thumbprint};

/// The flags, in the order in which they are described.
pub(super) const FLAGS: &[Flag<Settings>] = &[
    Flag {
        name: "acme",
        short: None,
        value: Value::Many {
            name: "HOST",
            separator: ',',
            joint: None,
            hint: ValueHint::Hostname,
        },
        group: Group::Tls,
        default: "",
        brief: "HTTPS with certificates that renew themselves",
        details: "Names or addresses of this server, each of which gets a certificate from Let's \
            Encrypt; repeatable. With 'on-demand', each host of --hosts gets its certificate \
            when a client first requests it. A process beside the server ('gannet acme') orders \
            them. The ACME server has to reach port 443 under each name; without --listen, \
            --port and --expose the server listens there on all interfaces, and redirects from \
            port 80. By this you accept the terms of the ACME server.",
        is_common: true,
        apply: |settings, values| {
            let (on_demand, hosts): (Vec<OsString>, Vec<OsString>) =
                values.iter().cloned().partition(|it| it == ON_DEMAND);
            settings.tls.acme.is_on_demand = !on_demand.is_empty();
            settings.tls.acme.hosts = acme_hosts(&hosts)?;
            Ok(())
        },
    },
    Flag {
        name: "acme-dir",
        short: None,
        value: Value::One {
            name: "DIR",
            choices: &[],
            hint: ValueHint::DirPath,
        },
        group: Group::Tls,
        default: "",
        brief: "where the account, its key and the certificates of --acme are kept",
        details: "By default acme in the service manager's state directory ($STATE_DIRECTORY), \
            else $XDG_STATE_HOME/gannet/acme, of root /var/lib/gannet/acme. All certificates in \
            DIR/certificates are served, and those that come there. Without --acme, challenges \
            of a 'gannet acme --challenge tls-alpn-01' with this folder are answered.",
        is_common: false,
        apply: |settings, values| {
            settings.tls.acme.folder = Some(path(values)?);
            Ok(())
        },
    },
    Flag {
        name: "acme.email",
        short: None,
        value: one("ADDRESS"),
        group: Group::Keys,
        default: "",
        brief: "where the ACME server may send warnings",
        details: "Not all do: Let's Encrypt sends none.",
        is_common: false,
        apply: |settings, values| {
            settings.tls.acme.email = Some(text(values)?.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "acme-server",
        short: None,
        value: one("URL"),
        group: Group::Tls,
        default: "",
        brief: "the directory of another ACME server; 'staging' for Let's Encrypt's tests",
        details: "Certificates of the staging server are trusted by no browser, and its limits \
            are high: try a new setup with it.",
        is_common: false,
        apply: |settings, values| {
            settings.tls.acme.server = Some(acme_server(text(values)?)?);
            Ok(())
        },
    },
    Flag {
        name: "acme.profile",
        short: None,
        value: one("NAME"),
        group: Group::Keys,
        default: "",
        brief: "a profile of certificates that the ACME server offers",
        details: "Such as 'shortlived' of Let's Encrypt, for six days. Without it the server chooses.",
        is_common: false,
        apply: |settings, values| {
            settings.tls.acme.profile = Some(text(values)?.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "acme.eab-kid",
        short: None,
        value: one("TEXT"),
        group: Group::Keys,
        default: "",
        brief: "the identifier of a key for an account, for ACME servers that require one",
        details: "External Account Binding, as at ZeroSSL and Google. The key is in the file of \
            acme.eab-key.",
        is_common: false,
        apply: |settings, values| {
            settings.tls.acme.key_id = Some(text(values)?.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "acme.eab-key",
        short: None,
        value: Value::One {
            name: "FILE",
            choices: &[],
            hint: ValueHint::FilePath,
        },
        group: Group::Keys,
        default: "",
        brief: "the file of that key, as the ACME server's operator shows it (Base64)",
        details: "The user of --user has to be able to read it.",
        is_common: false,
        apply: |settings, values| {
            settings.tls.acme.key = Some(path(values)?);
            Ok(())
        },
    },
    Flag {
        name: "acme.thumbprint",
        short: None,
        value: one("TEXT"),
        group: Group::Keys,
        default: "",
        brief: "answer HTTP challenges for the ACME account with this thumbprint",
        details: "For fleets: one 'gannet acme' orders and prints the thumbprint of its account; \
            every server with it answers /.well-known/acme-challenge/TOKEN in clear text, before \
            any redirect. It is public. Files of --tls-cert may be missing until they have been \
            ordered.",
        is_common: false,
        apply: |settings, values| {
            let thumbprint = thumbprint(text(values)?)?;
            settings.server.content.acme_thumbprint = Some(thumbprint);
            Ok(())
        },
    },
];
