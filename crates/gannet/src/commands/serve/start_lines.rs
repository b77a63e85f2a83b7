//! The first lines of output: version, what is served, every URL, log, engine, how to stop.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;

use gannet_server::config::{Content, Hosted, ListenAddress, LogFormat, Scheme};
use gannet_server::tls::development::Development;
use gannet_server::{Http3Report, StartReport};

use crate::commands::serve::addresses::{public_urls, urls};
use crate::commands::serve::confinement::FOLDER_OF_ITS_OWN;
use crate::commands::serve::tls;
use crate::https_record::https_record;
use crate::messages::printable;
use crate::quantities::{counted, size};

/// What to do about a `--trust` of all addresses.
pub(crate) const TRUST_PROXIES: &str = "give --trust the addresses of the proxies alone";

/// What it means that the kernel resolves no paths.
pub(crate) const NAME_BY_NAME: &str = "paths are resolved name by name, which is slower";

/// The facts that the first lines report.
pub struct Lines<'a> {
    /// The bound addresses with their actual ports and schemes.
    pub addresses: &'a [(ListenAddress, Scheme)],
    /// Those of them where only proxies may connect: browsers cannot.
    pub for_proxies: &'a [ListenAddress],
    /// The certificate for development, if it is in use.
    pub development: Option<&'a Development>,
    /// The hosts of `--acme`.
    pub hosts: &'a [String],
    /// The addresses of the network interfaces.
    pub interfaces: &'a [IpAddr],
    /// The server's report of its start.
    pub report: &'a StartReport,
    /// The log format and file.
    pub log: (&'a LogFormat, Option<&'a Path>),
    /// Something unexpected, such as another port.
    pub note: Option<&'a str>,
    /// Some proxies are trusted, which may speak TLS.
    pub has_trust: bool,
    /// What it means that every client is trusted, if that is so.
    pub trusts_every_peer: Option<&'static str>,
    /// Keys and logs that confined workers could open.
    pub within_reach: &'a [String],
    /// Memory is too short for encoders.
    pub hardly_codes: bool,
    /// What stops the server.
    pub stopped_by: &'static str,
    /// A QR code, several lines.
    pub qr: Option<String>,
    /// Use ANSI colours.
    pub colour: bool,
}

/// Names of `--acme` that are shown.
const HOSTS_SHOWN: usize = 5;

/// Columns of the labels on the left.
const LABEL: usize = 9;

