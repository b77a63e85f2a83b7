//! Flags that other servers have, and that gannet had: what to write instead.
//!
//! From nginx, caddy file-server, miniserve, static-web-server, darkhttpd, dufs, kawipiko, Python's
//! http.server, and http-server and serve of npm. A flag that gannet has by the same name is not in here.

use std::ffi::OsString;
use std::path::Path;

use crate::command_line::commands::Command;
use crate::messages::Failure;

/// What to write instead of a flag of another server.
struct Other {
    /// As it is typed there.
    names: &'static [&'static str],
    /// The next step.
    help: &'static str,
}

/// A flag that gannet had: in each layer, it is an error that names what to do instead.
pub struct Retired {
    flag: &'static str,
    instead: Instead,
}

/// What to do instead.
#[derive(Clone, Copy)]
enum Instead {
    /// Another flag with a value, as it is typed.
    Flag(&'static str),
    /// A key of the configuration, which takes the same values.
    Key(&'static str),
    /// A sentence.
    Advice(&'static str),
}

impl Retired {
    /// The next step where the flag was typed.
    #[must_use]
    pub fn help(&self) -> String {
        match self.instead {
            Instead::Flag(typed) => format!("write '{typed}'"),
            Instead::Key(key) => format!("write '{key} = ...' into the file of --config"),
            Instead::Advice(words) => words.to_owned(),
        }
    }

    /// The next step where its key was in a configuration.
    #[must_use]
    pub fn help_in_file(&self) -> String {
        match self.instead {
            Instead::Flag(typed) => {
                let typed = typed.trim_start_matches('-');
                let (name, value) = typed.split_once(' ').unwrap_or_default();
                format!("write '{name} = \"{value}\"'")
            }
            Instead::Key(key) => format!("write '{key}'"),
            Instead::Advice(words) => words.to_owned(),
        }
    }

    /// The next step where its variable was in the environment.
    #[must_use]
    pub fn help_in_environment(&self) -> String {
        match self.instead {
            Instead::Flag(typed) => format!("unset it, and give '{typed}' if it was true"),
            Instead::Key(_) => format!("unset it, and {}", self.help()),
            Instead::Advice(words) => format!("unset it; {words}"),
        }
    }
}

const OTHERS: &[Other] = &[
    Other {
        names: &[
            "--host",
            "--bind",
            "--address",
            "--addr",
            "--interfaces",
            "--ip",
            "--bind-tls",
            "--bind-quic",
            "-a",
            "-b",
        ],
        help: "did you mean '--listen ADDR:PORT', or '--expose'?",
    },
    Other {
        names: &[
            "--root",
            "--directory",
            "--dir",
            "--base-dir",
            "--document-root",
            "-d",
            "-r",
        ],
        help: "the folder has no flag: 'gannet DIR'",
    },
    Other {
        names: &["--archive", "--archive-mmap", "--archive-inmem"],
        help: "an archive has no flag: 'gannet FILE'; 'gannet pack' converts those of others",
    },
    Other {
        names: &[
            "--single",
            "--render-spa",
            "--page-fallback",
            "--fallback",
            "-s",
        ],
        help: "did you mean '--spa'? For no output '--quiet'",
    },
    Other {
        names: &[
            "--gzip",
            "--brotli",
            "--zstd",
            "--compression",
            "--compress-response",
            "-g",
            "-z",
        ],
        help: "text is compressed anyway; '--compress off' turns that off",
    },
    Other {
        names: &["--precompressed", "--compression-static", "--gzip-static"],
        help: "compressed copies beside files are used anyway, see 'gannet compress'",
    },
    Other {
        names: &["--no-compression", "--no-gzip"],
        help: "did you mean '--compress off'?",
    },
    Other {
        names: &[
            "--auth",
            "--basic-auth",
            "--auth-file",
            "--username",
            "--user-auth",
        ],
        help: "did you mean '--password-file FILE'? 'gannet password USER' writes its lines",
    },
    Other {
        names: &["--ssl", "--https", "-S"],
        help: "did you mean '--tls', or '--tls-cert FILE'?",
    },
    Other {
        names: &[
            "--cert",
            "--ssl-cert",
            "--http2-tls-cert",
            "--certfile",
            "--tls-bundle",
            "--tls-public",
            "-C",
        ],
        help: "did you mean '--tls-cert FILE'?",
    },
    Other {
        names: &[
            "--key",
            "--ssl-key",
            "--http2-tls-key",
            "--keyfile",
            "--tls-private",
            "-K",
        ],
        help: "did you mean '--tls-key FILE'?",
    },
    Other {
        names: &["--domain", "--letsencrypt", "--autocert"],
        help: "did you mean '--acme HOST'?",
    },
    Other {
        names: &["--https-redirect", "--redirect-http"],
        help: "did you mean '--http-redirect ADDR:PORT'?",
    },
    Other {
        names: &[
            "--no-dirlist",
            "--no-directory-listing",
            "--disable-indexing",
            "--no-index",
            "--no-autoindex",
            "--no-dir-listing",
            "-I",
        ],
        help: "did you mean '--no-listing'?",
    },
    Other {
        names: &[
            "--browse",
            "--listing",
            "--directory-listing",
            "--autoindex",
            "--dirlist",
            "-i",
        ],
        help: "folders without an index page are listed anyway; '--no-listing' turns that off",
    },
    Other {
        names: &[
            "--index-files",
            "--index-file",
            "--default-file",
            "--render-index",
        ],
        help: "did you mean '--index NAMES'?",
    },
    Other {
        names: &["--page404", "--error-page", "--404"],
        help: "the page of errors needs no flag: 404.html in the folder",
    },
    Other {
        names: &["--hidden", "--show-hidden"],
        help: "did you mean '--dotfiles'?",
    },
    Other {
        names: &["-H"],
        help: "did you mean '--header NAME:VALUE', or '--dotfiles'?",
    },
    Other {
        names: &["--no-dotfiles", "--hide-dotfiles", "--ignore-hidden-files"],
        help: "names that start with a dot are not served anyway; '--dotfiles' turns that off",
    },
    Other {
        names: &["--symlinks", "--follow-symlinks", "--allow-symlink"],
        help: "links within the folder are followed anyway; for others, did you mean '--follow-links DIR'?",
    },
    Other {
        names: &["--no-symlinks"],
        help: "links out of the folder are not followed anyway, and nothing turns off those within it",
    },
    Other {
        names: &["--pretty-urls", "--clean-urls", "--ext"],
        help: "'/about' answers 'about.html' anyway; '--no-clean-urls' turns that off",
    },
    Other {
        names: &["--redirect-trailing-slash"],
        help: "did you mean '--trailing-slash WHAT'?",
    },
    Other {
        names: &["--cors-allow-origins", "--allow-origin", "--enable-cors"],
        help: "did you mean '--cors any', or '--cors ORIGIN'?",
    },
    Other {
        names: &[
            "--mimetypes",
            "--media-type",
            "--mime-type",
            "--content-type",
        ],
        help: "did you mean '--type SUFFIX=TYPE'?",
    },
    Other {
        names: &[
            "--cache",
            "--cache-control",
            "--cache-control-headers",
            "--max-age",
            "--no-cache",
        ],
        help: "how long browsers keep files is set by rules: a '_headers' file, or '--header NAME:VALUE'",
    },
    Other {
        names: &["--security-headers", "--security-headers-disable"],
        help: "these fields are sent anyway; '--no-security-fields' turns that off",
    },
    Other {
        names: &["--csp", "--content-security-policy"],
        help: "'gannet pack --csp enforce' makes a policy for each page; one for all is a line of '_headers'",
    },
    Other {
        names: &["--hosts-disable"],
        help: "did you mean '--unknown-host ignore'?",
    },
    Other {
        names: &["--dummy-delay"],
        help: "did you mean '--delay TIME'?",
    },
    Other {
        names: &[
            "--access-log",
            "--verbose",
            "--debug",
            "--log-format-combined",
            "-v",
        ],
        help: "did you mean '--log combined'?",
    },
    Other {
        names: &["--silent", "--no-request-logging", "--no-log", "-L"],
        help: "did you mean '--log off', or '--quiet'?",
    },
    Other {
        names: &["--qrcode"],
        help: "did you mean '--qr'?",
    },
    Other {
        names: &[
            "--http2",
            "--http3",
            "--http1",
            "--no-http1",
            "--http1-disable",
            "--http2-disable",
            "--protocols",
        ],
        help: "all versions are spoken; '--http 1,2,3' names which",
    },
    Other {
        names: &["--config-file"],
        help: "did you mean '--config FILE'?",
    },
    Other {
        names: &["--test", "--validate", "--test-config", "-t"],
        help: "did you mean '--check-config'?",
    },
    Other {
        names: &["--open", "--watch", "--livereload", "--live", "-o"],
        help: "did you mean 'gannet dev --open'?",
    },
    Other {
        names: &["-w"],
        help: "did you mean '--workers N', '--config FILE', or 'gannet dev --open'?",
    },
    Other {
        names: &[
            "--threads",
            "--threads-multiplier",
            "--worker-processes",
            "--processes",
            "--jobs",
        ],
        help: "did you mean '--workers N'?",
    },
    Other {
        names: &["--maxconn", "--max-conn"],
        help: "did you mean '--max-connections N'?",
    },
    Other {
        names: &["--grace-period", "--shutdown-timeout"],
        help: "did you mean '--grace TIME'?",
    },
    Other {
        names: &["--uid", "--gid", "--chroot"],
        help: "did you mean '--user NAME'? The server confines itself, see '--sandbox'",
    },
    Other {
        names: &["--daemon", "--daemonize", "--background", "--pidfile"],
        help: "did you mean 'gannet install', which makes a service of systemd?",
    },
    Other {
        names: &[
            "--route-prefix",
            "--path-prefix",
            "--base-path",
            "--prefix",
            "--mount",
        ],
        help: "did you mean '--site /PATH=DIR'? It serves the folder below that path",
    },
    Other {
        names: &[
            "--upload",
            "--upload-files",
            "--allow-upload",
            "--allow-all",
            "-u",
            "-A",
        ],
        help: "gannet takes no uploads: see docs/manual/directory.md",
    },
    Other {
        names: &["--proxy", "--forward", "--cgi", "--rewrite"],
        help: "gannet serves files alone; rules of a '_redirects' file send requests elsewhere",
    },
];

const RETIRED: &[Retired] = &[
    Retired {
        flag: "--server-timing",
        instead: Instead::Key("server-timing"),
    },
    Retired {
        flag: "--no-http2",
        instead: Instead::Flag("--http 1,3"),
    },
    Retired {
        flag: "--no-http3",
        instead: Instead::Flag("--http 1,2"),
    },
    Retired {
        flag: "--ignore-host",
        instead: Instead::Flag("--unknown-host ignore"),
    },
    Retired {
        flag: "--no-sidecars",
        instead: Instead::Flag("--compress off"),
    },
    Retired {
        flag: "--no-compress",
        instead: Instead::Flag("--compress stored"),
    },
    Retired {
        flag: "--archive-memory",
        instead: Instead::Advice("'--cache-memory SIZE' copies archives of up to half of SIZE"),
    },
    Retired {
        flag: "--preload",
        instead: Instead::Advice("'--cache-memory SIZE' copies archives of up to half of SIZE"),
    },
    Retired {
        flag: "--defer-accept",
        instead: Instead::Advice("a socket of systemd may have 'DeferAcceptSec=1s'"),
    },
    Retired {
        flag: "--log-format",
        instead: Instead::Advice("the format itself is a value of '--log'"),
    },
    Retired {
        flag: "--client-connections",
        instead: Instead::Key("client.connections"),
    },
    Retired {
        flag: "--client-requests",
        instead: Instead::Key("client.requests"),
    },
    Retired {
        flag: "--client-rate",
        instead: Instead::Key("client.rate"),
    },
    Retired {
        flag: "--log-mask",
        instead: Instead::Key("log.mask"),
    },
    Retired {
        flag: "--log-sample",
        instead: Instead::Key("log.sample"),
    },
    Retired {
        flag: "--acme-email",
        instead: Instead::Key("acme.email"),
    },
    Retired {
        flag: "--acme-profile",
        instead: Instead::Key("acme.profile"),
    },
    Retired {
        flag: "--acme-eab-kid",
        instead: Instead::Key("acme.eab-kid"),
    },
    Retired {
        flag: "--acme-eab-key",
        instead: Instead::Key("acme.eab-key"),
    },
    Retired {
        flag: "--acme-thumbprint",
        instead: Instead::Key("acme.thumbprint"),
    },
    Retired {
        flag: "--alt-svc",
        instead: Instead::Key("alt-svc"),
    },
];

/// Commands of other servers, and of scripts that start one, for which gannet has `serve`.
pub const SERVING: [&str; 5] = ["file-server", "http-server", "http.server", "run", "start"];

/// Letters that `check`, `dev` and `explain` had, with the flags.
const RETIRED_LETTERS: &[(&str, &[&str])] = &[
    ("-M", &["hosts"]),
    ("-C", &["compat"]),
    ("-R", &["no-rules"]),
    ("-I", &["index"]),
    ("-T", &["trailing-slash"]),
    ("-U", &["no-clean-urls"]),
    ("-S", &["spa"]),
    ("-L", &["listing", "no-listing"]),
    ("-F", &["no-favicon"]),
    ("-D", &["dotfiles"]),
];

/// Commands that there were, with what to type instead.
const RETIRED_COMMANDS: &[(&str, &str)] = &[
    ("sbom", "gannet version --sbom"),
    ("licenses", "gannet version --licenses"),
    ("import", "gannet extract"),
    ("man", "gannet help --man"),
];

/// The next step for a flag that other servers have, as it was typed.
#[must_use]
pub fn of_others(typed: &str) -> Option<&'static str> {
    let other = OTHERS.iter().find(|other| other.names.contains(&typed));
    other.map(|other| other.help)
}

/// A flag of `serve` that gannet had, as it was typed.
#[must_use]
pub fn retired(flag: &str) -> Option<&'static Retired> {
    RETIRED.iter().find(|it| it.flag == flag)
}

/// The same by its key in a configuration.
#[must_use]
pub fn retired_key(key: &str) -> Option<&'static Retired> {
    let mut retired = RETIRED.iter();
    retired.find(|it| it.flag.strip_prefix("--") == Some(key))
}

