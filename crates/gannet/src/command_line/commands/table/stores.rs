//! The commands on stores of releases.

use clap::ValueHint;

use super::super::{Argument, Command, Table};
use super::{JSON, option, positional, switch, under};

/// `gannet publish`.
pub(super) const PUBLISH: Command = Command {
    name: "publish",
    arguments: &[
        positional(
            "site",
            "SITE",
            "an archive, a directory to pack, or a store",
            ValueHint::AnyPath,
        ),
        STORE,
        Argument {
            is_required: false,
            is_repeatable: true,
            ..positional(
                "target",
                "TARGET",
                "a server with --receive: https://HOST:PORT",
                ValueHint::Url,
            )
        },
        under(
            "When nodes activate it",
            option(
                "activate",
                'a',
                "WHEN",
                "when to activate: +30s or 2026-11-23T08:30:00Z",
                ValueHint::Other,
            ),
        ),
        option(
            "stages",
            's',
            "LIST",
            "shares of nodes: '5% +0s, 50% +10m, 100% +30m'",
            ValueHint::Other,
        ),
        option(
            "expires",
            'e',
            "WHEN",
            "when nodes stop taking it up: +30d, or a time",
            ValueHint::Other,
        ),
        under(
            "Checks before that",
            Argument {
                is_repeatable: true,
                ..option(
                    "must",
                    'm',
                    "URL",
                    "a URL or path that has to be answered with 200",
                    ValueHint::Other,
                )
            },
        ),
        option(
            "allow-removal",
            'r',
            "N",
            "URLs that may vanish; by default 10, or a tenth",
            ValueHint::Other,
        ),
        under("Releases of the store", NOTE),
        option(
            "keep",
            'k',
            "WHAT",
            "releases by age, number, bytes: '7d 3..20 10GiB'",
            ValueHint::Other,
        ),
        Argument {
            is_repeatable: true,
            ..option(
                "void",
                'v',
                "ID",
                "a bad release, which then answers nothing; 'none' takes all back",
                ValueHint::Other,
            )
        },
        under(
            "Afterwards",
            option(
                "changed",
                'l',
                "FILE",
                "write changed URLs here, for purging caches",
                ValueHint::FilePath,
            ),
        ),
        Argument {
            is_repeatable: true,
            ..option(
                "wait",
                'w',
                "URL",
                "wait until the server with this --metrics has it",
                ValueHint::Url,
            )
        },
    ],
    brief: "publish a site: put it into a store, and into force there",
    details: "A directory is packed, with the flags of 'gannet pack' except --output; --sign \
        also signs the pointer. All is verified before anything changes. A setting such as \
        --keep applies until it is changed; an empty text resets one (--note '').",
    variables: &[
        (
            "GANNET_KEY_PASSWORD",
            "the password of the key of --sign, if it has one",
        ),
        (
            "SSL_CERT_FILE",
            "trust these certificates (PEM) instead of the system's",
        ),
    ],
    example: "gannet publish ./site ./store",
    table: Table::Publish,
};

/// `gannet rollback`.
pub(super) const ROLLBACK: Command = Command {
    name: "rollback",
    arguments: &[
        STORE,
        Argument {
            is_required: false,
            ..positional(
                "release",
                "ID",
                "the release to go back to: at least 8 digits of its id",
                ValueHint::Other,
            )
        },
        switch(
            "void",
            'v',
            "the release that is left is bad and answers nothing from then on",
        ),
        option(
            "activate",
            'a',
            "WHEN",
            "when nodes activate it: +30s, or 2026-11-23T08:30:00Z",
            ValueHint::Other,
        ),
        NOTE,
        option(
            "sign",
            's',
            "KEY",
            "sign the pointer with this minisign secret key",
            ValueHint::FilePath,
        ),
    ],
    brief: "put an earlier release of a store into force again",
    details: "Without ID, the one that was in force before, unless it is void. The pointer has a \
        new serial.",
    variables: &[(
        "GANNET_KEY_PASSWORD",
        "the password of the key of --sign, if it has one",
    )],
    example: "gannet rollback ./store",
    table: Table::None,
};