impl Lines<'_> {
    /// The text, several lines.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = self.paint("1", concat!("gannet ", env!("CARGO_PKG_VERSION")));
        text.push('\n');
        // Few hosts have lines of their own.
        let is_shown = |it: &&Hosted| match &it.content {
            Content::Many(many) => !many.are_opened_at_start(),
            _ => true,
        };
        for (number, hosted) in self.report.contents.iter().filter(is_shown).enumerate() {
            let label = if number == 0 { "serving" } else { "" };
            self.line(&mut text, label, &self.served(hosted));
        }
        if self.report.contents.is_empty() {
            self.line(&mut text, "serving", "the same answer to everything");
        }
        if self.report.contents.len() > 1 && !self.report.fixed.is_empty() {
            let count = counted(self.report.fixed.len() as u64, "site");
            let what = format!("{count}, whose files cannot be changed: 'gannet doctor' says why");
            self.line(&mut text, "fixed", &what);
        }
        self.addresses(&mut text);
        if let Some(metrics) = self.report.metrics {
            self.line(&mut text, "metrics", &format!("http://{metrics}/metrics"));
        }
        self.log(&mut text);
        self.tls(&mut text);
        self.engine(&mut text);
        if let Some(why) = self.report.without_lookups {
            let what = format!("{NAME_BY_NAME}: {why}");
            self.line(&mut text, "lookups", &self.paint("33", &what));
            if let Some(help) = &why.help {
                self.line(&mut text, "", &format!("  {help}"));
            }
        }
        if let Some(sandbox) = &self.report.sandbox {
            self.line(&mut text, "sandbox", &sandbox.to_string());
        }
        if let Some(note) = self.note {
            self.line(&mut text, "note", &self.paint("33", note));
        }
        if self.sends_passwords_in_clear() {
            let what = "passwords cross the network in clear text: add --tls-cert FILE, or --trust a proxy";
            self.line(&mut text, "note", &self.paint("33", what));
        }
        if let Some(meaning) = self.trusts_every_peer {
            let what = format!("{meaning}: {TRUST_PROXIES}");
            self.line(&mut text, "note", &self.paint("33", &what));
        }
        for reached in self.within_reach {
            let what = format!("{reached}: {FOLDER_OF_ITS_OWN}");
            self.line(&mut text, "note", &self.paint("33", &what));
        }
        if self.hardly_codes {
            let what = "too little memory beside the caches to compress all text: lower --cache-memory, \
                        start fewer --workers, or give it more";
            self.line(&mut text, "note", &self.paint("33", what));
        }
        if let Some(code) = &self.qr {
            let _ = write!(text, "\n{code}\n");
        }
        let expose = match self.addresses {
            [(ListenAddress::Tcp(only), _)] if only.ip().is_loopback() => {
                "; only this machine can connect (--expose serves the network)"
            }
            _ => "",
        };
        let _ = writeln!(text, "{} to stop{expose}", self.stopped_by);
        text
    }

    /// Every URL: by the names of `--acme` where others can connect, else by addresses.
    fn addresses(&self, text: &mut String) {
        let mut label = "at";
        let mut named = BTreeSet::new();
        for (address, scheme) in self.addresses {
            let is_for_proxies = self.for_proxies.contains(address);
            let hosts = if is_for_proxies { &[] } else { self.hosts };
            let public = public_urls(address, *scheme, hosts);
            if !public.is_empty() {
                for url in public {
                    // IPv4 and IPv6 have the same ones.
                    if named.insert(url.clone()) && named.len() <= HOSTS_SHOWN {
                        self.line(text, label, &self.paint("1;36", &url));
                        label = "";
                    }
                }
                continue;
            }
            for (url, remark) in urls(address, *scheme, self.interfaces) {
                let remark = match (is_for_proxies, remark) {
                    (true, _) => "  (for proxies)".to_owned(),
                    (false, "") => String::new(),
                    (false, remark) => format!("  ({remark})"),
                };
                let url = self.paint("1;36", &url);
                self.line(text, label, &format!("{url}{remark}"));
                label = "";
            }
        }
        if let Some(more @ 1..) = named.len().checked_sub(HOSTS_SHOWN) {
            let more = counted(more as u64, "other name");
            self.line(text, "", &format!("and {more} of --acme"));
        }
    }

    /// Whether clients on other machines may send passwords over HTTP.
    fn sends_passwords_in_clear(&self) -> bool {
        let mut addresses = self.addresses.iter();
        self.report.has_passwords
            && !self.has_trust
            && addresses.any(|it| match it {
                (ListenAddress::Tcp(address), Scheme::Http) => !address.ip().is_loopback(),
                _ => false,
            })
    }

    fn served(&self, hosted: &Hosted) -> String {
        let what = self.described(&hosted.content);
        match hosted.hosts.join(", ") {
            hosts if hosts.is_empty() => what,
            hosts => format!("{hosts}: {what}"),
        }
    }

    fn described(&self, content: &Content) -> String {
        match content {
            Content::Directory(path) | Content::HostFolder(path) => {
                let full = path.canonicalize().unwrap_or_else(|_| path.clone());
                self.with_facts(&full, "directory", Vec::new())
            }
            Content::Many(many) => {
                let full = many.folder.canonicalize();
                let full = full.unwrap_or_else(|_| many.folder.clone());
                let full = printable(&full.to_string_lossy());
                let hosts = counted(many.found.len() as u64, "host");
                format!("{full} ({hosts}, opened when they are requested)")
            }
            Content::File(path) => self.with_facts(path, "one file", Vec::new()),
            Content::Archive(path) | Content::Store(path) => {
                let kind = match content {
                    Content::Store(_) => "store",
                    _ => "archive",
                };
                let site = &self.report.site;
                let mut parts = Vec::new();
                if let Some(files) = site.files {
                    parts.push(counted(files, "file"));
                }
                if let Some(bytes) = site.bytes {
                    parts.push(size(bytes));
                }
                if let Some(id) = &site.build_id {
                    parts.push(format!("build {id}"));
                }
                if site.is_copied {
                    parts.push("in memory".into());
                }
                self.with_facts(path, kind, parts)
            }
        }
    }

    /// A path, its kind, and what is known of it if nothing else is served.
    fn with_facts(&self, path: &Path, kind: &str, mut facts: Vec<String>) -> String {
        if let ([_], [fixed]) = (&*self.report.contents, &*self.report.fixed) {
            facts.push(format!("fixed by {fixed}"));
        }
        let path = printable(&path.to_string_lossy()).to_string();
        match facts.is_empty() {
            true => format!("{path} ({kind})"),
            false => format!("{path} ({kind}: {})", facts.join(", ")),
        }
    }

    fn tls(&self, text: &mut String) {
        let mut label = "tls";
        if let Some(made) = self.development {
            let names = made.names.join(", ");
            let what = format!("certificate for development: {names}");
            self.line(text, label, &what);
            label = "";
            self.line(text, "", &format!("SHA-256 {}", made.fingerprint));
            if made.is_new {
                let what = "its authority is new; to trust it: gannet cert > authority.pem";
                self.line(text, "", &self.paint("33", what));
            }
            for name in &made.left_out {
                let what = format!("not for {name}: the authority was made without this name");
                self.line(text, "", &self.paint("33", &what));
            }
        }
        if let Some(kernel) = &self.report.kernel_tls {
            match kernel.off() {
                None => self.line(text, label, "the kernel encrypts large bodies"),
                Some(off) => {
                    self.line(text, label, &format!("without kernel TLS: {off}"));
                    if let Some(help) = off.help() {
                        self.line(text, "", &format!("  {help}"));
                    }
                }
            }
            label = "";
        }
        if let Some(asked) = &self.report.asked_of_clients {
            self.line(text, label, &printable(&asked.to_string()).to_string());
            label = "";
        }
        let warnings = &self.report.certificate_warnings;
        let shown = warnings.iter().take(tls::WARNINGS_SHOWN);
        let shown = shown.map(|warning| format!("{warning}; {}", warning.help()));
        for what in shown.chain(tls::more(warnings)) {
            self.line(text, label, &self.paint("33", &what));
            label = "";
        }
        if let Some(http3) = &self.report.http3 {
            for missing in &http3.missing {
                self.line(text, "http3", &self.paint("33", &missing.to_string()));
                self.line(text, "", &format!("  {}", missing.help()));
            }
            if !http3.addresses.is_empty() {
                self.line(text, "http3", &format!("at UDP {http3}"));
                let mut ports = http3.addresses.iter().map(|it| it.port());
                let first = ports.next();
                if ports.any(|port| Some(port) != first) {
                    let why = "not announced by default, as the ports differ: see the key alt-svc";
                    self.line(text, "", why);
                } else if self.report.asked_of_clients.is_some() {
                    let why = "not announced by default, as browsers send no certificates over it: see the \
                        key alt-svc";
                    self.line(text, "", why);
                }
                self.records(text, http3);
            }
        }
    }

    /// The record of the DNS for the first name that others can ask for.
    fn records(&self, text: &mut String, http3: &Http3Report) {
        let is_public = http3.addresses.iter().any(|it| !it.ip().is_loopback());
        let Some(port) = http3.announced.filter(|_| is_public) else {
            return;
        };
        let mut records = http3
            .names
            .iter()
            .filter_map(|it| https_record(it, port, port));
        if let Some(first) = records.next() {
            self.line(text, "", &format!("for the DNS: {first}"));
        }
        match records.count() {
            0 => {}
            more => {
                let more = counted(more as u64, "other name");
                self.line(text, "", &format!("and the same for {more}"));
            }
        }
    }

    /// Where requests are logged, unless that is the stream of these lines.
    fn log(&self, text: &mut String) {
        let form = match self.log.0 {
            LogFormat::Off => return,
            LogFormat::Pretty { .. } => "pretty",
            LogFormat::Combined => "combined",
            LogFormat::Vcombined => "vcombined",
            LogFormat::Own(_) => "own format",
            LogFormat::Json => "json",
        };
        match (self.log.1, self.log.0) {
            (Some(path), _) => {
                let path = printable(&path.to_string_lossy()).to_string();
                self.line(text, "log", &format!("{path} ({form})"));
            }
            (None, LogFormat::Pretty { .. }) => {}
            (None, _) => self.line(text, "log", &format!("standard output ({form})")),
        }
    }

    /// The engine. The features it uses are in the summary that SIGUSR1 prints.
    fn engine(&self, text: &mut String) {
        let report = self.report;
        let workers = counted(report.workers as u64, "worker");
        self.line(
            text,
            "engine",
            &format!("{}, {workers}", report.engine.name),
        );
        if let Some(why) = &report.fallback {
            let why = why.strip_prefix("io_uring: ").unwrap_or(why);
            self.line(text, "", &self.paint("33", &format!("not io_uring: {why}")));
        }
    }

    fn line(&self, text: &mut String, label: &str, value: &str) {
        let label = format!("{label:LABEL$}");
        let _ = writeln!(text, "{}{value}", self.paint("2", &label));
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour && !text.trim().is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddr};

    use gannet_io::driver::EngineReport;
    use gannet_io::fixed::Fixed;
    use gannet_server::SiteReport;

    use super::*;

    fn report() -> StartReport {
        StartReport {
            engine: EngineReport {
                name: "epoll",
                in_use: vec!["sendfile"],
                missing: vec![("zero copy", "the kernel has none".into())],
            },
            fallback: Some("io_uring: operation not permitted (EPERM)".into()),
            workers: 2,
            site: SiteReport {
                files: Some(12),
                bytes: Some(3 << 20),
                build_id: Some("00c0ffee".into()),
                is_copied: true,
            },
            fixed: Vec::new(),
            contents: vec![Hosted {
                hosts: Vec::new(),
                content: Content::Archive("site.gannet".into()),
                entry: None,
            }],
            no_front_page: Vec::new(),
            lacks_room_to_code: false,
            without_lookups: None,
            metrics: None,
            asked_of_clients: None,
            certificate_warnings: Vec::new(),
            kernel_tls: None,
            http3: None,
            sandbox: None,
            has_passwords: false,
        }
    }

    #[test]
    fn the_lines_tell_what_where_and_how() {
        let address = ListenAddress::Tcp("127.0.0.1:8081".parse().expect("valid"));
        let addresses = [(address, Scheme::Http)];
        let mut lines = Lines {
            addresses: &addresses,
            for_proxies: &[],
            development: None,
            hosts: &[],
            interfaces: &[],
            report: &report(),
            log: (&LogFormat::Json, Some(Path::new("/var/log/site"))),
            note: Some("port 8080 is busy; using 8081"),
            has_trust: false,
            trusts_every_peer: None,
            within_reach: &[],
            hardly_codes: false,
            stopped_by: "Ctrl-C",
            qr: None,
            colour: false,
        };
        let version = env!("CARGO_PKG_VERSION");
        let expect = format!(
            "gannet {version}\n\
             serving  site.gannet (archive: 12 files, 3.0 MiB, build 00c0ffee, in memory)\n\
             at       http://127.0.0.1:8081/\n\
             log      /var/log/site (json)\n\
             engine   epoll, 2 workers\n\
             \x20        not io_uring: operation not permitted (EPERM)\n\
             note     port 8080 is busy; using 8081\n\
             Ctrl-C to stop; only this machine can connect (--expose serves the network)\n"
        );
        assert_eq!(lines.render(), expect);
        let hosts: Vec<_> = (1..=6).map(|it| format!("{it}.example.org")).collect();
        let any = |port| ListenAddress::Tcp(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port));
        let public = [(any(443), Scheme::Https), (any(80), Scheme::Redirect)];
        lines.addresses = &public;
        lines.hosts = &hosts[..1];
        let at = "\nat       https://1.example.org/\n         http://[::]/  (redirects to HTTPS)\n";
        assert!(lines.render().contains(at), "{}", lines.render());
        lines.hosts = &hosts;
        assert!(
            lines
                .render()
                .contains("\n         and 1 other name of --acme\n")
        );
        lines.addresses = &addresses;
        lines.hosts = &[];
        let mut some_fixed = report();
        some_fixed.site = SiteReport::default();
        some_fixed.fixed = vec![Fixed::FileSystem];
        let directory = Hosted {
            hosts: Vec::new(),
            content: Content::Directory("/no-such".into()),
            entry: None,
        };
        some_fixed.contents = vec![directory.clone()];
        lines.report = &some_fixed;
        let serving = "\nserving  /no-such (directory: fixed by its file system)\nat  ";
        assert!(lines.render().contains(serving), "{}", lines.render());
        let mut several = some_fixed.clone();
        several.contents.push(directory);
        lines.report = &several;
        let serving = "\nserving  /no-such (directory)\n         /no-such (directory)\n\
            fixed    1 site, whose files cannot be changed: 'gannet doctor' says why\nat  ";
        assert!(lines.render().contains(serving), "{}", lines.render());
        let mut none_fixed = several.clone();
        none_fixed.fixed.clear();
        lines.report = &none_fixed;
        assert!(!lines.render().contains("fixed"), "{}", lines.render());
        lines.trusts_every_peer = Some("every peer is trusted");
        assert!(lines.render().contains("\nnote     every peer is trusted"));
        lines.trusts_every_peer = None;
        let reached = ["workers can open '/srv/app/key.pem'".to_owned()];
        lines.within_reach = &reached;
        assert!(lines.render().contains(&reached[0]));
        lines.within_reach = &[];
        lines.qr = Some("code\n".into());
        assert!(lines.render().contains("8081\n\ncode\n\nCtrl-C"));
        lines.colour = true;
        assert!(
            lines
                .render()
                .contains("\x1b[1;36mhttp://127.0.0.1:8081/\x1b[0m\n")
        );
    }
}
