//! Flags that other servers have, and that gannet had: what to write instead.
//!
//! From nginx, lighttpd, caddy file-server, miniserve, static-web-server, simple-http-server, darkhttpd, dufs, kawipiko,
//! Python's http.server, and http-server and serve of npm. A flag that gannet has by the same name is not in here.

use std::ffi::OsString;
use std::path::Path;

use crate::command_line::commands::Command;
use crate::command_line::layers::Origin;
use crate::messages::Failure;

/// What to do instead of a flag that gannet had.
#[derive(Clone, Copy)]
enum Instead {
    /// Another flag with a value, as it is typed.
    Flag(&'static str),
    /// A key of the configuration, which takes the same values.
    Key(&'static str),
    /// A sentence.
    Advice(&'static str),
}

use Instead::{Advice, Flag, Key};

impl Instead {
    /// The next step where the flag was given, or two: typed, as keys of a configuration, or as variables.
    fn help(self, origin: Origin, are_two: bool) -> String {
        let it = if are_two { "both" } else { "it" };
        match (origin, self) {
            (Origin::CommandLine, Flag(typed)) => format!("write '{typed}'"),
            (Origin::CommandLine, Key(key)) => {
                format!("write '{key} = ...' into the file of --config")
            }
            (Origin::File, Flag(typed)) => {
                let typed = typed.trim_start_matches('-');
                let (name, value) = typed.split_once(' ').unwrap_or_default();
                format!("write '{name} = \"{value}\"'")
            }
            (Origin::File, Key(key)) => format!("write '{key}'"),
            (Origin::Environment, Flag(typed)) => {
                let was = if are_two { "were" } else { "was" };
                format!("unset {it}, and give '{typed}' if {it} {was} true")
            }
            (Origin::Environment, Key(_)) => {
                let step = self.help(Origin::CommandLine, are_two);
                format!("unset {it}, and {step}")
            }
            (Origin::Environment, Advice(words)) => format!("unset {it}; {words}"),
            (Origin::CommandLine | Origin::File, Advice(words)) => words.to_owned(),
        }
    }
}

/// Flags of other servers, as they are typed there; and behind a colon the next step.
const OTHERS: &[&str] = &[
    "--host --hostname --bind --bind-addr --bind-address --address --addr --listen-address \
     --interface --interfaces --ip --ip-address --ipv6 --bind-tls --bind-quic -a -b: \
     did you mean '--listen ADDR:PORT', or '--expose'?",
    "--http-port --listen-port: did you mean '--port N', or '--listen ADDR:PORT'?",
    "--https-port --tls-port --ssl-port: did you mean '--listen https://ADDR:PORT'?",
    "--root --root-dir --directory --dir --base-dir --document-root --docroot --webroot --www \
     --folder --public --path --cwd -d -r: \
     the folder has no flag: 'gannet DIR'",
    "--archive --archive-mmap --archive-inmem: \
     an archive has no flag: 'gannet FILE'; 'gannet pack' converts those of others",
    "--single --render-spa --render-try-index --page-fallback --fallback --fallback-page \
     --try-files --try-file: \
     did you mean '--spa'?",
    "-s: \
     did you mean '--spa', or '--quiet'? For 'nginx -s reload' write 'systemctl reload gannet'",
    "--gzip --brotli --br --zstd --deflate --compression --compress-response -x -z: \
     text is compressed anyway; '--compress off' turns that off",
    "-g: text is compressed anyway; settings are flags, or keys of the file of '--config'",
    "--compression-level --gzip-level: \
     'gannet compress' and 'gannet pack' take levels, with '--compress LIST'",
    "--precompressed --compression-static --gzip-static: \
     compressed copies beside files are used anyway, see 'gannet compress'",
    "--no-compression --no-gzip: did you mean '--compress off'?",
    "--auth --auth-method --basic-auth --auth-file --username --password --user-auth: \
     did you mean '--password-file FILE'? 'gannet password USER' writes its lines",
    "--ssl --https --self-signed -S: did you mean '--tls', or '--tls-cert FILE'?",
    "--cert --cert-file --ssl-cert --ssl-certificate --http2-tls-cert --certfile --tls-bundle \
     --tls-public: \
     did you mean '--tls-cert FILE'?",
    "-C: did you mean '--tls-cert FILE', or '--cors any'?",
    "--key --key-file --ssl-key --ssl-certificate-key --http2-tls-key --keyfile --tls-private -K: \
     did you mean '--tls-key FILE'?",
    "--ssl-pass --certpass --tls-password-file: \
     a key has no password here: 'openssl pkey' writes one without",
    "--ca --cacert --mtls: did you mean '--tls-client-ca FILE'?",
    "--domain --letsencrypt --autocert: did you mean '--acme HOST'?",
    "--email: did you mean 'acme.email = ADDRESS' in the file of '--config'?",
    "--https-redirect --https-redirect-host --https-redirect-from-port \
     --https-redirect-from-hosts --redirect-http --forward-https: \
     did you mean '--http-redirect ADDR:PORT'?",
    "--no-dirlist --no-directory-listing --disable-indexing --no-index --no-autoindex \
     --no-dir-listing -I: \
     did you mean '--no-listing'?",
    "--browse --list --listing --show-files --directory-listing --autoindex --dirlist: \
     folders without an index page are listed anyway; '--no-listing' turns that off",
    "-i: folders without an index page are listed anyway; for an address, '--listen ADDR:PORT'",
    "--directory-listing-order --directory-listing-format --default-sorting-method \
     --default-sorting-order --sort --nosort --dirs-first --title --theme --color-scheme \
     --readme --hide-theme-selector --show-wget-footer --reveal-symlinks --file-limit: \
     listings have one look, and the reader sorts them; an index page of your own replaces one",
    "--enable-tar --enable-tar-gz --enable-zip --allow-archive --directory-listing-download: \
     a folder is not sent as one file: make a tar or a zip beside it",
    "--index-files --index-file --default-file --render-index: did you mean '--index NAMES'?",
    "--page404 --page50x --error-page --error-pages --not-found --404: \
     the page of errors needs no flag: 404.html in the folder",
    "--hidden --hidden-files --show-hidden: did you mean '--dotfiles'?",
    "-H: did you mean '--header NAME:VALUE', or '--dotfiles'?",
    "--no-dotfiles --hide-dotfiles --ignore-hidden-files: \
     names that start with a dot are not served anyway; '--dotfiles' turns that off",
    "--symlinks --follow-symlinks --allow-symlink: \
     links within the folder are followed anyway; for others, did you mean '--follow-links DIR'?",
    "--no-symlinks --disable-symlinks: \
     links out of the folder are not followed anyway, and nothing turns off those within it",
    "--pretty-urls --clean-urls --ext: \
     '/about' answers 'about.html' anyway; '--no-clean-urls' turns that off",
    "--redirect-trailing-slash: did you mean '--trailing-slash WHAT'?",
    "--cors-allow-origins --cors-origin --allow-origin --access-control-allow-origin \
     --enable-cors: \
     did you mean '--cors any', or '--cors ORIGIN'?",
    "--cors-allow-headers --cors-allow-credentials --cors-expose-headers --coop --coep: \
     did you mean '--header NAME:VALUE', or a '_headers' file?",
    "--mimetypes --media-type --mime-type --content-type --default-mimetype --text-charset: \
     did you mean '--type SUFFIX=TYPE'?",
    "--cache --cache-control --cachecontrol --cache-control-headers --cache-time --max-age \
     --expires --immutable --no-cache --nocache: \
     how long browsers keep files is set by rules: a '_headers' file, or '--header NAME:VALUE'",
    "--memory-cache: did you mean '--cache-memory SIZE'?",
    "--etag --etags --no-etag --last-modified: \
     ETag and Last-Modified are always sent: leave it out",
    "--security-headers --security-headers-disable: \
     these fields are sent anyway; '--no-security-fields' turns that off",
    "--csp --content-security-policy: \
     'gannet pack --csp enforce' makes a policy for each page; one for all is a line of \
     '_headers'",
    "--hosts-disable: did you mean '--unknown-host ignore'?",
    "--server-name --vhost --virtual-host --host-header --allowed-hosts: \
     did you mean '--site HOST=DIR', or '--hosts'?",
    "--dummy-delay: did you mean '--delay TIME'?",
    "--access-log --verbose --debug --log-format-combined --log-remote-address --log-ip -v: \
     did you mean '--log combined'?",
    "--access-log-file --error-log --log-dir --log-path --syslog: \
     did you mean '--log-file FILE'? It has requests; messages go to standard error",
    "--log-level --loglevel --info --trace: \
     messages have no levels: '--quiet' leaves errors, '--log FORMAT' adds requests",
    "--log-json --json-log --json-logs --json: did you mean '--log json'?",
    "--log-color --log-with-ansi --no-color: did you mean '--color WHEN'?",
    "--log-x-real-ip --log-forwarded-for --trusted-proxies --trusted-ip --trust-proxy --real-ip \
     --x-forwarded-for: \
     did you mean '--trust CIDR'?",
    "--proxy-protocol: did you mean '--listen ADDR:PORT,proxy' with '--trust CIDR'?",
    "--silent --no-request-logging --no-log --no-logs -L: did you mean '--log off', or '--quiet'?",
    "--qrcode: did you mean '--qr'?",
    "--http2 --http3 --http1 --h2 --h2c --quic --no-http1 --http1-disable --http2-disable \
     --protocol --protocols: \
     all versions are spoken; '--http 1,2,3' names which",
    "--config-file -f: did you mean '--config FILE'?",
    "--test --validate --test-config -t -T: did you mean '--check-config'?",
    "--reload --restart --stop --signal: \
     write 'systemctl reload gannet', or send a signal: see docs/manual/operation.md",
    "--open --watch --livereload --live-reload --reload-on-change --live --hot -o: \
     did you mean 'gannet dev --open'?",
    "-w: did you mean '--workers N', '--config FILE', or 'gannet dev --open'?",
    "--threads --threads-multiplier --max-blocking-threads --worker-processes --processes --jobs: \
     did you mean '--workers N'?",
    "--maxconn --max-conn --max-clients: did you mean '--max-connections N'?",
    "--ulimit: did you mean '--max-descriptors N'?",
    "--timeout --connection-timeout: \
     did you mean '--idle-timeout TIME', '--head-timeout TIME' or '--progress-timeout TIME'?",
    "--keepalive --keep-alive --keepalive-timeout --no-keepalive: \
     connections stay open for the next request; '--idle-timeout TIME' says how long",
    "--write-timeout --send-timeout: did you mean '--progress-timeout TIME'?",
    "--rate-limit --ratelimit --throttle --bandwidth --limit-rate: \
     did you mean 'client.requests' or 'client.rate', keys of the file of '--config'?",
    "--whitelist --allowlist --allow-ip --blacklist --deny-ip: \
     did you mean '--allow CIDR', or '--deny CIDR'?",
    "--grace-period --shutdown-timeout: did you mean '--grace TIME'?",
    "--uid --gid --group --chroot --drop-uid --setuid --run-as: \
     did you mean '--user NAME'? The server confines itself, see '--sandbox'",
    "--daemon --daemonize --background --pidfile --pid: \
     did you mean 'gannet install', which makes a service of systemd?",
    "--foreground --no-daemon --nodaemon --no-port-switching --no-clipboard --no-server-id \
     --no-server-header -D: \
     that is so anyway: leave it out",
    "--fd: sockets of systemd need no flag: 'gannet install --socket' makes one",
    "--experimental-metrics: did you mean '--metrics ADDR:PORT'?",
    "--route-prefix --random-route --path-prefix --url-prefix --base-path --base-url --baseurl \
     --base --prefix --alias --mount: \
     did you mean '--site /PATH=DIR'? It serves the folder below that path",
    "--upload --upload-files --allow-upload --allow-delete --allow-all --mkdir --rm-files \
     --overwrite-files --webdav --enable-webdav --max-body-size --client-max-body-size -A: \
     gannet takes no uploads: see docs/manual/directory.md",
    "-u: \
     gannet takes no uploads: see docs/manual/directory.md; for no compression, '--compress off'",
    "--proxy --proxy-config --reverse-proxy --upstream --backend --forward --forward-all \
     --websocket --cgi --php --fastcgi: \
     gannet serves files alone: a proxy in front sends the rest elsewhere, see \
     docs/manual/proxies.md",
    "--rewrite: did you mean a '_redirects' file? Its rules redirect and rewrite",
    "--templates --minify --accept-markdown: \
     files are sent as they are: 'gannet dev --build COMMAND' runs a generator",
    "--favicon: \
     favicon.ico of the folder is sent, else a built-in one; '--no-favicon' turns that off",
    "--robots: write a robots.txt into the folder",
    "--single-file: a file has no flag: 'gannet FILE'",
    "--maintenance-mode: \
     there is none: have a proxy in front answer, or serve a folder of one page with '--spa'",
    "--print-completions --print-manpage --completions: \
     did you mean 'gannet completions SHELL', or 'gannet help --man'?",
];

const COPIES: Instead = Advice("'--cache-memory SIZE' copies archives of up to half of SIZE");

/// Flags that gannet had: each is an error, in each layer.
const RETIRED: &[(&str, Instead)] = &[
    ("--server-timing", Key("server-timing")),
    ("--no-http2", Flag("--http 1,3")),
    ("--no-http3", Flag("--http 1,2")),
    ("--ignore-host", Flag("--unknown-host ignore")),
    ("--no-sidecars", Flag("--compress off")),
    ("--no-compress", Flag("--compress stored")),
    ("--archive-memory", COPIES),
    ("--preload", COPIES),
    (
        "--defer-accept",
        Advice("a socket of systemd may have 'DeferAcceptSec=1s'"),
    ),
    (
        "--log-format",
        Advice("the format itself is a value of '--log'"),
    ),
    ("--client-connections", Key("client.connections")),
    ("--client-requests", Key("client.requests")),
    ("--client-rate", Key("client.rate")),
    ("--log-mask", Key("log.mask")),
    ("--log-sample", Key("log.sample")),
    ("--acme-email", Key("acme.email")),
    ("--acme-profile", Key("acme.profile")),
    ("--acme-eab-kid", Key("acme.eab-kid")),
    ("--acme-eab-key", Key("acme.eab-key")),
    ("--acme-thumbprint", Key("acme.thumbprint")),
    ("--alt-svc", Key("alt-svc")),
];

/// Those that one flag replaces together: the steps for each would undo one another.
const RETIRED_PAIRS: &[([&str; 2], Instead)] = &[
    (["--no-http2", "--no-http3"], Flag("--http 1")),
    (["--no-sidecars", "--no-compress"], Flag("--compress off")),
    (["--archive-memory", "--preload"], COPIES),
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
    let mut rows = OTHERS.iter().filter_map(|row| row.split_once(": "));
    let row = rows.find(|(names, _)| names.split(' ').any(|name| name == typed));
    row.map(|(_, help)| help)
}

/// What to say of a flag of `serve` that gannet had, and the next step. It is spelled as its origin does, and so are
/// `others`, all that is given there: another one that the same flag replaces is named as well.
#[must_use]
pub fn retired<'a>(
    spelled: &str,
    origin: Origin,
    others: impl IntoIterator<Item = &'a str>,
) -> Option<(String, String)> {
    let flag = flag_of(spelled, origin);
    let (_, instead) = RETIRED.iter().find(|(it, _)| *it == flag)?;
    let partner = others.into_iter().find_map(|other| {
        let both = [flag.clone(), flag_of(other, origin)];
        let is_of = |pair: &[&str; 2]| both == *pair || both == [pair[1], pair[0]];
        let (_, instead) = RETIRED_PAIRS.iter().find(|(pair, _)| is_of(pair))?;
        Some((other, instead))
    });
    let kind = match origin {
        Origin::CommandLine => ["a flag", "flags"],
        Origin::Environment => ["an environment variable", "environment variables"],
        Origin::File => ["a key", "keys"],
    };
    Some(match partner {
        None => (
            format!("'{spelled}' is no longer {}", kind[0]),
            instead.help(origin, false),
        ),
        Some((other, instead)) => (
            format!("'{spelled}' and '{other}' are no longer {}", kind[1]),
            instead.help(origin, true),
        ),
    })
}

/// The flag behind a key, or a variable of the environment.
fn flag_of(spelled: &str, origin: Origin) -> String {
    match origin {
        Origin::CommandLine => spelled.to_owned(),
        Origin::File => format!("--{spelled}"),
        Origin::Environment => {
            let name = spelled.strip_prefix("GANNET_").unwrap_or_default();
            format!("--{}", name.replace('_', "-").to_ascii_lowercase())
        }
    }
}

/// What to say of a letter that this command had, and the next step.
#[must_use]
pub fn retired_letter(typed: &str, command: Option<&Command>) -> Option<(String, String)> {
    let (_, names) = RETIRED_LETTERS
        .iter()
        .find(|(letter, _)| *letter == typed)?;
    let arguments = command?.arguments;
    let argument = arguments.iter().find(|it| names.contains(&it.name))?;
    let what = format!("'{typed}' is no longer a flag");
    Some((what, format!("write '--{}'", argument.name)))
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
    use crate::command_line::arguments::{ACTIONS, parse};
    use crate::command_line::commands::{COMMANDS, all_flags};

    #[test]
    fn flags_of_other_servers_are_explained() {
        let flags = all_flags();
        let of_commands = COMMANDS.iter().flat_map(|command| command.arguments);
        let known: Vec<&str> = flags.iter().map(|flag| flag.name).collect();
        let known = [known, of_commands.map(|it| it.name).collect()].concat();
        let split = |row: &'static &str| row.split_once(": ").expect("names and help");
        let rows: Vec<_> = OTHERS.iter().map(split).collect();
        for (names, help) in &rows {
            for name in names.split(' ') {
                let typed = ["gannet", name].map(OsString::from);
                let failure = parse(&typed).expect_err(name).to_string();
                let expect = format!("gannet: unknown flag '{name}'\nhelp: {help}");
                assert_eq!(failure, expect);
            }
            // Flags that are named exist.
            let words = help.split(['\'', ' ', '?', ',', ';']);
            for flag in words.filter_map(|word| word.strip_prefix("--")) {
                let is_action = ACTIONS.iter().any(|(name, ..)| *name == flag);
                assert!(is_action || known.contains(&flag), "{flag}");
            }
        }
        let names = rows.iter().flat_map(|(names, _)| names.split(' '));
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
        for (flag, instead) in RETIRED {
            let help = instead.help(Origin::CommandLine, false);
            let what = format!("'{flag}' is no longer a flag");
            check_help(&["gannet", flag], &what, &help);
            check_help(&["gannet", "serve", "site", flag], &what, &help);
            check_help(&["gannet", &format!("{flag}=1")], &what, &help);
            if let Key(key) = instead {
                let flags = all_flags();
                let of_key = flags.iter().find(|it| it.key() == *key);
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
        assert!(retired("no-http2", Origin::File, []).is_some());
        assert!(retired("GANNET_NO_HTTP2", Origin::Environment, []).is_some());
    }

    #[test]
    fn two_that_one_flag_replaces_are_one_error() {
        let check = |typed: &[&str], expect: &str| {
            let typed: Vec<OsString> = typed.iter().map(Into::into).collect();
            assert_eq!(parse(&typed).expect_err(expect).to_string(), expect);
        };
        check(
            &["gannet", "serve", "--no-http2", "--no-http3"],
            "gannet: '--no-http2' and '--no-http3' are no longer flags\nhelp: write '--http 1'",
        );
        check(
            &["gannet", "--no-http3", "site", "--no-http2=true"],
            "gannet: '--no-http3' and '--no-http2' are no longer flags\nhelp: write '--http 1'",
        );
        check(
            &["gannet", "--no-http3", "--no-http3", "--no-compress"],
            "gannet: '--no-http3' is no longer a flag\nhelp: write '--http 1,2'",
        );
        // Every two whose steps are values of one flag are a pair.
        let name = |instead: &Instead| match instead {
            Flag(typed) => typed.split(' ').next(),
            Key(_) | Advice(_) => None,
        };
        for (at, (flag, instead)) in RETIRED.iter().enumerate() {
            for (other, of_other) in &RETIRED[at + 1..] {
                let is_pair = RETIRED_PAIRS
                    .iter()
                    .any(|(pair, _)| pair == &[*flag, *other]);
                let is_one = name(instead).is_some() && name(instead) == name(of_other);
                assert!(!is_one || is_pair, "{flag} {other}");
            }
        }
    }
}
