//! The table of the commands: each with its arguments and texts.

mod certificates;
mod stores;

use clap::ValueHint;

use super::operation::{CERT, DOCTOR, HEALTH, INSTALL};
use super::{Argument, Command, Shape, Table};

pub(super) const fn positional(
    name: &'static str,
    value_name: &'static str,
    brief: &'static str,
    hint: ValueHint,
) -> Argument {
    Argument {
        name,
        shape: Shape::Positional,
        value_name,
        is_required: true,
        is_repeatable: false,
        brief,
        heading: "",
        hint,
    }
}

const ARCHIVE: Argument = positional(
    "archive",
    "ARCHIVE",
    "the archive, or a store: its release in force",
    ValueHint::AnyPath,
);

const OUTPUT_DIRECTORY: Argument = Argument {
    shape: Shape::Letter('o'),
    ..positional(
        "output",
        "DIR",
        "where to: a directory that does not exist yet, or is empty",
        ValueHint::DirPath,
    )
};

pub(super) const JSON: Argument = switch("json", 'j', "print JSON, for other programs");

pub(super) const fn option(
    name: &'static str,
    letter: char,
    value_name: &'static str,
    brief: &'static str,
    hint: ValueHint,
) -> Argument {
    Argument {
        name,
        shape: Shape::Letter(letter),
        value_name,
        is_required: false,
        is_repeatable: false,
        brief,
        heading: "",
        hint,
    }
}

/// A flag without a letter.
const fn long(
    name: &'static str,
    value_name: &'static str,
    brief: &'static str,
    hint: ValueHint,
) -> Argument {
    Argument {
        shape: Shape::Long,
        is_required: false,
        ..positional(name, value_name, brief, hint)
    }
}

const fn long_switch(name: &'static str, brief: &'static str) -> Argument {
    long(name, "", brief, ValueHint::Other)
}

pub(super) const fn switch(name: &'static str, letter: char, brief: &'static str) -> Argument {
    option(name, letter, "", brief, ValueHint::Other)
}

/// The first one of a group.
pub(super) const fn under(heading: &'static str, argument: Argument) -> Argument {
    Argument {
        heading,
        ..argument
    }
}

pub(super) const CACERT: Argument = option(
    "cacert",
    'A',
    "FILE",
    "trust this PEM file, not the system's authorities",
    ValueHint::FilePath,
);

const SITE: Argument = positional(
    "site",
    "SITE",
    "a directory or an archive",
    ValueHint::AnyPath,
);
const COMPAT: Argument = long(
    "compat",
    "HOST",
    "rules: netlify, cloudflare or kawipiko",
    ValueHint::Other,
);
const NO_CLEAN_URLS: Argument =
    long_switch("no-clean-urls", "do not answer /about with about.html");
const NO_RULES: Argument = long_switch("no-rules", "_redirects and _headers are ordinary files");
const INDEX: Argument = long(
    "index",
    "NAMES",
    "names of index pages, separated by commas",
    ValueHint::Other,
);
const TRAILING_SLASH: Argument = long(
    "trailing-slash",
    "WHAT",
    "slash at a path's end: auto, always, never or off",
    ValueHint::Other,
);
const SPA: Argument = long_switch("spa", "answer unknown paths with /index.html");
const LISTING: Argument = long_switch("listing", "list directories without an index page");
const NO_LISTING: Argument = long_switch(
    "no-listing",
    "do not list directories without an index page",
);
const NO_FAVICON: Argument =
    long_switch("no-favicon", "answer 404 if the site has no /favicon.ico");
const DOTFILES: Argument = long_switch("dotfiles", "also serve names that start with a dot");
const FOLLOW_LINKS: Argument = Argument {
    is_repeatable: true,
    ..long(
        "follow-links",
        "DIR",
        "a folder elsewhere that links may lead into",
        ValueHint::DirPath,
    )
};

const COMPRESS: Argument = long(
    "compress",
    "WHAT",
    "compressed text: auto, stored, off, or a folder",
    ValueHint::DirPath,
);

const HOSTS: Argument = long_switch("hosts", "SITE has an entry for each of many hosts");

