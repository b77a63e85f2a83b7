//! Flags of `gannet serve` for what is served and how.

use clap::ValueHint;
use gannet_content::host_name::host_name;
use gannet_http::semantics::limits::OPERATOR_FIELDS_LEN_MAX;
use gannet_io::links::Outside;
use gannet_server::config::UnknownHost;

use crate::command_line::flag::{Flag, Group, Value, one, one_of};
use crate::command_line::settings::Settings;
use crate::command_line::site_flags::{self, HelpPlace, OfSite};
use crate::command_line::site_settings::{SiteSettings, hosted};
use crate::command_line::values::{
    ON_DEMAND_LEAST, choice, compression, field, path, paths, public_key, socket_address, switch,
    text,
};
use crate::quantities::parse_size;

impl OfSite for Settings {
    fn site(&mut self) -> &mut SiteSettings {
        &mut self.site
    }

    fn spa(&mut self) -> &mut bool {
        &mut self.server.content.spa
    }

    fn clean_urls(&mut self) -> &mut bool {
        &mut self.server.content.clean_urls
    }

    fn hosts(&mut self) -> &mut bool {
        &mut self.hosts
    }

    fn dotfiles(&mut self) -> &mut bool {
        &mut self.server.content.dotfiles
    }

    fn types(&mut self) -> &mut Vec<(String, String)> {
        &mut self.server.content.types
    }
}

/// Visibility and heading of the flags that `serve` and `pack` share.
const COMMON: HelpPlace = HelpPlace::common(Group::Content);
const FURTHER: HelpPlace = HelpPlace::further(Group::Content);

