//! Flags of `gannet serve` for what is served and how.

use clap::ValueHint;
use gannet_server::config::UnknownHost;

use crate::command_line::flag::{Flag, Group, Value, one, one_of};
use crate::command_line::settings::Settings;
use crate::command_line::site_settings::{
    COMPATS, TRAILING_SLASHES, compat, cors, hosted, index_names, trailing_slash,
};
use crate::command_line::values::{choice, content_type, field, path, public_key, switch, text};

/// The flags, in the order in which they are described.
pub(super) const FLAGS: &[Flag<Settings>] = &[
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
        name: "no-favicon",
        short: None,
        value: Value::Switch,
        group: Group::Content,
        default: "false",
        brief: "answer 404 for a /favicon.ico that the site has not",
        details: "Else a small icon is served, since browsers ask for one unbidden.",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.favicon = !switch(values)?;
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
];
