//! The table of `gannet serve`: every flag with its texts and what it sets.

use clap::ValueHint;
use gannet_server::config::{EngineChoice, UnknownHost};
use gannet_server::tls::kernel::Wish;

use crate::command_line::flag::{FILE, FILES, Flag, Group, Value, one, one_of};
use crate::command_line::settings::{LogChoice, Settings};
use crate::command_line::site_settings::{
    COMPATS, TRAILING_SLASHES, compat, cors, hosted, index_names, trailing_slash,
};
use crate::command_line::values::{
    choice, colour, content_type, field, listen_address, number, path, paths, public_key,
    socket_address, switch, text,
};
use crate::quantities::{parse_duration_ms, parse_size};

/// Every flag of `gannet serve`.
pub static SERVE_FLAGS: &[Flag<Settings>] = &[
    Flag {
        name: "path",
        short: None,
        value: Value::Positional { name: "PATH" },
        group: Group::Content,
        default: "",
        brief: "a directory, a single file or a .gannet archive; the current directory if absent",
        details: "What it is decides how it is served: a file that begins as an archive does, or \
            whose name ends in .gannet, is served as an archive; any other file is answered at / \
            and under its own name. Without a path and without a terminal gannet refuses to \
            start, so that a mis-written service never publishes its working directory. A \
            directory whose name is that of a command is written ./pack.",
        is_common: false,
        apply: |settings, values| {
            settings.path = Some(path(values)?);
            Ok(())
        },
    },
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
        details: "A port alone means loopback: 8080, :8080 and localhost:8080 are 127.0.0.1:8080. \
            Port 0 takes any free port. The address must be \
            free: only the default port moves to the next free one.",
        is_common: true,
        apply: |settings, values| {
            settings.listen = values
                .iter()
                .map(listen_address)
                .collect::<Result<_, _>>()?;
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
        details: "If it is not given and 8080 is busy, the next free port is taken, up to 8099. A \
            port that was given is never changed: if it is busy, gannet stops and says by whom.",
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
        details: "The first lines then name the URLs by which the network reaches this machine.",
        is_common: true,
        apply: |settings, values| {
            settings.expose = switch(values)?;
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
        details: "An address of its own, so that metrics are never on the served address. A port \
            alone means loopback.",
        is_common: false,
        apply: |settings, values| {
            settings.server.metrics = Some(socket_address(text(values)?.trim())?);
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
        details: "Unless --tls-cert names one. It is signed by an authority of its own that is kept in \
            $XDG_DATA_HOME/gannet/tls and is good for this machine only; 'gannet cert' writes the \
            authority's certificate, for a browser to import. The default port is then 8443. Unix \
            sockets stay clear: who connects there is a proxy.",
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
        details: "The file has the whole chain. With several, each client gets the one for the name that it asks for, and the \
            first if there is none. Read again when the file changes, and by SIGHUP; if the new \
            one cannot be used, the old one stays.",
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
        details: "As many as certificates, in the same order; none if each certificate's file has \
            its key, too.",
        is_common: true,
        apply: |settings, values| {
            settings.tls.keys = paths(values)?;
            Ok(())
        },
    },
    Flag {
        name: "http-redirect",
        short: None,
        value: one("ADDR:PORT"),
        group: Group::Tls,
        default: "",
        brief: "answer HTTP here with a redirect (308) to HTTPS",
        details: "A port alone means loopback.",
        is_common: false,
        apply: |settings, values| {
            settings.tls.redirect = Some(socket_address(text(values)?.trim())?);
            Ok(())
        },
    },
    Flag {
        name: "hsts",
        short: None,
        value: Value::Switch,
        group: Group::Tls,
        default: "false",
        brief: "tell browsers to come by HTTPS only, for two years",
        details: "Adds strict-transport-security to answers over TLS. For other values of it use \
            --header.",
        is_common: false,
        apply: |settings, values| {
            settings.tls.hsts = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "ktls",
        short: None,
        value: one_of("WHEN", &["auto", "on", "off"]),
        group: Group::Tls,
        default: "auto",
        brief: "auto, on or off: have the kernel seal large bodies",
        details: "A connection is handed over when a body of 64 KiB or more is about to go, in \
            TLS 1.3. auto does it where the kernel can, which takes its module 'tls'; the first \
            lines say whether it does. on is an error where it cannot.",
        is_common: false,
        apply: |settings, values| {
            settings.tls.kernel = choice(
                values,
                &[("auto", Wish::Auto), ("on", Wish::On), ("off", Wish::Off)],
            )?;
            Ok(())
        },
    },
    Flag {
        name: "spa",
        short: None,
        value: Value::Switch,
        group: Group::Content,
        default: "false",
        brief: "answer unknown paths with /index.html",
        details: "For single-page applications. A path that looks like an asset (its last segment has a suffix) still is 404.",
        is_common: true,
        apply: |settings, values| {
            settings.server.content.spa = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "no-listing",
        short: None,
        value: Value::Switch,
        group: Group::Content,
        default: "false",
        brief: "no lists of directories without index.html",
        details: "Listings exist in directory mode; an archive has those that were packed in.",
        is_common: true,
        apply: |settings, values| {
            settings.server.content.listing = !switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "no-clean-urls",
        short: None,
        value: Value::Switch,
        group: Group::Content,
        default: "false",
        brief: "/about does not answer about.html",
        details: "",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.clean_urls = !switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "compat",
        short: None,
        value: one_of("HOST", COMPATS),
        group: Group::Content,
        default: "netlify",
        brief: "whose reading of _redirects and _headers: netlify, cloudflare or kawipiko",
        details: "kawipiko also brings its fourteen index names, its clean URLs (.html, .htm, \
            .xhtml, .xht, .txt) and its pages for everything below a folder (_wildcard.*, _200.*, \
            _404.*).",
        is_common: false,
        apply: |settings, values| {
            settings.site.compat = compat(values)?;
            Ok(())
        },
    },
    Flag {
        name: "no-rules",
        short: None,
        value: Value::Switch,
        group: Group::Content,
        default: "false",
        brief: "_redirects and _headers are files like others",
        details: "",
        is_common: false,
        apply: |settings, values| {
            settings.site.no_rules = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "index",
        short: None,
        value: one("NAMES"),
        group: Group::Content,
        default: "",
        brief: "names of pages that answer for their folder, with commas between",
        details: "In the order in which they are tried. Without it index.html, or the names that \
            --compat brings.",
        is_common: false,
        apply: |settings, values| {
            settings.site.index = index_names(values)?;
            Ok(())
        },
    },
    Flag {
        name: "trailing-slash",
        short: None,
        value: one_of("WHAT", TRAILING_SLASHES),
        group: Group::Content,
        default: "auto",
        brief: "auto, always, never or off",
        details: "auto redirects /folder to /folder/ and /page/ to /page; always redirects to the \
            form with a slash, never to the one without; with off /folder answers as /folder/ \
            does, and nothing is redirected.",
        is_common: false,
        apply: |settings, values| {
            settings.site.trailing_slash = trailing_slash(values)?;
            Ok(())
        },
    },
    Flag {
        name: "no-security-fields",
        short: None,
        value: Value::Switch,
        group: Group::Content,
        default: "false",
        brief: "no Referrer-Policy, frame-ancestors and Cross-Origin-Opener-Policy",
        details: "X-Content-Type-Options stays. Single fields are changed by _headers and --header. An archive has those of its files already.",
        is_common: false,
        apply: |settings, values| {
            settings.site.no_security_fields = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "cors",
        short: None,
        value: one("WHO"),
        group: Group::Content,
        default: "off",
        brief: "whose scripts may read answers: off, any, or an origin",
        details: "Such as https://app.example.org.",
        is_common: false,
        apply: |settings, values| {
            settings.site.cors = cors(values)?;
            Ok(())
        },
    },
    Flag {
        name: "site",
        short: None,
        value: Value::Many {
            name: "HOSTS=PATH",
            separator: '\n',
            joint: Some("="),
            hint: ValueHint::Other,
        },
        group: Group::Content,
        default: "",
        brief: "serve another path for these hosts, with commas between; repeatable",
        details: "Such as example.org,www.example.org=site.gannet. PATH without a flag answers for \
            all other hosts. In the configuration it may be a table.",
        is_common: false,
        apply: |settings, values| {
            settings.sites = values.iter().map(hosted).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Flag {
        name: "hosts",
        short: None,
        value: Value::Switch,
        group: Group::Content,
        default: "false",
        brief: "the directory has a folder for each host",
        details: "Folders with names of hosts are sites; what is in _default answers for all other \
            hosts. Folders are looked for when gannet starts.",
        is_common: false,
        apply: |settings, values| {
            settings.hosts = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "unknown-host",
        short: None,
        value: one_of("WHAT", &["default", "404", "421"]),
        group: Group::Content,
        default: "default",
        brief: "what answers for a host that no site names: default, 404 or 421",
        details: "default is the site without hosts; if there is none, 421.",
        is_common: false,
        apply: |settings, values| {
            let set = [
                ("default", UnknownHost::Default),
                ("404", UnknownHost::NotFound),
                ("421", UnknownHost::Misdirected),
            ];
            settings.server.content.unknown_host = choice(values, &set)?;
            Ok(())
        },
    },
    Flag {
        name: "ignore-host",
        short: None,
        value: Value::Switch,
        group: Group::Content,
        default: "false",
        brief: "one site answers for every host",
        details: "The one without hosts, else the first. Rules that name hosts still see them.",
        is_common: false,
        apply: |settings, values| {
            settings.ignore_host = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "health",
        short: None,
        value: one("PATH"),
        group: Group::Content,
        default: "",
        brief: "answer 'ok' at this path, for load balancers",
        details: "Such as /healthz. Nothing is taken from the site unless this is given; --metrics \
            has /health on an address of its own.",
        is_common: false,
        apply: |settings, values| {
            let path = text(values)?;
            if !path.starts_with('/') || path.contains(['?', '#', '%']) {
                return Err("not a path that begins with '/'".into());
            }
            settings.server.content.health = Some(path.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "dummy",
        short: None,
        value: Value::Switch,
        group: Group::Engine,
        default: "false",
        brief: "answer everything with 'hello world!', to measure the engine alone",
        details: "Nothing is opened and nothing is looked up.",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.dummy = switch(values)?.then_some("hello world!\n");
            Ok(())
        },
    },
    Flag {
        name: "dummy-empty",
        short: None,
        value: Value::Switch,
        group: Group::Engine,
        default: "false",
        brief: "answer everything with nothing, to measure the engine alone",
        details: "",
        is_common: false,
        apply: |settings, values| {
            if switch(values)? {
                settings.server.content.dummy = Some("");
            }
            Ok(())
        },
    },
    Flag {
        name: "max-memory",
        short: None,
        value: one("SIZE"),
        group: Group::Memory,
        default: "0",
        brief: "the most memory that the process may have; 0: no limit",
        details: "Of its data (RLIMIT_DATA): a mapped archive does not count. Beyond it gannet \
            stops.",
        is_common: false,
        apply: |settings, values| {
            settings.max_memory = parse_size(text(values)?)?;
            Ok(())
        },
    },
    Flag {
        name: "max-descriptors",
        short: None,
        value: one("N"),
        group: Group::Limits,
        default: "0",
        brief: "the most descriptors that the process may have; 0: as many as allowed",
        details: "Connections and open files count. At the limit idle connections make room.",
        is_common: false,
        apply: |settings, values| {
            settings.max_descriptors = number(values, "from 0 to 18446744073709551615")?;
            Ok(())
        },
    },
    Flag {
        name: "no-sidecars",
        short: None,
        value: Value::Switch,
        group: Group::Content,
        default: "false",
        brief: "do not use .br, .zst and .gz files that lie beside the original",
        details: "A sidecar is used if the client accepts its coding and it is not older than the \
            original.",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.sidecars = !switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "dotfiles",
        short: None,
        value: Value::Switch,
        group: Group::Content,
        default: "false",
        brief: "serve names that begin with a dot, too",
        details: ".well-known is always served; all others are 404 without this flag.",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.dotfiles = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "type",
        short: None,
        value: Value::Many {
            name: "SUFFIX=TYPE",
            separator: ',',
            joint: Some("="),
            hint: ValueHint::Other,
        },
        group: Group::Content,
        default: "",
        brief: "the content type of a suffix, such as md=text/markdown; repeatable",
        details: "Comes before the built-in table. In the configuration it may be a table.",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.types =
                values.iter().map(content_type).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Flag {
        name: "header",
        short: None,
        value: Value::Many {
            name: "'NAME: VALUE'",
            separator: '\n',
            joint: Some(": "),
            hint: ValueHint::Other,
        },
        group: Group::Content,
        default: "",
        brief: "a field to add to every answer; repeatable",
        details: "Fields that frame or describe an answer (content-length, etag and the like) are \
            decided by gannet and refused here. In the configuration it may be a table; in the \
            environment the fields are separated by line ends.",
        is_common: true,
        apply: |settings, values| {
            settings.server.content.fields = values.iter().map(field).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Flag {
        name: "cache-memory",
        short: None,
        value: one("SIZE"),
        group: Group::Memory,
        default: "256MiB",
        brief: "the most memory for small files of a directory; 0 keeps none",
        details: "Over all workers together. Sizes take K, M, G (powers of 1024) or KB, MB, GB.",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.cache_memory = parse_size(text(values)?)?;
            Ok(())
        },
    },
    Flag {
        name: "archive-memory",
        short: None,
        value: Value::Switch,
        group: Group::Memory,
        default: "false",
        brief: "copy an archive into sealed memory instead of mapping its file",
        details: "Takes as much memory as the archive is long. Nothing that happens to the file \
            afterwards can be seen.",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.archive_memory = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "require-signature",
        short: None,
        value: one("KEY"),
        group: Group::Content,
        default: "",
        brief: "serve an archive only if it is signed with this minisign public key",
        details: "The key's line in Base64, or the name of its .pub file. Every body is read and \
            compared at the start.",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.require_signature = Some(public_key(text(values)?)?);
            Ok(())
        },
    },
    Flag {
        name: "preload",
        short: None,
        value: Value::Switch,
        group: Group::Memory,
        default: "false",
        brief: "read a mapped archive once at start, so that it is in memory",
        details: "",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.preload = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "defer-accept",
        short: None,
        value: Value::Switch,
        group: Group::Limits,
        default: "false",
        brief: "accept a TCP connection when its first bytes are there",
        details: "Saves work where clients make a connection per request. Connections that have \
            sent nothing wait in the kernel's queue, which is shorter than the server's own limit, \
            and are reset when the server stops.",
        is_common: false,
        apply: |settings, values| {
            settings.server.defer_accept = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "head-timeout",
        short: None,
        value: one("TIME"),
        group: Group::Limits,
        default: "15s",
        brief: "from the first byte of a request until its head is complete",
        details: "Also from accepting a connection until its first request. Times take ms, s, m \
            or h; a bare number is seconds.",
        is_common: false,
        apply: |settings, values| {
            settings.server.limits.head_timeout_ms = parse_duration_ms(text(values)?)?;
            Ok(())
        },
    },
    Flag {
        name: "idle-timeout",
        short: None,
        value: one("TIME"),
        group: Group::Limits,
        default: "75s",
        brief: "how long a connection may wait for its next request",
        details: "",
        is_common: false,
        apply: |settings, values| {
            settings.server.limits.idle_timeout_ms = parse_duration_ms(text(values)?)?;
            Ok(())
        },
    },
    Flag {
        name: "progress-timeout",
        short: None,
        value: one("TIME"),
        group: Group::Limits,
        default: "60s",
        brief: "how long a client may take no byte of an answer",
        details: "",
        is_common: false,
        apply: |settings, values| {
            settings.server.limits.progress_timeout_ms = parse_duration_ms(text(values)?)?;
            Ok(())
        },
    },
    Flag {
        name: "send-rate-min",
        short: None,
        value: one("SIZE"),
        group: Group::Limits,
        default: "500",
        brief: "the least bytes a second a client must take; 0 switches it off",
        details: "Averaged over an answer, once it has lasted longer than --progress-timeout.",
        is_common: false,
        apply: |settings, values| {
            settings.server.limits.send_rate_min = parse_size(text(values)?)?;
            Ok(())
        },
    },
    Flag {
        name: "max-connections",
        short: None,
        value: one("N"),
        group: Group::Limits,
        default: "0",
        brief: "the most connections at once; 0: as many as descriptors allow",
        details: "More are accepted as others end. gannet raises the soft limit of descriptors to \
            the hard one (ulimit -Hn) at start.",
        is_common: false,
        apply: |settings, values| {
            settings.server.limits.connections_max = number(values, "from 0 to 4294967295")?;
            Ok(())
        },
    },
    Flag {
        name: "grace",
        short: None,
        value: one("TIME"),
        group: Group::Limits,
        default: "30s",
        brief: "how long running answers may take after SIGTERM or Ctrl-C",
        details: "A second signal ends gannet at once.",
        is_common: false,
        apply: |settings, values| {
            settings.server.limits.grace_ms = parse_duration_ms(text(values)?)?;
            Ok(())
        },
    },
    Flag {
        name: "engine",
        short: None,
        value: one_of("ENGINE", &["auto", "uring", "epoll"]),
        group: Group::Engine,
        default: "auto",
        brief: "auto, uring or epoll",
        details: "auto takes io_uring where the kernel allows it, else epoll, and says why in the \
            first lines of output. uring is an error where io_uring is missing.",
        is_common: true,
        apply: |settings, values| {
            settings.server.engine = choice(
                values,
                &[
                    ("auto", EngineChoice::Auto),
                    ("uring", EngineChoice::Uring),
                    ("epoll", EngineChoice::Epoll),
                ],
            )?;
            Ok(())
        },
    },
    Flag {
        name: "workers",
        short: None,
        value: one("N"),
        group: Group::Engine,
        default: "0",
        brief: "threads that serve; 0: one for each core",
        details: "Of the cores that this process may use.",
        is_common: true,
        apply: |settings, values| {
            let count: u16 = number(values, "from 0 to 1024")?;
            // A thread, a ring and a listener each: beyond this it is a slip of the pen.
            if count > 1024 {
                return Err("not a whole number from 0 to 1024".into());
            }
            settings.server.workers = usize::from(count);
            Ok(())
        },
    },
    Flag {
        name: "log",
        short: None,
        value: one_of("FORMAT", &["auto", "pretty", "combined", "json", "off"]),
        group: Group::Output,
        default: "auto",
        brief: "auto, pretty, combined, json or off",
        details: "A line for each request. auto is pretty on a terminal and off otherwise. combined is the format that log \
            analysers know. With combined or json on standard output, the first lines go to \
            standard error.",
        is_common: true,
        apply: |settings, values| {
            settings.log = choice(
                values,
                &[
                    ("auto", LogChoice::Auto),
                    ("pretty", LogChoice::Pretty),
                    ("combined", LogChoice::Combined),
                    ("json", LogChoice::Json),
                    ("off", LogChoice::Off),
                ],
            )?;
            Ok(())
        },
    },
    Flag {
        name: "log-file",
        short: None,
        value: FILE,
        group: Group::Output,
        default: "",
        brief: "where requests are logged instead of standard output; reopened by SIGHUP",
        details: "With --log auto it is written in the combined format.",
        is_common: false,
        apply: |settings, values| {
            settings.server.log_file = Some(path(values)?);
            Ok(())
        },
    },
    Flag {
        name: "quiet",
        short: Some('q'),
        value: Value::Switch,
        group: Group::Output,
        default: "false",
        brief: "no lines at start and stop, errors only",
        details: "",
        is_common: true,
        apply: |settings, values| {
            settings.quiet = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "color",
        short: None,
        value: one_of("WHEN", &["auto", "always", "never"]),
        group: Group::Output,
        default: "auto",
        brief: "auto, always or never",
        details: "auto means on a terminal, unless NO_COLOR is set or TERM is dumb.",
        is_common: false,
        apply: |settings, values| {
            settings.colour = colour(values)?;
            Ok(())
        },
    },
];

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn the_default_that_is_described_is_the_default_that_holds() {
        for flag in SERVE_FLAGS.iter().filter(|flag| !flag.default.is_empty()) {
            let mut settings = Settings::default();
            (flag.apply)(&mut settings, &[OsString::from(flag.default)]).expect(flag.name);
            if flag.name == "port" {
                assert_eq!(settings.port, Some(crate::serve::addresses::PORT));
                continue;
            }
            assert_eq!(settings, Settings::default(), "--{}", flag.name);
        }
    }

    #[test]
    fn every_choice_is_taken_and_a_near_one_is_named() {
        for flag in SERVE_FLAGS {
            let choices = flag.describe("").choices();
            for choice in choices {
                (flag.apply)(&mut Settings::default(), &[OsString::from(choice)]).expect(choice);
            }
            if let Some(last) = choices.last() {
                let typed = OsString::from(format!("{last}x"));
                let cause = (flag.apply)(&mut Settings::default(), &[typed]).expect_err(flag.name);
                assert!(cause.contains(&format!("did you mean '{last}'")), "{cause}");
            }
        }
    }
}
