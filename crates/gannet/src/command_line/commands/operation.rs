//! Commands for operators: what a machine lacks, whether a server is well, its service, its authority.

use clap::ValueHint;

use super::table::{CACERT, JSON, option, positional, switch};
use super::{Argument, Command, Table};

pub(super) const DOCTOR: Command = Command {
    name: "doctor",
    arguments: &[JSON],
    brief: "report what this machine has and lacks for this configuration",
    details: "Takes the flags, variables and configuration of serve, and changes nothing. Each \
        line is ok, note (a server starts, with less) or bad (it does not start, or does not do \
        what the configuration says), with a help line that fixes it. Exits with status 0 \
        without a bad line, 1 with one, 2 if the configuration cannot be read.",
    variables: &[],
    example: "gannet doctor --config /etc/gannet/gannet.toml",
    table: Table::Serve,
};

pub(super) const HEALTH: Command = Command {
    name: "health",
    arguments: &[
        Argument {
            is_required: false,
            ..positional(
                "url",
                "URL",
                "what to request; by default what --metrics or --health of the configuration names",
                ValueHint::Url,
            )
        },
        option(
            "config",
            'c',
            "FILE",
            "the server's configuration; GANNET_CONFIG and the other variables count as well",
            ValueHint::FilePath,
        ),
        switch("insecure", 'k', "accept any certificate of URL"),
        CACERT,
    ],
    brief: "check that a running server is healthy",
    details: "For health checks of containers, in which there is no shell and no curl. Without \
        URL it requests /health at the address of --metrics in the server's configuration and \
        variables, else the path of --health at the first address. Exits with status 0 if the \
        answer is 200 within 3 s, else 1.",
    variables: &[],
    example: "gannet health http://127.0.0.1:9100/health",
    table: Table::None,
};

pub(super) const INSTALL: Command = Command {
    name: "install",
    arguments: &[
        switch(
            "socket",
            's',
            "let systemd bind the addresses (gannet.socket)",
        ),
        switch("remove", 'r', "undo it"),
        switch(
            "dry-run",
            'n',
            "print what would be done, with all texts, and do nothing",
        ),
        option(
            "root",
            'R',
            "DIR",
            "write below this folder, for a package or an image: no user is made",
            ValueHint::DirPath,
        ),
    ],
    brief: "install this program as a service of systemd",
    details: "Writes the unit of the server and that of 'gannet acme', /etc/gannet/gannet.toml, \
        the user 'gannet' and the folder /srv/www. The units start this very file, so put the \
        program in its place first. Nothing is started, and a file with other content is \
        kept, and named. --remove removes files that were not changed, and the user if this \
        command created it.",
    variables: &[],
    example: "gannet install",
    table: Table::None,
};

pub(super) const CERT: Command = Command {
    name: "cert",
    arguments: &[],
    brief: "write the certificate of the authority behind --tls",
    details: "As PEM, on standard output, for a browser or a client to import. It is valid for \
        names of this machine only.",
    variables: &[],
    example: "gannet cert > gannet-authority.pem",
    table: Table::None,
};