/// `gannet releases`.
pub(super) const RELEASES: Command = Command {
    name: "releases",
    arguments: &[
        positional(
            "store",
            "STORE",
            "the store's folder, or s3://BUCKET/PATH, gs://, az://; or the metrics of a server: \
             http://HOST:PORT",
            ValueHint::DirPath,
        ),
        option(
            "public-key",
            'p',
            "KEY",
            "accept only pointers signed by this key: a minisign public key, or its file",
            ValueHint::FilePath,
        ),
        JSON,
    ],
    brief: "list the releases of a store, or of a server",
    details: "The one that is served has a star. The others are staged (not active everywhere \
        yet), kept (their immutable assets still answer), void, gone (no file), over (no longer \
        kept), repeated (listed above as well), unfinished (their publisher ended before they \
        were in force), or unknown (the pointer in force cannot be read).",
    variables: &[],
    example: "gannet releases ./store",
    table: Table::None,
};

/// `gannet follow`.
pub(super) const FOLLOW: Command = Command {
    name: "follow",
    arguments: &[
        positional(
            "url",
            "URL",
            "a store: https://, s3://BUCKET/PATH, gs://, az://",
            ValueHint::Url,
        ),
        positional(
            "store",
            "DIR",
            "a folder: new, empty, or with an earlier copy",
            ValueHint::DirPath,
        ),
        switch("once", '1', "copy what is new and end"),
        option(
            "interval",
            'i',
            "DURATION",
            "how often to look, by default 5s; at least 1s",
            ValueHint::Other,
        ),
        option(
            "public-key",
            'p',
            "KEY",
            "accept only pointers signed by this key: a minisign public key, or its file",
            ValueHint::FilePath,
        ),
        option(
            "limit-rate",
            'l',
            "SIZE",
            "bytes a second at most, such as 10M; at least 8K",
            ValueHint::Other,
        ),
        option(
            "disk",
            'd',
            "SIZE",
            "bytes that the releases in DIR may have together, by default 64G",
            ValueHint::Other,
        ),
        option(
            "on-demand",
            'o',
            "SIZE",
            "fetch only what a server requests, into this much space: at least 64M",
            ValueHint::Other,
        ),
    ],
    brief: "keep a copy of a store that is in a bucket or behind HTTPS",
    details: "A server of DIR notices new releases. Only what no local release has is fetched, \
        and the whole file is verified before it comes into force. A \
        release that cannot be read or verified, or is older, is reported once and tried again; \
        what is in force stays. Credentials are those of the tools of AWS, Google Cloud and \
        Azure, from the environment or the machine. With --once it exits with status 0 if DIR \
        has what the store has, and 1 if not.",
    variables: &[
        (
            "GANNET_STORE_URL",
            "the URL, if it has a password: every user can see command lines",
        ),
        (
            "AWS_ACCESS_KEY_ID",
            "with AWS_SECRET_ACCESS_KEY: credentials for s3://",
        ),
        (
            "AWS_ENDPOINT_URL",
            "the URL of another S3 service than Amazon's",
        ),
        ("AWS_REGION", "the region of the bucket"),
        (
            "GOOGLE_APPLICATION_CREDENTIALS",
            "a file of credentials for gs://",
        ),
        (
            "AZURE_STORAGE_ACCOUNT_NAME",
            "with AZURE_STORAGE_ACCOUNT_KEY: credentials for az://",
        ),
        (
            "SSL_CERT_FILE",
            "trust these certificates (PEM) instead of the system's",
        ),
    ],
    example: "gannet follow https://releases.example.org/site ./store",
    table: Table::None,
};

const STORE: Argument = positional(
    "store",
    "STORE",
    "a folder, or s3://BUCKET/PATH, gs:// or az://",
    ValueHint::AnyPath,
);

const NOTE: Argument = option(
    "note",
    'n',
    "TEXT",
    "a remark, up to 100 bytes",
    ValueHint::Other,
);
