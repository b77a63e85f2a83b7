//! Settings that packing and serving share: how paths are resolved, and which fields answers have.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use gannet_archive::is_normalised;
use gannet_content::policy::defaults::DefaultFields;
use gannet_content::policy::security::Cors;
use gannet_content::routing::{Routing, TrailingSlash};
use gannet_content::rules::Compat;

use crate::command_line::values::{choice, text};
use gannet_content::host_name::site_name;

/// How paths are resolved, and which fields answers have.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SiteSettings {
    /// The dialect of the rules files, which also sets the index names; `None` for that of the
    /// site's origin.
    pub compat: Option<Compat>,
    /// Rules files are ordinary files.
    pub no_rules: bool,
    /// Index names; empty for those of the dialect.
    pub index: Vec<String>,
    /// How slashes at the end of a path are treated.
    pub trailing_slash: TrailingSlash,
    /// Omit the default security fields.
    pub no_security_fields: bool,
    /// The origins whose scripts may read answers.
    pub cors: Cors,
}

impl SiteSettings {
    /// The options that map paths to files.
    #[must_use]
    pub fn routing(&self) -> Routing {
        let mut routing = Routing::new(self.compat.unwrap_or_default());
        if self.no_rules {
            routing.rules = None;
        }
        if !self.index.is_empty() {
            let names = self.index.iter();
            routing.index_names = names.map(|name| name.clone().into_bytes()).collect();
        }
        routing.trailing_slash = self.trailing_slash;
        routing
    }

    /// The default fields of answers.
    #[must_use]
    pub fn defaults(&self) -> DefaultFields {
        DefaultFields {
            security: !self.no_security_fields,
            cors: self.cors.clone(),
        }
    }
}

/// The dialects of the rules files.
pub const COMPATS: &[&str] = &["netlify", "cloudflare", "kawipiko"];

/// Parses a dialect.
///
/// # Errors
/// The value is not one of the choices.
pub fn compat(values: &[OsString]) -> Result<Compat, String> {
    let set = [
        ("netlify", Compat::Netlify),
        ("cloudflare", Compat::Cloudflare),
        ("kawipiko", Compat::Kawipiko),
    ];
    choice(values, &set)
}

/// The values of `--trailing-slash`.
pub const TRAILING_SLASHES: &[&str] = &["auto", "always", "never", "off"];

/// Parses a value of `--trailing-slash`.
///
/// # Errors
/// The value is not one of the choices.
pub fn trailing_slash(values: &[OsString]) -> Result<TrailingSlash, String> {
    let set = [
        ("auto", TrailingSlash::Auto),
        ("always", TrailingSlash::Always),
        ("never", TrailingSlash::Never),
        ("off", TrailingSlash::Off),
    ];
    choice(values, &set)
}

/// Parses file names separated by commas.
///
/// # Errors
/// A name is empty, `.` or `..`, or contains a slash.
pub fn index_names(values: &[OsString]) -> Result<Vec<String>, String> {
    let list = text(values)?;
    let names = list.split(',').map(|name| match name.trim() {
        "" | "." | ".." => Err("an empty name in the list".to_owned()),
        name if name.contains('/') => Err(format!("'{name}' is a path, not a name")),
        name => Ok(name.to_owned()),
    });
    names.collect()
}

/// Parses names separated by commas and the path served for them: `a.example,b.example=DIR`. A name is a
/// host, a host and the beginning of its paths (`a.example/docs`), or only that (`/docs`).
///
/// # Errors
/// The value has another form, a name is invalid, or names have different beginnings.
pub fn hosted(value: &OsString) -> Result<(Vec<String>, PathBuf), String> {
    let form = || "not of the form HOST[/PREFIX][,...]=PATH".to_owned();
    let bytes = value.as_bytes();
    let at = bytes
        .iter()
        .position(|byte| *byte == b'=')
        .ok_or_else(form)?;
    let hosts = str::from_utf8(&bytes[..at]).map_err(|_| form())?;
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(&bytes[at + 1..]));
    if path.as_os_str().is_empty() {
        return Err(form());
    }
    let mut prefixes = Vec::new();
    let names = hosts.split(',').map(|name| {
        let name = name.trim();
        let (host, prefix) = name.split_at(name.find('/').unwrap_or(name.len()));
        let prefix = prefix.trim_end_matches('/');
        let refuse = |cause: String| format!("'{name}': {cause}");
        if !prefix.is_empty()
            && (!is_normalised(prefix.as_bytes()) || prefix.contains(['%', '?', '#', '*']))
        {
            let cause = "expected HOST/PATH without 'https://', query or '*', and the path decoded, \
                without empty, '.' and '..' parts";
            return Err(refuse(cause.into()));
        }
        prefixes.push(prefix);
        match host {
            "" if !prefix.is_empty() => Ok(prefix.to_owned()),
            host => Ok(site_name(host).map_err(refuse)? + prefix),
        }
    });
    let names = names.collect::<Result<_, _>>()?;
    match prefixes.iter().all(|prefix| *prefix == prefixes[0]) {
        true => Ok((names, path)),
        false => {
            Err("its names have different paths in front; give each a --site of its own".into())
        }
    }
}

