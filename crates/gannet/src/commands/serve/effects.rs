//! Rejects flags that can have no effect with the configured content and addresses.

use std::ffi::OsString;

use gannet_content::rules::Compat;
use gannet_server::config::ClientRules;

use crate::command_line::flag::Flag;
use crate::command_line::idle::{self, Idle};
use crate::command_line::layers::Origins;
use crate::command_line::pack_flags::PACK_FLAGS;
use crate::command_line::serve_flags::SERVE_FLAGS;
use crate::command_line::serve_flags::needs::{Kind, NEEDS, Need};
use crate::command_line::settings::Settings;
use crate::messages::{Exit, Failure};

/// The content and the addresses as far as flags depend on them.
pub(super) struct Situation {
    /// The kinds of content; empty if every request gets the same constant answer.
    pub(super) kinds: Vec<Kind>,
    /// A site is for some hosts only, by a flag or in an archive with hosts.
    pub(super) has_hosts: bool,
    pub(super) has_https: bool,
    pub(super) has_tcp: bool,
    pub(super) has_unix: bool,
    pub(super) is_logging: bool,
}

/// Rejects the first ineffective flag of any layer.
///
/// # Errors
/// Names the flag and the reason.
pub(super) fn check(
    settings: &Settings,
    origins: &Origins,
    situation: &Situation,
) -> Result<(), Failure> {
    for flag in SERVE_FLAGS {
        let Some(origin) = origins.get(flag.name) else {
            continue;
        };
        let need = NEEDS.iter().find(|(name, _)| *name == flag.name);
        let need = need.map_or(Need::Nothing, |(_, need)| *need);
        let Some((why, help)) = situation.lack(need, flag.name, settings) else {
            continue;
        };
        // That a higher layer turns the log off is what layers are for.
        if need == Need::Log && origins.get("log").is_some_and(|by| by > origin) {
            continue;
        }
        // A flag that repeats the default is accepted.
        if is_default(flag, settings) {
            continue;
        }
        let given = origin.shown(&flag.describe(""));
        let failure = Failure::usage(format!("{given} {why}")).help(help);
        return Err(match need {
            // What is served may be another thing soon: a mount is late, or it is being replaced.
            Need::Served(_) if !situation.kinds.is_empty() => Failure {
                exit: Exit::Failed,
                ..failure
            },
            _ => failure,
        });
    }
    idle::refuse(SERVE_FLAGS, "", origins, pairs(settings, origins))
}

/// Flags that other flags make ineffective.
fn pairs(settings: &Settings, origins: &Origins) -> Vec<(bool, Idle)> {
    let content = &settings.server.content;
    let site = &settings.site;
    // Without rules, only kawipiko's dialect still has an effect: its index names and suffixes.
    let is_unread = site.no_rules && matches!(site.compat, Some(Compat::Cloudflare));
    let has_sites_only = settings.path.is_none() && !settings.sites.is_empty();
    let is_given = |name| origins.contains_key(name);
    let has_two_answers = is_given("dummy") && is_given("dummy-empty");
    vec![
        (
            has_two_answers && content.dummy == Some(""),
            Idle::with("dummy", "dummy-empty"),
        ),
        (is_unread, Idle::with("compat", "no-rules")),
        (
            content.fields.iter().any(|(name, _)| name == "alt-svc"),
            Idle::because("alt-svc", "header", "with --header 'alt-svc: ...'"),
        ),
        (
            settings.tls.development && !settings.tls.certificates.is_empty(),
            Idle::with("tls", "tls-cert"),
        ),
        (
            settings.tls.early_data && !settings.tls.client_authorities.is_empty(),
            Idle::because(
                "early-data",
                "tls-client-ca",
                "with --tls-client-ca, which resumes no sessions",
            ),
        ),
        (
            settings.hosts && has_sites_only,
            Idle::because("hosts", "site", "without PATH: --site names every site"),
        ),
        (
            content.previews.is_some() && settings.ignores_host(),
            Idle::because("previews", "unknown-host", "with --unknown-host ignore"),
        ),
    ]
}

fn trusts_unix_alone(clients: &ClientRules) -> bool {
    clients.trust_unix && clients.trust.is_empty()
}

/// Whether a flag is set to its default.
fn is_default(flag: &Flag<Settings>, settings: &Settings) -> bool {
    let mut without = settings.clone();
    !flag.default.is_empty()
        && (flag.apply)(&mut without, &[OsString::from(flag.default)]).is_ok()
        && without == *settings
}