/// All commands, in the order of help.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "serve",
        arguments: &[],
        brief: "serve a directory, a file or an archive: what gannet does without a command",
        details: "Takes every flag of plain gannet.",
        variables: &[
            ("XDG_DATA_HOME", "where the authority of --tls is kept"),
            (
                "XDG_STATE_HOME",
                "where a store that is served from a URL is copied to",
            ),
            ("NO_COLOR", "no colours where --color is auto"),
        ],
        example: "gannet serve ./site --port 9000",
        table: Table::Serve,
    },
    Command {
        name: "dev",
        arguments: &[
            Argument {
                is_required: false,
                ..positional(
                    "site",
                    "DIR",
                    "the site's directory, by default the current one",
                    ValueHint::DirPath,
                )
            },
            option(
                "port",
                'p',
                "N",
                "the port; by default 8080, or the next free one",
                ValueHint::Other,
            ),
            switch(
                "open",
                'o',
                "open a browser: that of BROWSER, or xdg-open's",
            ),
            option(
                "build",
                'b',
                "COMMAND",
                "a shell command that makes DIR; run at the start and at changes",
                ValueHint::CommandString,
            ),
            Argument {
                is_repeatable: true,
                ..option(
                    "watch",
                    'w',
                    "SOURCES",
                    "build when this directory changes; by default the current one without DIR",
                    ValueHint::DirPath,
                )
            },
            switch(
                "expose",
                'e',
                "let the network connect, and see what you see, messages of builds and rules included",
            ),
            under("How DIR is served", COMPAT),
            NO_RULES,
            INDEX,
            TRAILING_SLASH,
            NO_CLEAN_URLS,
            SPA,
            NO_LISTING,
            NO_FAVICON,
            DOTFILES,
            FOLLOW_LINKS,
        ],
        brief: "serve a directory while you work on it: browsers follow every change",
        details: "Pages reload when a file changes, or only their style sheets if nothing else \
            did. Nothing is cached. Mistakes in _redirects and _headers, and the output of a \
            build that fails, are shown in the page and on the terminal.",
        variables: &[("BROWSER", "the browser of --open")],
        example: "gannet dev ./public --build 'hugo' --open",
        table: Table::None,
    },
    DOCTOR,
    HEALTH,
    INSTALL,
    Command {
        name: "pack",
        arguments: &[positional(
            "directory",
            "SITE",
            "a directory, a zip, a tar or a kawipiko archive",
            ValueHint::AnyPath,
        )],
        brief: "compile a directory into one archive",
        details: "Compresses what becomes smaller; stores equal files once. The same files make the \
            same archive, byte for byte; it has its name only when it is complete.",
        variables: &[
            (
                "SOURCE_DATE_EPOCH",
                "seconds since 1970: the modification time of files that are newer",
            ),
            (
                "GANNET_KEY_PASSWORD",
                "the password of the key of --sign, if it has one",
            ),
            (
                "XDG_CACHE_HOME",
                "where a list of the site's files is kept without --cache",
            ),
        ],
        example: "gannet pack ./site -o site.gannet",
        table: Table::Pack,
    },
    Command {
        name: "bundle",
        arguments: &[
            Argument {
                is_required: false,
                ..ARCHIVE
            },
            Argument {
                is_required: true,
                ..option(
                    "output",
                    'o',
                    "FILE",
                    "the image: one tar, for OCI and Docker",
                    ValueHint::FilePath,
                )
            },
            option(
                "name",
                'n',
                "NAME:TAG",
                "the image's name; by default 'site', or 'gannet' without an archive",
                ValueHint::Other,
            ),
            switch(
                "no-program",
                'P',
                "the archive alone, for a volume: '/site.gannet'",
            ),
        ],
        brief: "make a container image of this program and an archive",
        details: "Needs neither Docker nor root, but the static program, as packages have it. \
            The program is a layer, and the archive one above it. The image listens at port \
            8080, as a user without rights; without ARCHIVE it serves what is mounted at \
            /srv/www. The same program, archive, name and time make the same bytes.",
        variables: &[(
            "SOURCE_DATE_EPOCH",
            "seconds since 1970: the time of all files in it, instead",
        )],
        example: "gannet bundle site.gannet -o image.tar --name docs:1.2",
        table: Table::None,
    },
    stores::PUBLISH,
    stores::ROLLBACK,
    stores::RELEASES,
    stores::FOLLOW,
    certificates::ACME,
    Command {
        name: "ls",
        arguments: &[
            ARCHIVE,
            switch("long", 'l', "show sizes, codings and content types"),
            JSON,
        ],
        brief: "list what an archive holds",
        details: "",
        variables: &[],
        example: "gannet ls -l site.gannet",
        table: Table::None,
    },
    Command {
        name: "cat",
        arguments: &[
            ARCHIVE,
            Argument {
                is_repeatable: true,
                ..positional("path", "URL", "a URL, or its path", ValueHint::Other)
            },
            option(
                "coding",
                'c',
                "CODING",
                "the bytes as they are stored: identity, gzip, br or zstd",
                ValueHint::Other,
            ),
        ],
        brief: "write files of an archive to standard output",
        details: "Contents are decoded unless a coding is named.",
        variables: &[],
        example: "gannet cat site.gannet /index.html",
        table: Table::None,
    },
    Command {
        name: "extract",
        arguments: &[
            Argument {
                brief: "an archive of gannet, a store, a zip, a tar (also .gz and .zst), or a kawipiko archive",
                ..ARCHIVE
            },
            OUTPUT_DIRECTORY,
        ],
        brief: "write all files of an archive into a directory",
        details: "Never writes outside the directory, whatever the archive contains. Of a \
            foreign archive, links are not created, and all files together are limited to a \
            hundred times its length plus 256 MiB.",
        variables: &[],
        example: "gannet extract site.gannet -o ./site",
        table: Table::None,
    },
    Command {
        name: "inspect",
        arguments: &[ARCHIVE, JSON],
        brief: "show an archive's counts, sizes, build id and sections",
        details: "",
        variables: &[],
        example: "gannet inspect site.gannet",
        table: Table::None,
    },
    Command {
        name: "verify",
        arguments: &[
            ARCHIVE,
            option(
                "public-key",
                'p',
                "KEY",
                "also check the signature: a minisign public key, or its file",
                ValueHint::FilePath,
            ),
        ],
        brief: "read a whole archive and check every digest",
        details: "Of a copy on demand, what is here is read. Exits with status 1 if a byte is wrong.",
        variables: &[],
        example: "gannet verify site.gannet",
        table: Table::None,
    },
    Command {
        name: "explain",
        arguments: &[
            positional("url", "URL", "a URL, or its path", ValueHint::Other),
            Argument {
                is_required: false,
                ..SITE
            },
            Argument {
                is_repeatable: true,
                ..option(
                    "field",
                    'H',
                    "FIELD",
                    "a field of the request: 'accept-encoding: br'",
                    ValueHint::Other,
                )
            },
            under(
                "A server to compare with",
                option(
                    "server",
                    's',
                    "URL",
                    "compare with the server at [SCHEME://]HOST:PORT",
                    ValueHint::Url,
                ),
            ),
            switch("insecure", 'k', "accept any certificate of the server"),
            CACERT,
            under("How SITE is served", HOSTS),
            COMPAT,
            NO_RULES,
            INDEX,
            TRAILING_SLASH,
            NO_CLEAN_URLS,
            SPA,
            NO_LISTING,
            NO_FAVICON,
            DOTFILES,
            FOLLOW_LINKS,
            COMPRESS,
        ],
        brief: "show what a URL resolves to, and why",
        details: "Shows the rules and files tried, each variant with its size, the one that is sent, \
            the status, and each field with its origin; conditions and ranges are ignored. Exits \
            with status 1 if the server of --server answers differently.",
        variables: &[],
        example: "gannet explain /about site.gannet -H 'accept-encoding: br'",
        table: Table::None,
    },
    Command {
        name: "diff",
        arguments: &[
            positional("before", "BEFORE", "an archive", ValueHint::FilePath),
            positional("after", "AFTER", "a later one", ValueHint::FilePath),
            switch(
                "urls",
                'u',
                "only list the URLs whose answers differ, one a line, for purging caches",
            ),
            JSON,
        ],
        brief: "show which URLs differ between two archives, and bytes by coding",
        details: "Marks each URL: + added, ~ changed, > now redirected, - removed without \
            redirect. Modification times are ignored. With --urls, a line that ends with * \
            stands for all URLs with that prefix. Exits with status 0 if nothing differs, 1 if \
            something does, 2 if an archive cannot be read.",
        variables: &[],
        example: "gannet diff old.gannet new.gannet",
        table: Table::None,
    },
    Command {
        name: "get",
        arguments: &[
            Argument {
                is_repeatable: true,
                ..positional(
                    "url",
                    "URL",
                    "what to download, http or https",
                    ValueHint::Url,
                )
            },
            option(
                "connections",
                'c',
                "N",
                "connections, 1 to 1024; each gets a part of -o",
                ValueHint::Other,
            ),
            option(
                "output",
                'o',
                "FILE",
                "a file, a device, a FIFO, or - (standard output)",
                ValueHint::FilePath,
            ),
            switch(
                "continue",
                'C',
                "resume an interrupted download of --output",
            ),
            switch("http2", '2', "use HTTP/2; in clear text by prior knowledge"),
            switch("http3", '3', "use HTTP/3, over UDP, for https alone"),
            switch("insecure", 'k', "accept any certificate"),
            CACERT,
            JSON,
            switch("quiet", 'q', "no progress bar"),
        ],
        brief: "download URLs and report the speed",
        details: "Without --output it measures: every connection fetches every URL, and the \
            content is discarded. With it the file appears under its name when it is complete \
            and its digest, if the server sends one (repr-digest), is verified; until then it is \
            FILE.part, which --continue resumes if the server still has the same content. A \
            device, a FIFO and what is open already are written at once, and verified after \
            that. Redirections are followed, but not from https to http; no coding is requested, \
            nothing retried. Exits with status 0 if everything arrived, 1 if not.",
        variables: &[],
        example: "gannet get -c 4 https://example.org/disk.img -o disk.img",
        table: Table::None,
    },
    CERT,
    Command {
        name: "check",
        arguments: &[
            SITE,
            option(
                "format",
                'f',
                "FORMAT",
                "the output: text, json, or github for annotations",
                ValueHint::Other,
            ),
            JSON,
            Argument {
                is_repeatable: true,
                ..option(
                    "origin",
                    'o',
                    "URL",
                    "links to this host, and path if it has one, are links of this site",
                    ValueHint::Other,
                )
            },
            switch("strict", 's', "warnings count as errors"),
            under("How SITE is served", HOSTS),
            COMPAT,
            NO_RULES,
            INDEX,
            TRAILING_SLASH,
            NO_CLEAN_URLS,
            SPA,
            LISTING,
            NO_FAVICON,
            DOTFILES,
            FOLLOW_LINKS,
        ],
        brief: "find dead links, missing assets and rules that do nothing",
        details: "Reads every page and style sheet as browsers do and reports dead links and \
            anchors, missing images, scripts and styles, names that differ in case, content \
            loaded without TLS, and rules that loop, form chains or are never reached. Does not \
            use the network. Exits with status 1 if there is an error, 2 if the site cannot be \
            read.",
        variables: &[],
        example: "gannet check ./site --origin https://example.org",
        table: Table::None,
    },
    Command {
        name: "compress",
        arguments: &[
            positional(
                "directory",
                "DIR",
                "the site's directory",
                ValueHint::DirPath,
            ),
            option(
                "compress",
                'c',
                "LIST",
                "codings to make, with a level if wanted: gzip=zopfli,br=11,zstd=19",
                ValueHint::Other,
            ),
            option(
                "into",
                'i',
                "CACHE",
                "write them into this folder instead: for a site that is only read",
                ValueHint::DirPath,
            ),
            switch(
                "force",
                'f',
                "make every copy again, also one that gannet did not make",
            ),
        ],
        brief: "write compressed copies beside the files of a directory",
        details: "Makes NAME.br, NAME.zst and NAME.gz of the files that 'gannet pack' would \
            compress, where they save enough, for any server that sends such copies. Copies that \
            hold what the file holds are left as they are; others are replaced, or removed, if \
            gannet made them. With --into, a copy has the whole path of its file below CACHE, \
            for 'gannet DIR --compress CACHE/'.",
        variables: &[],
        example: "gannet compress ./site",
        table: Table::None,
    },
    Command {
        name: "help",
        arguments: &[
            Argument {
                is_required: false,
                ..positional(
                    "command",
                    "COMMAND",
                    "one of the commands",
                    ValueHint::Other,
                )
            },
            long_switch("man", "write the manual page gannet(1) instead"),
        ],
        brief: "show the help of gannet, or of a command",
        details: "Without a flag the same as --help.",
        variables: &[],
        example: "gannet help pack",
        table: Table::None,
    },
    Command {
        name: "version",
        arguments: &[
            long_switch(
                "sbom",
                "write the bill of materials instead, as CycloneDX JSON: every crate in this program",
            ),
            long_switch(
                "licenses",
                "write the licences of everything in this program instead",
            ),
            long_switch("license-names", "write only their names"),
        ],
        brief: "show the version, the components or the licences of this program",
        details: "Without a flag the same as --version.",
        variables: &[],
        example: "gannet version --sbom > gannet.cdx.json",
        table: Table::None,
    },
    Command {
        name: "keygen",
        arguments: &[positional(
            "name",
            "NAME",
            "base name of the files NAME.key and NAME.pub",
            ValueHint::FilePath,
        )],
        brief: "make a key pair for signing archives",
        details: "These are minisign keys without a password; 'minisign -G' makes keys with one.",
        variables: &[],
        example: "gannet keygen release",
        table: Table::None,
    },
    Command {
        name: "password",
        arguments: &[positional(
            "user",
            "USER",
            "the name of the user",
            ValueHint::Other,
        )],
        brief: "print a line for a password file",
        details: "Asks for the password without showing it, or reads it from the first line of its \
            input. The hash is made by argon2id; in '_headers' it may stand in place of a password.",
        variables: &[],
        example: "gannet password anna >> users.txt",
        table: Table::None,
    },
    Command {
        name: "completions",
        arguments: &[positional(
            "shell",
            "SHELL",
            "one of bash, elvish, fish, powershell and zsh",
            ValueHint::Other,
        )],
        brief: "write a completion script for a shell",
        details: "",
        variables: &[],
        example: "gannet completions bash > /etc/bash_completion.d/gannet",
        table: Table::None,
    },
];
