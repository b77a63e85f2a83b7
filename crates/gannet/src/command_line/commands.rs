//! The commands: their names, arguments and texts.

use clap::ValueHint;

use crate::command_line::flag::Description;
use crate::command_line::pack_flags::PACK_FLAGS;
use crate::command_line::serve_flags::SERVE_FLAGS;

/// One command of the program.
pub struct Command {
    /// As it is typed.
    pub name: &'static str,
    /// Arguments, in order, besides flags of the tables.
    pub arguments: &'static [Argument],
    /// One line: lower case, no final stop.
    pub brief: &'static str,
    /// Sentences for the manual.
    pub details: &'static str,
    /// A line to copy.
    pub example: &'static str,
    /// Which table of flags it takes.
    pub table: Table,
}

/// Which table of flags a command takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Table {
    /// Those of `serve`.
    Serve,
    /// Those of `pack`.
    Pack,
    /// None.
    None,
}

/// An argument of a command that is in no table: it has no variable and no configuration key.
pub struct Argument {
    /// Its name; with `letter` also its long flag.
    pub name: &'static str,
    /// The flag's letter; `None` for a positional argument.
    pub letter: Option<char>,
    /// What stands for it in help; empty for a switch.
    pub value_name: &'static str,
    /// Must be given.
    pub is_required: bool,
    /// May be given several times.
    pub is_repeatable: bool,
    /// One line: lower case, no final stop.
    pub brief: &'static str,
    /// What a shell may complete.
    pub hint: ValueHint,
}

const fn positional(
    name: &'static str,
    value_name: &'static str,
    brief: &'static str,
    hint: ValueHint,
) -> Argument {
    Argument {
        name,
        letter: None,
        value_name,
        is_required: true,
        is_repeatable: false,
        brief,
        hint,
    }
}

const ARCHIVE: Argument = positional("archive", "ARCHIVE", "the archive", ValueHint::FilePath);

const JSON: Argument = Argument {
    name: "json",
    letter: Some('j'),
    value_name: "",
    is_required: false,
    is_repeatable: false,
    brief: "as JSON, for other programs",
    hint: ValueHint::Other,
};

const fn option(
    name: &'static str,
    letter: char,
    value_name: &'static str,
    brief: &'static str,
    hint: ValueHint,
) -> Argument {
    Argument {
        name,
        letter: Some(letter),
        value_name,
        is_required: false,
        is_repeatable: false,
        brief,
        hint,
    }
}

const fn switch(name: &'static str, letter: char, brief: &'static str) -> Argument {
    option(name, letter, "", brief, ValueHint::Other)
}

const SITE: Argument = positional(
    "site",
    "SITE",
    "a directory or an archive",
    ValueHint::AnyPath,
);
const COMPAT: Argument = option(
    "compat",
    'C',
    "HOST",
    "read rule files as netlify, cloudflare or kawipiko does",
    ValueHint::Other,
);
const NO_CLEAN_URLS: Argument = switch(
    "no-clean-urls",
    'U',
    "'/about' does not answer 'about.html'",
);
const SPA: Argument = switch("spa", 'S', "'/index.html' answers what is missing");
const LISTING: Argument = switch("listing", 'L', "folders without index page are listed");
const DOTFILES: Argument = switch("dotfiles", 'D', "names that begin with a dot are served");