/// The same by its variable in the environment.
#[must_use]
pub fn retired_variable(name: &str) -> Option<&'static Retired> {
    let key = name.strip_prefix("GANNET_")?;
    retired_key(&key.replace('_', "-").to_ascii_lowercase())
}

/// What to write instead of a letter that this command had.
#[must_use]
pub fn retired_letter(typed: &str, command: Option<&Command>) -> Option<String> {
    let (_, names) = RETIRED_LETTERS
        .iter()
        .find(|(letter, _)| *letter == typed)?;
    let arguments = command?.arguments;
    let argument = arguments.iter().find(|it| names.contains(&it.name))?;
    Some(format!("--{}", argument.name))
}

/// What to say of a command that there was, unless the word is a path.
#[must_use]
pub fn retired_command(word: Option<&OsString>) -> Option<Failure> {
    let word = word?;
    let (name, instead) = RETIRED_COMMANDS.iter().find(|(name, _)| word == name)?;
    let failure = Failure::usage(format!("'{name}' is no longer a command"));
    (!Path::new(word).exists()).then(|| failure.help(format!("write '{instead}'")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::arguments::parse;
    use crate::command_line::commands::all_flags;

    #[test]
    fn flags_of_other_servers_are_explained() {
        let known = all_flags();
        for other in OTHERS {
            for name in other.names {
                let typed = ["gannet", name].map(OsString::from);
                let failure = parse(&typed).expect_err(name).to_string();
                let expect = format!("gannet: unknown flag '{name}'\nhelp: {}", other.help);
                assert_eq!(failure, expect);
            }
            // Flags that are named exist.
            let words = other.help.split(['\'', ' ', '?', ',', ';']);
            for flag in words.filter_map(|word| word.strip_prefix("--")) {
                let is_known = known
                    .iter()
                    .any(|it| it.section.is_empty() && it.name == flag);
                assert!(
                    is_known || matches!(flag, "check-config" | "config" | "csp" | "open"),
                    "{flag}"
                );
            }
        }
        let names = OTHERS.iter().flat_map(|other| other.names);
        let mut names: Vec<_> = names.collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count, "each is in one row");
    }

    #[test]
    fn retired_flags_name_their_successors() {
        let check_help = |typed: &[&str], what: &str, help: &str| {
            let typed: Vec<OsString> = typed.iter().map(Into::into).collect();
            let failure = parse(&typed).expect_err(what).to_string();
            let expect = format!("gannet: {what}\nhelp: {help}");
            assert_eq!(failure, expect);
        };
        for retired in RETIRED {
            let (flag, help) = (retired.flag, retired.help());
            let what = format!("'{flag}' is no longer a flag");
            check_help(&["gannet", flag], &what, &help);
            check_help(&["gannet", "serve", "site", flag], &what, &help);
            check_help(&["gannet", &format!("{flag}=1")], &what, &help);
            if let Instead::Key(key) = retired.instead {
                let flags = all_flags();
                let of_key = flags.iter().find(|it| it.key() == key);
                assert!(of_key.is_some_and(|it| it.is_key()), "{key}");
            }
        }
        let check = |typed: &[&str], what: &str, instead: &str| {
            check_help(typed, what, &format!("write '{instead}'"));
        };
        for (letter, names) in RETIRED_LETTERS {
            let command = if names[0] == "listing" {
                "check"
            } else {
                "explain"
            };
            let instead = format!("--{}", names[0]);
            check(
                &["gannet", command, letter],
                &format!("'{letter}' is no longer a flag"),
                &instead,
            );
        }
        check(
            &["gannet", "dev", "-L"],
            "'-L' is no longer a flag",
            "--no-listing",
        );
        for (name, instead) in RETIRED_COMMANDS {
            check(
                &["gannet", name],
                &format!("'{name}' is no longer a command"),
                instead,
            );
            check(
                &["gannet", name, "--brief"],
                &format!("'{name}' is no longer a command"),
                instead,
            );
        }
        assert!(retired_key("no-http2").is_some() && retired_variable("GANNET_NO_HTTP2").is_some());
    }
}
