//! The command that orders certificates.

use clap::ValueHint;

use super::super::{Argument, Command, Table};
use super::{option, positional, switch};

/// `gannet acme`.
pub(super) const ACME: Command = Command {
    name: "acme",
    arguments: &[
        Argument {
            is_required: false,
            is_repeatable: true,
            ..positional(
                "host",
                "HOST",
                "a name or an IP address: each has a certificate",
                ValueHint::Hostname,
            )
        },
        Argument {
            is_required: true,
            ..option(
                "dir",
                'd',
                "DIR",
                "the folder of account, key and certificates",
                ValueHint::DirPath,
            )
        },
        option(
            "challenge",
            'c',
            "KIND",
            "the challenge: http-01 (the default), or tls-alpn-01 with a server of --acme-dir DIR",
            ValueHint::Other,
        ),
        option(
            "email",
            'e',
            "ADDRESS",
            "where the ACME server may send warnings",
            ValueHint::EmailAddress,
        ),
        switch(
            "staging",
            's',
            "order from Let's Encrypt's server for tests",
        ),
        option(
            "server",
            'u',
            "URL",
            "the directory of another ACME server",
            ValueHint::Url,
        ),
        option(
            "profile",
            'p',
            "NAME",
            "a profile of the server, such as shortlived",
            ValueHint::Other,
        ),
        option(
            "eab-kid",
            'k',
            "TEXT",
            "the identifier of a key, if the server wants one",
            ValueHint::Other,
        ),
        option(
            "eab-key",
            'K',
            "FILE",
            "that key in Base64, as the operator shows it",
            ValueHint::FilePath,
        ),
        switch("once", '1', "order what is missing or due, and end"),
        switch(
            "names-from-stdin",
            'n',
            "hosts from standard input; -HOST takes one out",
        ),
    ],
    brief: "order certificates from Let's Encrypt or another ACME server, and renew them",
    details: "For fleets; 'gannet --acme HOST' starts it by itself. DIR/certificates/HOST.pem \
        has a chain and its key, for --tls-cert. With http-01 the servers of the hosts need the \
        account's thumbprint (their acme.thumbprint), which is printed without HOST. \
        Certificates are renewed when the server says so, else after two thirds of the lifetime; \
        what fails is tried again, with growing pauses. By ordering you accept the server's \
        terms. With --once the exit status is 1 if an order failed.",
    variables: &[(
        "SSL_CERT_FILE",
        "trust these certificates (PEM) instead of the system's: for an ACME server of your own",
    )],
    example: "gannet acme example.org www.example.org --dir /var/lib/gannet/acme",
    table: Table::None,
};