/// Parses `off`, `any`, or an origin.
///
/// # Errors
/// The value is none of these.
pub fn cors(values: &[OsString]) -> Result<Cors, String> {
    match text(values)? {
        "off" => Ok(Cors::Off),
        "any" | "*" => Ok(Cors::Any),
        origin => {
            let host = origin
                .strip_prefix("https://")
                .or_else(|| origin.strip_prefix("http://"));
            let is_host = |host: &str| {
                let is_byte = |b: u8| b.is_ascii_alphanumeric() || b"-.:[]_".contains(&b);
                !host.is_empty() && host.bytes().all(is_byte)
            };
            match host.is_some_and(is_host) {
                true => Ok(Cors::Origin(origin.to_ascii_lowercase())),
                false => Err("not off, any, or an origin such as https://app.example.org".into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_origins() {
        let check = |text: &str, expect: Option<Cors>| {
            assert_eq!(cors(&[OsString::from(text)]).ok(), expect, "{text}");
        };
        check("off", Some(Cors::Off));
        check("*", Some(Cors::Any));
        let origin = "https://app.example.org:8443";
        check(origin, Some(Cors::Origin(origin.into())));
        check("https://app.example.org/", None);
        check("app.example.org", None);
        check("https://a\r\nb", None);
        check("", None);
    }

    #[test]
    fn sites_are_named_by_hosts_and_the_beginnings_of_their_paths() {
        let check = |text: &str, expect: Result<&[&str], &str>| {
            let found = hosted(&OsString::from(text));
            match expect {
                Ok(names) => {
                    let (found, path) = found.expect(text);
                    assert_eq!(found, names, "{text}");
                    assert_eq!(path, PathBuf::from("dir"), "{text}");
                }
                Err(part) => {
                    let cause = found.expect_err(text);
                    assert!(cause.contains(part), "{text}: {cause}");
                }
            }
        };
        check("A.example, b.example=dir", Ok(&["a.example", "b.example"]));
        check("a.example/=dir", Ok(&["a.example"]));
        check("A.example/Docs/=dir", Ok(&["a.example/Docs"]));
        check("a.example/a b/\u{fc}=dir", Ok(&["a.example/a b/\u{fc}"]));
        check("*.example/x,[::1]/x=dir", Ok(&["*.example/x", "[::1]/x"]));
        check("/docs=dir", Ok(&["/docs"]));
        check("/=dir", Err("not the name of a host"));
        check("a.example/x,b.example=dir", Err("different paths in front"));
        check("a.example/../x=dir", Err("and the path decoded"));
        check("a.example//x=dir", Err("and the path decoded"));
        check("a.example/x%20y=dir", Err("and the path decoded"));
        check("a.example/x?y=dir", Err("and the path decoded"));
        check("a.example/docs/*=dir", Err("and the path decoded"));
        check("https://a.example/docs=dir", Err("without 'https://'"));
        check("a.example/docs", Err("not of the form"));
    }

    #[test]
    fn settings_make_a_routing() {
        let settings = SiteSettings {
            compat: Some(Compat::Kawipiko),
            no_rules: true,
            index: vec!["start.html".into()],
            ..SiteSettings::default()
        };
        let routing = settings.routing();
        assert_eq!(routing.index_names, [b"start.html"]);
        assert_eq!(routing.rules, None);
        assert_eq!(routing.page_suffixes.len(), 5);
        assert_eq!(SiteSettings::default().routing(), Routing::default());
    }
}