impl Situation {
    /// Why a flag has no effect, to follow its name, and the next step; `None` if it has one.
    fn lack(&self, need: Need, name: &str, settings: &Settings) -> Option<(String, String)> {
        let lack = |why: &str, help: &str| Some((format!("has no effect {why}"), help.to_owned()));
        let is_constant = self.kinds.is_empty();
        let may_have_hosts = is_constant || self.has_hosts;
        match need {
            Need::Served(_) | Need::Content if is_constant => lack(
                "with --dummy and --dummy-empty, which give every request the same answer",
                "leave one of them out",
            ),
            Need::Served(kinds) => self.lack_of_kinds(kinds, name),
            Need::Https if !self.has_https => {
                lack("without HTTPS", "add --tls-cert FILE, or --tls")
            }
            Need::HttpsOrTrust if !self.has_https && !settings.server.clients.trusts_anyone() => {
                lack(
                    "without HTTPS",
                    "add --tls-cert FILE, or --trust with the address of the proxy that speaks HTTPS",
                )
            }
            Need::HttpsAddress if !self.has_https => lack(
                "where no address speaks HTTPS",
                "leave it out, or add --listen https://ADDR:PORT",
            ),
            Need::Tcp if !self.has_tcp => lack("on Unix sockets", "leave it out"),
            Need::Clients if !self.has_tcp && !settings.server.clients.trusts_anyone() => lack(
                "on Unix sockets, whose clients have no address",
                "add --trust unix if what connects to them is a proxy that names its clients",
            ),
            Need::UnixIfTrusted
                if !self.has_unix && trusts_unix_alone(&settings.server.clients) =>
            {
                Some((
                    "unix has no effect without a Unix socket".to_owned(),
                    "add --listen unix:PATH, or leave it out".to_owned(),
                ))
            }
            Need::Trust if !settings.server.clients.trusts_anyone() => lack(
                "without a proxy that is trusted",
                "name the proxy's address with --trust CIDR, or leave it out",
            ),
            Need::Log if !self.is_logging => lack(
                "without a log",
                "choose a format with --log, or leave it out",
            ),
            Need::Hosts if !may_have_hosts && settings.ignores_host() => {
                lack("with a single site", "leave it out")
            }
            Need::Hosts if !may_have_hosts => Some((
                "would refuse every request, since no host is named".into(),
                "add --site HOSTS=PATH or --hosts, or leave it out".into(),
            )),
            Need::Nothing
            | Need::Content
            | Need::Https
            | Need::HttpsOrTrust
            | Need::HttpsAddress
            | Need::Tcp
            | Need::Clients
            | Need::UnixIfTrusted
            | Need::Trust
            | Need::Log
            | Need::Hosts => None,
        }
    }

    /// The same of a flag for these kinds of content.
    fn lack_of_kinds(&self, kinds: &[Kind], name: &str) -> Option<(String, String)> {
        let is_there = |kind: &Kind| kinds.contains(kind);
        if self.kinds.iter().any(is_there) {
            return None;
        }
        let has_archive = self.has(Kind::Archive) || self.has(Kind::Store);
        let is_of_pack = PACK_FLAGS.iter().any(|flag| flag.name == name);
        let why = match (self.has(Kind::Directory), has_archive) {
            (true, _) => "on a directory",
            (false, true) if kinds.contains(&Kind::Store) => "on an archive without a store",
            (false, true) => "on an archive: it is decided when packing",
            (false, false) => "on a single file",
        };
        let help = match is_of_pack && has_archive {
            true => "give it to 'gannet pack', or leave it out",
            false => "leave it out",
        };
        Some((format!("has no effect {why}"), help.to_owned()))
    }

