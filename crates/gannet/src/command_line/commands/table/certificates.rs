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
                "a name or an IP address, which gets a certificate of its own",
                ValueHint::Hostname,
            )
        },
        Argument {
            is_required: true,
            ..option(
                "dir",
                'd',
                "DIR",
                "where the account, its key and the certificates are kept",
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
            "a profile that the server offers, such as shortlived",
            ValueHint::Other,
        ),
        option(
            "eab-kid",
            'k',
            "TEXT",
            "the identifier of a key for an account, for servers that require one",
            ValueHint::Other,
        ),
        option(
            "eab-key",
            'K',
            "FILE",
            "that key, as the server's operator shows it (Base64)",
            ValueHint::FilePath,
        ),
        switch("once", '1', "order what is missing or due, and end"),
        switch(
            "names-from-stdin",
            'n',
            "order for each host on standard input, one a line; -HOST takes one out",
        ),
    ],
    brief: "order certificates from Let's Encrypt or another ACME server, and renew them",
    details: "For fleets; 'gannet --acme HOST' starts it by itself. DIR/certificates/HOST.pem \
        has a chain and its key, which a server takes as --tls-cert. With http-01 the servers of \
        the hosts answer if they know the thumbprint of the account (acme.thumbprint in their \
        configuration); without HOST the account is made and its thumbprint printed. A \
        certificate is renewed when its server says so, else after two thirds of its lifetime; a \
        failure is reported once, and tried again with growing pauses. By ordering you accept \
        the server's terms. With --once it exits with status 0 if no order has failed, and 1 if \
        one has.",
    variables: &[(
        "SSL_CERT_FILE",
        "trust these certificates (PEM) instead of the system's: for an ACME server of your own",
    )],
    example: "gannet acme example.org www.example.org --dir /var/lib/gannet/acme",
    table: Table::None,
};