/// The flags, in the order in which they are described.
pub(super) const FLAGS: &[Flag<Settings>] = &[
    Flag {
        name: "path",
        short: None,
        value: Value::Positional { name: "PATH" },
        group: Group::Content,
        default: "",
        brief: "a directory, a single file or a .gannet archive; the current directory if absent",
        details: "A file whose content or name (.gannet) is that of an archive is served as one, \
            any other file at / and under its own name. A URL of a store, such as \
            s3://BUCKET/PATH or https://HOST/PATH, is copied by a process beside the server, and \
            the copy is served. / and home directories are served only if they are named; /srv, /var/www \
            and folders in them do not count as such.",
        is_common: false,
        apply: |settings, values| {
            settings.path = Some(path(values)?);
            Ok(())
        },
    },
    site_flags::spa(
        COMMON,
        "For single-page applications. A path that looks like an asset (its last segment has a \
         suffix) still gets 404.",
    ),
    Flag {
        name: "no-listing",
        short: None,
        value: Value::Switch,
        group: Group::Content,
        default: "false",
        brief: "do not list directories without an index page",
        details: "Only in directory mode; an archive has the listings that were packed.",
        is_common: true,
        apply: |settings, values| {
            settings.server.content.listing = !switch(values)?;
            Ok(())
        },
    },
    site_flags::no_clean_urls(FURTHER),
    site_flags::compat(FURTHER),
    site_flags::no_rules(FURTHER),
    site_flags::index(FURTHER),
    site_flags::trailing_slash(FURTHER),
    site_flags::no_security_fields(
        FURTHER,
        "X-Content-Type-Options stays. Change single fields with _headers and --header. An archive \
         already has the fields of its files.",
    ),
    site_flags::cors(FURTHER, "Such as https://app.example.org."),
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
        brief: "serve another path for these comma-separated hosts; repeatable",
        details: "Such as example.org,www.example.org=site.gannet; *.example.org is for all \
            hosts below it that no site names, example.org/docs=./build for /docs of a host. The \
            plain PATH serves all other hosts. In the configuration it may be a table.",
        is_common: false,
        apply: |settings, values| {
            settings.sites = values.iter().map(hosted).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    site_flags::hosts(
        FURTHER,
        "A folder, a store or an archive (HOST.gannet) named like a host is its site; \
            _wildcard.example.org is for all other hosts below example.org, _default for all others. Entries that come and go are noticed.",
    ),
    Flag {
        name: "unknown-host",
        short: None,
        value: one_of("WHAT", &["default", "404", "421", "ignore"]),
        group: Group::Content,
        default: "default",
        brief: "answer for a host that no site names: default, 404, 421 or ignore",
        details: "default is the site without hosts; if there is none, 421. ignore serves one \
            site for every host, named or not: the one without hosts, else the first.",
        is_common: false,
        apply: |settings, values| {
            let set = [
                ("default", UnknownHost::Default),
                ("404", UnknownHost::NotFound),
                ("421", UnknownHost::Misdirected),
                ("ignore", UnknownHost::Ignore),
            ];
            settings.server.content.unknown_host = choice(values, &set)?;
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
        details: "Such as /healthz. --metrics has /health on a separate address.",
        is_common: false,
        apply: |settings, values| {
            let path = text(values)?;
            if !path.starts_with('/') || path.contains(['?', '#', '%']) {
                return Err("not a path that starts with '/'".into());
            }
            if path == "/" {
                return Err(
                    "no visitor would see the site's front page; take one such as /healthz".into(),
                );
            }
            settings.server.content.health = Some(path.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "server-timing",
        short: None,
        value: Value::Switch,
        group: Group::Keys,
        default: "false",
        brief: "report in each answer how long it waited (server-timing)",
        details: "cache;desc=hit for an answer given at once; cache;desc=miss, lookup;dur=MS for \
            one that waited for the disk. Every client sees it: for development and \
            measurements.",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.server_timing = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "no-favicon",
        short: None,
        value: Value::Switch,
        group: Group::Content,
        default: "false",
        brief: "answer 404 if the site has no /favicon.ico",
        details: "Otherwise a small icon is served, since browsers always request one.",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.favicon = !switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "compress",
        short: None,
        value: Value::One {
            name: "WHAT",
            choices: &[],
            hint: ValueHint::DirPath,
        },
        group: Group::Content,
        default: "auto",
        brief: "compressed text of a directory: auto, stored, off, or a folder of copies",
        details: "stored uses .br, .zst and .gz files beside the original that are no older. \
            auto also compresses text from 1 KiB to 8 MiB in the background, for later requests. \
            A path, such as ./cache, is auto with the copies that 'gannet compress DIR --into' \
            wrote there, instead of those beside the originals. Never where a field forbids it \
            ('Cache-Control: no-transform').",
        is_common: false,
        apply: |settings, values| {
            let compression = compression(values)?;
            let content = &mut settings.server.content;
            content.sidecars = compression.is_stored;
            content.compress = compression.is_made;
            content.copies = compression.copies;
            Ok(())
        },
    },
    Flag {
        name: "compressed-only",
        short: None,
        value: Value::Switch,
        group: Group::Content,
        default: "false",
        brief: "if NAME is missing, serve NAME.gz or NAME.br for it",
        details: "It is sent to clients that accept it, and decompressed for others if it and its \
            content are at most 1 MiB each. Each missing name costs two more disk lookups.",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.compressed_only = switch(values)?;
            Ok(())
        },
    },
    site_flags::dotfiles(
        FURTHER,
        "also serve names that start with a dot",
        ".well-known is always served; all others are 404 without this flag.",
    ),
    Flag {
        name: "follow-links",
        short: None,
        value: Value::Many {
            name: "DIR",
            separator: ':',
            joint: None,
            hint: ValueHint::DirPath,
        },
        group: Group::Content,
        default: "",
        brief: "a folder outside of the site that its links may lead into; repeatable",
        details: "Without this, a symbolic link that leads out of the directory gets 404. Links within it are \
            always followed. A user who may write to the site can publish what is in DIR.",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.follow_links = Outside::new(&paths(values)?);
            Ok(())
        },
    },
    site_flags::content_types(
        FURTHER,
        "the content type for a suffix, such as md=text/markdown; repeatable",
        "Overrides the built-in table. A suffix is also the whole name of a file without one: \
            README=text/plain. In the configuration it may be a table.",
    ),
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
        details: "Fields that frame or describe an answer (content-length, etag and the like) \
            are rejected; all together have at most 8 KiB. In the configuration it may be a \
            table; in the environment newlines separate the fields.",
        is_common: true,
        apply: |settings, values| {
            let fields: Vec<_> = values.iter().map(field).collect::<Result<_, _>>()?;
            let lens = fields
                .iter()
                .map(|(name, value)| name.len() + value.len() + ": \r\n".len());
            if lens.sum::<usize>() > OPERATOR_FIELDS_LEN_MAX {
                let most = OPERATOR_FIELDS_LEN_MAX;
                return Err(format!(
                    "together longer than {most} bytes, which every answer would have"
                ));
            }
            settings.server.content.fields = fields;
            Ok(())
        },
    },
    Flag {
        name: "require-signature",
        short: None,
        value: one("KEY"),
        group: Group::Content,
        default: "",
        brief: "serve archives and stores only if signed with this minisign public key",
        details: "The key's line in Base64, or the name of its .pub file. Every body is read and \
            verified at start.",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.require_signature = Some(public_key(text(values)?)?);
            Ok(())
        },
    },
    Flag {
        name: "copy",
        short: None,
        value: one("DIR"),
        group: Group::Content,
        default: "",
        brief: "where a store that is served from a URL is copied to",
        details: "By default a folder for this URL below $STATE_DIRECTORY, root's \
            /var/lib/gannet, or $XDG_STATE_HOME/gannet.",
        is_common: false,
        apply: |settings, values| {
            settings.copy = Some(path(values)?);
            Ok(())
        },
    },
    Flag {
        name: "on-demand",
        short: None,
        value: one("SIZE"),
        group: Group::Content,
        default: "",
        brief: "of a store at a URL, fetch only what is requested, into this much space",
        details: "The server starts once the index of the release is there; what a request needs \
            is fetched, verified and kept, in at least 64M. Without it whole releases are copied \
            before they are served.",
        is_common: false,
        apply: |settings, values| {
            let room = parse_size(text(values)?)?;
            if room < ON_DEMAND_LEAST {
                return Err("less than 64M".to_owned());
            }
            settings.on_demand = Some(room);
            Ok(())
        },
    },
    Flag {
        name: "receive",
        short: None,
        value: one("ADDR:PORT"),
        group: Group::Content,
        default: "",
        brief: "take releases of --require-signature's key here, from 'gannet publish'",
        details: "PATH is the store, which is made if it is missing. A process beside the server \
            takes what is signed and newer than what is there, by HTTPS with the certificates of \
            the server; without any, on loopback alone.",
        is_common: false,
        apply: |settings, values| {
            settings.receive = Some(socket_address(text(values)?)?);
            Ok(())
        },
    },
    Flag {
        name: "previews",
        short: None,
        value: one("DOMAIN"),
        group: Group::Content,
        default: "",
        brief: "answer for ID.DOMAIN from the release with that ID, staged or kept",
        details: "The IDs are those that 'gannet publish' and 'gannet releases' print. Search \
            engines are asked not to list these answers.",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.previews = Some(host_name(text(values)?)?);
            Ok(())
        },
    },
    Flag {
        name: "node",
        short: None,
        value: one("NAME"),
        group: Group::Content,
        default: "",
        brief: "the name of this server among those that serve the same store",
        details: "It decides in which stage of 'gannet publish --stages' this server takes part. \
            Without it, the machine's host name.",
        is_common: false,
        apply: |settings, values| {
            text(values)?.clone_into(&mut settings.server.content.node);
            Ok(())
        },
    },
];