    fn has(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::flag::Value;
    use crate::command_line::layers::Origin;

    fn situation(kind: Kind) -> Situation {
        Situation {
            kinds: vec![kind],
            has_hosts: true,
            has_https: true,
            has_tcp: true,
            has_unix: true,
            is_logging: true,
        }
    }

    /// A value other than the default.
    fn sample(flag: &Flag<Settings>) -> OsString {
        let choices = flag.describe("").choices();
        let other = choices.iter().find(|choice| **choice != flag.default);
        match (flag.name, flag.value, other) {
            (_, Value::Switch, _) => "true".into(),
            (_, _, Some(other)) => other.into(),
            ("acme", ..) => "a.example".into(),
            ("acme-server", ..) => "staging".into(),
            ("acme.thumbprint", ..) => "a".repeat(43).into(),
            ("compress", ..) => "off".into(),
            ("on-demand", ..) => "64M".into(),
            ("cors", ..) => "any".into(),
            ("alt-svc", ..) => "clear".into(),
            ("type", ..) => "md=text/markdown".into(),
            ("header", ..) => "x-a: b".into(),
            ("site", ..) => "a.example=site".into(),
            ("previews", ..) => "preview.example".into(),
            ("health", ..) => "/health".into(),
            ("tls-key-records", ..) => "1000".into(),
            ("index", ..) => "start.html".into(),
            ("trust" | "allow" | "deny", ..) => "loopback".into(),
            ("http", ..) => "1,2".into(),
            ("password-path", ..) => "/staging/*".into(),
            ("client.requests", ..) => "20/s".into(),
            ("log.sample", ..) => "1/10".into(),
            ("client.rate", ..) => "1M".into(),
            ("require-signature", ..) => {
                "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3".into()
            }
            _ => "1".into(),
        }
    }

    /// Settings in which one layer sets one flag.
    fn with(flag: &Flag<Settings>, value: &OsString) -> (Settings, Origins) {
        let mut settings = Settings::default();
        (flag.apply)(&mut settings, std::slice::from_ref(value)).expect(flag.name);
        settings.server.clients.trust_unix |= flag.name == "trust-host";
        let origins = Origins::from([(flag.name, origin(flag))]);
        (settings, origins)
    }

    fn origin(flag: &Flag<Settings>) -> Origin {
        match flag.describe("").is_key() {
            true => Origin::File,
            false => Origin::CommandLine,
        }
    }

    #[test]
    fn every_flag_says_what_it_needs() {
        let mut flags: Vec<_> = SERVE_FLAGS.iter().map(|flag| flag.name).collect();
        let mut needs: Vec<_> = NEEDS.iter().map(|(name, _)| *name).collect();
        flags.sort_unstable();
        needs.sort_unstable();
        assert_eq!(flags, needs);
    }

    /// Each flag with each kind of content is accepted if effective, else rejected by name;
    /// repeating the default is never rejected.
    #[test]
    fn every_flag_is_taken_or_refused_with_each_content() {
        let mut refused = Vec::new();
        for flag in SERVE_FLAGS {
            for kind in [Kind::Directory, Kind::File, Kind::Archive, Kind::Store] {
                let need = NEEDS.iter().find(|(name, _)| *name == flag.name);
                let expect = match need {
                    Some((_, Need::Served(kinds))) => kinds.contains(&kind),
                    _ => true,
                };
                let (settings, origins) = with(flag, &sample(flag));
                let result = check(&settings, &origins, &situation(kind));
                assert_eq!(result.is_ok(), expect, "--{} {kind:?}", flag.name);
                if let Err(failure) = result {
                    let shown = origin(flag).shown(&flag.describe(""));
                    let start = format!("{shown} has no effect on a");
                    assert!(failure.message.starts_with(&start), "{failure}");
                    assert_eq!(failure.exit.code(), 1);
                    refused.push((flag.name, kind));
                }
                if !flag.default.is_empty() {
                    let (settings, origins) = with(flag, &OsString::from(flag.default));
                    check(&settings, &origins, &situation(kind)).expect(flag.name);
                }
            }
        }
        for name in ["cors", "no-clean-urls", "index", "type", "trailing-slash"] {
            assert!(refused.contains(&(name, Kind::Archive)), "{name}");
        }
    }

    #[test]
    fn a_higher_layer_may_turn_the_log_off() {
        let mut flags = SERVE_FLAGS.iter();
        let flag = flags.find(|flag| flag.name == "log.sample");
        let flag = flag.expect("there is such a key");
        let (settings, mut origins) = with(flag, &sample(flag));
        let silent = Situation {
            is_logging: false,
            ..situation(Kind::Directory)
        };
        super::check(&settings, &origins, &silent).expect_err("no log");
        origins.insert("log", Origin::File);
        super::check(&settings, &origins, &silent).expect_err("the same layer");
        origins.insert("log", Origin::CommandLine);
        super::check(&settings, &origins, &silent).expect("a higher layer");
    }

    #[test]
    fn what_is_missing_is_named() {
        let check = |name: &str, situation: Situation, expect: &str| {
            let flag = SERVE_FLAGS.iter().find(|flag| flag.name == name);
            let flag = flag.expect("there is such a flag");
            let (mut settings, origins) = with(flag, &sample(flag));
            settings.server.clients.trust_unix = false;
            let failure = super::check(&settings, &origins, &situation).expect_err(name);
            assert_eq!(failure.message, expect);
        };
        let directory = || situation(Kind::Directory);
        let without = |change: fn(&mut Situation)| {
            let mut situation = directory();
            change(&mut situation);
            situation
        };
        check(
            "ktls",
            without(|it| it.has_https = false),
            "--ktls has no effect without HTTPS",
        );
        check(
            "hsts",
            without(|it| it.has_https = false),
            "--hsts has no effect without HTTPS",
        );
        check(
            "qr",
            without(|it| it.has_tcp = false),
            "--qr has no effect on Unix sockets",
        );
        for (name, shown) in [
            ("allow", "--allow"),
            ("deny", "--deny"),
            ("client.rate", "'client.rate' in the configuration"),
            ("client.requests", "'client.requests' in the configuration"),
        ] {
            let expect =
                format!("{shown} has no effect on Unix sockets, whose clients have no address");
            check(name, without(|it| it.has_tcp = false), &expect);
        }
        check(
            "trust-host",
            directory(),
            "--trust-host has no effect without a proxy that is trusted",
        );
        check(
            "log-file",
            without(|it| it.is_logging = false),
            "--log-file has no effect without a log",
        );
        check(
            "tls",
            without(|it| it.has_https = false),
            "--tls has no effect where no address speaks HTTPS",
        );
        check(
            "path",
            without(|it| it.kinds.clear()),
            "PATH has no effect with --dummy and --dummy-empty, which give every request the same \
             answer",
        );
        check(
            "unknown-host",
            without(|it| it.has_hosts = false),
            "--unknown-host would refuse every request, since no host is named",
        );
        let flag = SERVE_FLAGS.iter().find(|flag| flag.name == "unknown-host");
        let flag = flag.expect("there is such a flag");
        for value in ["404", "ignore"] {
            let (settings, origins) = with(flag, &value.into());
            let mut archive = situation(Kind::Archive);
            super::check(&settings, &origins, &archive).expect("it has hosts");
            archive.has_hosts = false;
            super::check(&settings, &origins, &archive).expect_err(value);
        }
        check(
            "cache-memory",
            without(|it| it.kinds.clear()),
            "--cache-memory has no effect with --dummy and --dummy-empty, which give every request \
             the same answer",
        );
        check(
            "cors",
            situation(Kind::Archive),
            "--cors has no effect on an archive: it is decided when packing",
        );
    }

    #[test]
    fn proxies_on_a_unix_socket_count_as_proxies() {
        let check = |names: [&'static str; 2], change: fn(&mut Situation)| {
            let mut settings = Settings::default();
            let mut origins = Origins::new();
            for name in names {
                let flag = SERVE_FLAGS.iter().find(|flag| flag.name == name);
                let flag = flag.expect("there is such a flag");
                let value = match name {
                    "trust" => "unix".into(),
                    _ => sample(flag),
                };
                (flag.apply)(&mut settings, &[value]).expect(name);
                origins.insert(name, Origin::CommandLine);
            }
            let mut situation = situation(Kind::Directory);
            (situation.has_tcp, situation.has_https) = (false, false);
            change(&mut situation);
            super::check(&settings, &origins, &situation).map_err(|failure| failure.message)
        };
        check(["trust", "hsts"], |_| {}).expect("the proxy may end TLS");
        check(["trust", "client.connections"], |_| {}).expect("the proxy names clients");
        let failure = check(["trust", "health"], |it| it.has_unix = false).expect_err("no socket");
        assert_eq!(failure, "--trust unix has no effect without a Unix socket");
    }

    #[test]
    fn flags_that_others_leave_nothing_to_do_are_refused() {
        let check = |flags: &[(&'static str, &str)], expect: &str| {
            let mut settings = Settings::default();
            let mut origins = Origins::new();
            for (name, value) in flags {
                let flag = SERVE_FLAGS.iter().find(|flag| flag.name == *name);
                let apply = flag.expect("there is such a flag").apply;
                apply(&mut settings, &[OsString::from(*value)]).expect(name);
                origins.insert(name, Origin::CommandLine);
            }
            let situation = situation(Kind::Directory);
            let failure = super::check(&settings, &origins, &situation);
            let message = failure.err().map(|failure| failure.message);
            assert_eq!(message.unwrap_or_default(), expect);
        };
        let no_rules = ("no-rules", "true");
        check(
            &[no_rules, ("compat", "cloudflare")],
            "--compat has no effect with --no-rules",
        );
        check(&[no_rules, ("compat", "kawipiko")], "");
        check(
            &[("hosts", "true"), ("site", "a.example=a")],
            "--hosts has no effect without PATH: --site names every site",
        );
        check(
            &[("tls", "true"), ("tls-cert", "site.pem")],
            "--tls has no effect with --tls-cert",
        );
        check(
            &[("early-data", "true"), ("tls-client-ca", "ca.pem")],
            "--early-data has no effect with --tls-client-ca, which resumes no sessions",
        );
    }
}