/// All commands, in the order of help.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "serve",
        arguments: &[],
        brief: "serve a directory, a file or an archive: what gannet does without a command",
        details: "Takes every flag of gannet alone.",
        example: "gannet serve ./site --port 9000",
        table: Table::Serve,
    },
    Command {
        name: "pack",
        arguments: &[positional(
            "directory",
            "SITE",
            "the site's directory; or a zip, a tar or an archive of kawipiko",
            ValueHint::AnyPath,
        )],
        brief: "compile a directory into one archive",
        details: "Compresses, in parallel, what becomes smaller; stores equal files once. The \
            same files make the same archive, byte for byte. The archive appears under its name \
            only when it is complete.",
        example: "gannet pack ./site -o site.gannet",
        table: Table::Pack,
    },
    Command {
        name: "ls",
        arguments: &[
            ARCHIVE,
            Argument {
                name: "long",
                letter: Some('l'),
                value_name: "",
                is_required: false,
                is_repeatable: false,
                brief: "with sizes, codings and content types",
                hint: ValueHint::Other,
            },
            JSON,
        ],
        brief: "list what an archive holds",
        details: "",
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
        details: "Contents are decoded, whatever is stored, unless a coding is named.",
        example: "gannet cat site.gannet /index.html",
        table: Table::None,
    },
    Command {
        name: "extract",
        arguments: &[
            ARCHIVE,
            Argument {
                letter: Some('o'),
                ..positional(
                    "output",
                    "DIR",
                    "where to: a directory that does not exist yet, or is empty",
                    ValueHint::DirPath,
                )
            },
        ],
        brief: "write all files of an archive into a directory",
        details: "Never writes outside the directory, whatever the archive says.",
        example: "gannet extract site.gannet -o ./site",
        table: Table::None,
    },
    Command {
        name: "import",
        arguments: &[
            positional(
                "archive",
                "ARCHIVE",
                "a zip, a tar (also .gz and .zst), or an archive of kawipiko",
                ValueHint::FilePath,
            ),
            Argument {
                letter: Some('o'),
                ..positional(
                    "output",
                    "DIR",
                    "where to: a directory that does not exist yet, or is empty",
                    ValueHint::DirPath,
                )
            },
        ],
        brief: "write the files of another kind of archive into a directory",
        details: "Further names that kawipiko keeps for a file are left out, since packing makes \
            them again; its redirects become a file _redirects. 'gannet pack' takes such archives, \
            too. Nothing is written outside the directory, links are not made, and files may \
            have a hundred times the length of the archive together, and 1 GiB.",
        example: "gannet import site.cdb -o ./site",
        table: Table::None,
    },
    Command {
        name: "inspect",
        arguments: &[ARCHIVE, JSON],
        brief: "show an archive's counts, sizes, build id and sections",
        details: "",
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
        details: "Ends with status 1 if a byte is wrong.",
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
            option(
                "server",
                's',
                "URL",
                "compare with what this server answers: http:// or https://HOST:PORT",
                ValueHint::Url,
            ),
            switch("insecure", 'k', "believe any certificate of the server"),
            option(
                "cacert",
                'A',
                "FILE",
                "believe these certificates (PEM) and not the system's",
                ValueHint::FilePath,
            ),
            COMPAT,
            NO_CLEAN_URLS,
            SPA,
            LISTING,
            DOTFILES,
        ],
        brief: "tell what a URL comes to, and why",
        details: "Rules and files that are tried, the forms a file has with their sizes and which is \
            sent, the status and each field with its origin; for the directory or archive named, \
            else for the working directory. Conditions and ranges are not looked at. Ends with \
            status 1 if a server is asked and answers otherwise.",
        example: "gannet explain /about site.gannet -H 'accept-encoding: br'",
        table: Table::None,
    },
    Command {
        name: "diff",
        arguments: &[
            positional("before", "BEFORE", "an archive", ValueHint::FilePath),
            positional("after", "AFTER", "a later one", ValueHint::FilePath),
            JSON,
        ],
        brief: "show which URLs differ between two archives, and bytes by coding",
        details: "Marks URLs by what became of them: + added, ~ changed, > redirected now, \
            - removed without redirect. Times of modification make no difference. Ends with status \
            0 if nothing differs, 1 if something does, 2 if an archive cannot be read.",
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
                "connections at a time, 1 to 1024; with --output each fetches a part of the file",
                ValueHint::Other,
            ),
            option(
                "output",
                'o',
                "FILE",
                "write the content there, - to standard output; without it, it is thrown away",
                ValueHint::FilePath,
            ),
            switch(
                "continue",
                'C',
                "go on with what an earlier download left of --output",
            ),
            switch(
                "http2",
                '2',
                "speak HTTP/2, in clear text by prior knowledge",
            ),
            switch("insecure", 'k', "believe any certificate"),
            option(
                "cacert",
                'A',
                "FILE",
                "believe these certificates (PEM) and not the system's",
                ValueHint::FilePath,
            ),
            JSON,
            switch("quiet", 'q', "no progress bar"),
        ],
        brief: "download URLs and say how fast that was",
        details: "Without --output it measures: every connection fetches every URL, and the \
            content is thrown away. With it the file appears under its name when it is complete, \
            and a digest that the server names (repr-digest) is checked; until then it is \
            FILE.part, and what it holds stands in FILE.part.tag: --continue goes on with it if the \
            server still has the same content (by its entity tag). Redirections are followed, but not \
            from https to http. No coding is asked for, and nothing is tried twice. Ends with status \
            0 if all of it came, 1 if not, 2 if the command line is wrong.",
        example: "gannet get -c 4 https://example.org/disk.img -o disk.img",
        table: Table::None,
    },
    Command {
        name: "cert",
        arguments: &[],
        brief: "write the certificate of the authority behind --tls",
        details: "As PEM, on standard output, for a browser or a client to import. It is made if \
            there is none yet, and good for names of this machine only.",
        example: "gannet cert > gannet-authority.pem",
        table: Table::None,
    },
    Command {
        name: "check",
        arguments: &[
            SITE,
            option(
                "format",
                'f',
                "FORMAT",
                "text, json, or github for annotations",
                ValueHint::Other,
            ),
            JSON,
            Argument {
                is_repeatable: true,
                ..option(
                    "origin",
                    'o',
                    "URL",
                    "links to this host are links of this site",
                    ValueHint::Other,
                )
            },
            switch("strict", 's', "warnings count as errors"),
            COMPAT,
            NO_CLEAN_URLS,
            SPA,
            LISTING,
            DOTFILES,
        ],
        brief: "find dead links, missing assets and rules that do nothing",
        details: "Reads every page and style sheet as browsers do: links and anchors that lead \
            nowhere, images, scripts and styles that are missing, names that differ in case, \
            content loaded without TLS; of rules, loops, chains and those that are never reached. \
            Asks nothing of the network. Ends with status 1 if there is an error, 2 if the site \
            cannot be read.",
        example: "gannet check ./site --origin https://example.org",
        table: Table::None,
    },
    Command {
        name: "sbom",
        arguments: &[],
        brief: "write the bill of materials of this program, as CycloneDX JSON",
        details: "Every crate with its version, licence, checksum and dependencies.",
        example: "gannet sbom > gannet.cdx.json",
        table: Table::None,
    },
    Command {
        name: "licenses",
        arguments: &[switch("brief", 'b', "only the names of the licences")],
        brief: "write the licences of everything in this program",
        details: "",
        example: "gannet licenses --brief",
        table: Table::None,
    },
    Command {
        name: "keygen",
        arguments: &[positional(
            "name",
            "NAME",
            "of the files: NAME.key and NAME.pub",
            ValueHint::FilePath,
        )],
        brief: "make a pair of keys to sign archives with",
        details: "The keys are minisign's, and have no password; 'minisign -G' makes keys that have \
            one.",
        example: "gannet keygen release",
        table: Table::None,
    },
    Command {
        name: "completions",
        arguments: &[positional(
            "shell",
            "SHELL",
            "bash, elvish, fish, powershell or zsh",
            ValueHint::Other,
        )],
        brief: "write a completion script for a shell",
        details: "",
        example: "gannet completions bash > /etc/bash_completion.d/gannet",
        table: Table::None,
    },
    Command {
        name: "man",
        arguments: &[],
        brief: "write the manual page",
        details: "",
        example: "gannet man > /usr/local/share/man/man1/gannet.1",
        table: Table::None,
    },
];

/// Writes the reference page of the manual; for those who work on gannet.
pub const REFERENCE_COMMAND: &str = "reference";

/// The name of the table of `pack` in the configuration.
pub const PACK_SECTION: &str = "pack";

/// The flags of one table.
#[must_use]
pub fn flags(table: Table) -> Vec<Description> {
    match table {
        Table::Serve => SERVE_FLAGS.iter().map(|flag| flag.describe("")).collect(),
        Table::Pack => PACK_FLAGS
            .iter()
            .map(|flag| flag.describe(PACK_SECTION))
            .collect(),
        Table::None => Vec::new(),
    }
}

/// The flags of all tables.
#[must_use]
pub fn all_flags() -> Vec<Description> {
    [Table::Serve, Table::Pack]
        .into_iter()
        .flat_map(flags)
        .collect()
}

impl Argument {
    /// As it is typed: `ARCHIVE`, `PATH...`, `[-l, --long]`.
    #[must_use]
    pub fn usage(&self) -> String {
        let dots = if self.is_repeatable { "..." } else { "" };
        match self.letter {
            None => format!("{}{dots}", self.value_name),
            Some(letter) if self.value_name.is_empty() => format!("-{letter}, --{}", self.name),
            Some(letter) => format!("-{letter}, --{} {}{dots}", self.name, self.value_name),
        }
    }
}

impl Command {
    /// `gannet cat ARCHIVE PATH...`
    #[must_use]
    pub fn usage(&self) -> String {
        let mut text = format!("gannet {}", self.name);
        if self.table != Table::None {
            text.push_str(" [OPTIONS]");
        }
        for argument in self.arguments {
            let usage = match argument.letter {
                Some(letter) => format!("-{letter} {}", argument.value_name)
                    .trim_end()
                    .to_owned(),
                None => argument.usage(),
            };
            let open = if argument.is_required {
                ("", "")
            } else {
                ("[", "]")
            };
            text.push_str(&format!(" {}{usage}{}", open.0, open.1));
        }
        if self.table == Table::Serve {
            text.push_str(" [PATH]");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_flag_has_a_variable_and_a_key_of_its_own() {
        let flags = all_flags();
        let variables: BTreeSet<String> = flags.iter().map(Description::variable).collect();
        let keys: BTreeSet<String> = flags.iter().map(Description::key).collect();
        assert_eq!((variables.len(), keys.len()), (flags.len(), flags.len()));
        for flag in &flags {
            let variable = flag.variable();
            assert!(
                variable.starts_with("GANNET_") && !variable.contains('-'),
                "{variable}"
            );
            assert_ne!(variable, crate::command_line::layers::CONFIG_VARIABLE);
            assert!(!flag.brief.is_empty(), "{}", flag.name);
            assert!(
                !flag.brief.ends_with('.'),
                "--{}: a brief text has no final stop",
                flag.name
            );
            let details = flag.details;
            assert!(
                details.is_empty() || details.ends_with('.'),
                "--{}",
                flag.name
            );
        }
    }

    #[test]
    fn no_key_of_serve_is_the_table_of_a_command() {
        assert!(
            flags(Table::Serve)
                .iter()
                .all(|flag| flag.name != PACK_SECTION)
        );
    }
}
