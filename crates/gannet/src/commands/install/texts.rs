//! The texts of the files.

/// Their variables.
pub(super) struct Texts<'a> {
    /// The path of the program.
    pub(super) program: &'a str,
    /// systemd binds the addresses.
    pub(super) with_socket: bool,
}

/// The configuration, which is the operator's once it is written.
pub(super) const CONFIGURATION: &str = "/etc/gannet/gannet.toml";
/// What 'gannet acme' orders, which is the operator's.
const ORDERS: &str = "/etc/gannet/acme.env";
/// The folder that is served.
pub(super) const SITE: &str = "/srv/www";
/// The user and the group.
pub(super) const USER: &str = "gannet";

/// What both services have: a state directory, and nothing else to write to.
const CONFINEMENT: &str = "\
NoNewPrivileges=yes\n\
StateDirectory=gannet\n\
StateDirectoryMode=0700\n\
ProtectSystem=strict\n\
ProtectHome=yes\n\
PrivateTmp=yes\n\
PrivateDevices=yes\n\
ProtectKernelTunables=yes\n\
ProtectKernelModules=yes\n\
ProtectKernelLogs=yes\n\
ProtectControlGroups=yes\n\
ProtectClock=yes\n\
ProtectHostname=yes\n\
RestrictNamespaces=yes\n\
RestrictRealtime=yes\n\
RestrictSUIDSGID=yes\n\
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK\n\
LockPersonality=yes\n\
MemoryDenyWriteExecute=yes\n\
SystemCallArchitectures=native\n";

impl Texts<'_> {
    /// All files, with their paths. The first is the user's, which is left out if there is one.
    pub(super) fn files(&self) -> Vec<(String, String)> {
        let base = self.base();
        let mut files = vec![
            (self.user_path(), self.user()),
            (
                format!("{base}/systemd/system/gannet.service"),
                self.service(),
            ),
            (
                format!("{base}/systemd/system/gannet-acme.service"),
                self.orderer(),
            ),
        ];
        if self.with_socket {
            let path = format!("{base}/systemd/system/gannet.socket");
            files.push((path, self.socket()));
        }
        files.push((CONFIGURATION.into(), self.configuration()));
        files
    }

    /// A program of a package has its units among those of packages.
    fn base(&self) -> &'static str {
        match self.program.starts_with("/usr/bin/") {
            true => "/usr/lib",
            false => "/etc",
        }
    }

    pub(super) fn user_path(&self) -> String {
        format!("{}/sysusers.d/gannet.conf", self.base())
    }

    fn user(&self) -> String {
        format!(
            "# The user of gannet.service; see sysusers.d(5).\nu {USER} - \"gannet web server\" /\n"
        )
    }

    fn service(&self) -> String {
        let program = self.program;
        let (after, rights) = match self.with_socket {
            true => (
                "Requires=gannet.socket\nAfter=gannet.socket\n",
                "CapabilityBoundingSet=\n",
            ),
            false => (
                "",
                "AmbientCapabilities=CAP_NET_BIND_SERVICE\nCapabilityBoundingSet=CAP_NET_BIND_SERVICE\n",
            ),
        };
        format!(
            "# Written by 'gannet install'. Change it by 'systemctl edit gannet'.\n\
             [Unit]\n\
             Description=gannet web server\n\
             Documentation=man:gannet(1)\n\
             After=network-online.target\n\
             Wants=network-online.target\n\
             {after}\n\
             [Service]\n\
             Type=notify\n\
             ExecStart={program} serve --config {CONFIGURATION}\n\
             ExecReload=/bin/kill -HUP $MAINPID\n\
             User={USER}\n\
             Group={USER}\n\
             {rights}\
             LimitNOFILE=1048576\n\
             # Longer than --grace.\n\
             TimeoutStopSec=40\n\
             WatchdogSec=30\n\
             Restart=on-failure\n\
             LogsDirectory=gannet\n\
             RuntimeDirectory=gannet\n\
             {CONFINEMENT}\
             \n\
             [Install]\n\
             WantedBy=multi-user.target\n"
        )
    }

    fn socket(&self) -> String {
        "# Written by 'gannet install --socket'. Change it by 'systemctl edit gannet.socket'.\n\
         [Socket]\n\
         ListenStream=0.0.0.0:80\n\
         ListenStream=[::]:80\n\
         BindIPv6Only=ipv6-only\n\
         FileDescriptorName=http\n\
         \n\
         [Install]\n\
         WantedBy=sockets.target\n"
            .into()
    }

    /// Started by nothing but the administrator: most servers order by themselves.
    fn orderer(&self) -> String {
        let program = self.program;
        format!(
            "# Written by 'gannet install'. Change it by 'systemctl edit gannet-acme'.\n\
             #\n\
             # Orders and renews certificates, as the user of the servers on this machine, who read them. Where\n\
             # there is one server, 'acme = [...]' in {CONFIGURATION} is enough, and this is not\n\
             # needed: it is for a fleet, and for several servers. {ORDERS} has what to order:\n\
             #\n\
             #   HOSTS=example.org www.example.org\n\
             #   OPTIONS=--email admin@example.org\n\
             #\n\
             # Then 'systemctl enable --now gannet-acme'. Every server of these hosts has the acme-thumbprint\n\
             # that 'journalctl -u gannet-acme' shows, and certificates/HOST.pem as a tls-cert, or acme-dir.\n\
             [Unit]\n\
             Description=certificates of gannet\n\
             Documentation=man:gannet(1)\n\
             After=network-online.target\n\
             Wants=network-online.target\n\
             \n\
             [Service]\n\
             Type=exec\n\
             EnvironmentFile={ORDERS}\n\
             ExecStart={program} acme --dir /var/lib/gannet/acme $OPTIONS $HOSTS\n\
             User={USER}\n\
             Group={USER}\n\
             CapabilityBoundingSet=\n\
             Restart=always\n\
             RestartSec=30\n\
             # A wrong command line stays wrong.\n\
             RestartPreventExitStatus=2\n\
             {CONFINEMENT}\
             UMask=0077\n\
             ProtectProc=invisible\n\
             SystemCallFilter=@system-service\n\
             \n\
             [Install]\n\
             WantedBy=multi-user.target\n"
        )
    }

    fn configuration(&self) -> String {
        let listen = match self.with_socket {
            true => "# The addresses are those of gannet.socket: 'systemctl edit gannet.socket'.\n",
            false => {
                "listen = [\"0.0.0.0:80\", \"[::]:80\"]\n\
                 \n\
                 # HTTPS and HTTP/3 instead, with a certificate of Let's Encrypt for each name. Leave 'listen'\n\
                 # out: it takes port 443, and redirects from port 80.\n\
                 #acme = [\"example.org\"]\n\
                 \n\
                 # The same with certificates of your own. The key has to be readable for the group 'gannet'.\n\
                 #listen = [\"0.0.0.0:443\", \"[::]:443\"]\n\
                 #tls-cert = [\"/etc/gannet/fullchain.pem\"]\n\
                 #tls-key = [\"/etc/gannet/privkey.pem\"]\n\
                 #http-redirect = [\"0.0.0.0:80\", \"[::]:80\"]\n"
            }
        };
        format!(
            "# The configuration of gannet.service. Every flag of 'gannet serve' is a key here:\n\
             # 'gannet --help-all' lists them. 'gannet doctor --config {CONFIGURATION}'\n\
             # says what this machine lacks. After a change: systemctl restart gannet\n\
             \n\
             # A directory, a file, an archive ('gannet pack') or a store ('gannet publish').\n\
             path = \"{SITE}\"\n\
             \n\
             # A folder without an index page is 404 then, not a list of its files.\n\
             #no-listing = true\n\
             \n\
             # Where to listen.\n\
             {listen}\
             \n\
             # /metrics for Prometheus, and /health, which 'gannet health' asks.\n\
             #metrics = \"127.0.0.1:9100\"\n\
             \n\
             # One line for each request, in the journal or in a file.\n\
             #log = \"combined\"\n\
             #log-file = \"/var/log/gannet/access.log\"\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::commands::all_flags;
    use crate::command_line::config_file::parse;

    fn texts(program: &str, with_socket: bool) -> Texts<'_> {
        Texts {
            program,
            with_socket,
        }
    }

    #[test]
    fn the_configuration_is_valid_and_so_is_what_it_offers() {
        for with_socket in [false, true] {
            let text = texts("/usr/bin/gannet", with_socket).configuration();
            let file = parse("gannet.toml", &text, &all_flags()).expect("valid");
            assert_eq!(file.entries.len(), if with_socket { 1 } else { 2 });
            // Comments begin with a space; what can be switched on does not.
            let switched = |line: &str| match line.strip_prefix('#') {
                Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
                _ => String::new(),
            };
            let offered: String = text.lines().map(switched).collect();
            let file = parse("gannet.toml", &offered, &all_flags()).expect("valid");
            assert_eq!(file.entries.len(), if with_socket { 4 } else { 9 });
        }
    }

    #[test]
    fn files_go_where_a_package_or_an_administrator_has_them() {
        let paths = |program, with_socket| -> Vec<String> {
            let files = texts(program, with_socket).files();
            files.into_iter().map(|(path, _)| path).collect()
        };
        let package = [
            "/usr/lib/sysusers.d/gannet.conf",
            "/usr/lib/systemd/system/gannet.service",
            "/usr/lib/systemd/system/gannet-acme.service",
            "/etc/gannet/gannet.toml",
        ];
        assert_eq!(paths("/usr/bin/gannet", false), package);
        let own = [
            "/etc/sysusers.d/gannet.conf",
            "/etc/systemd/system/gannet.service",
            "/etc/systemd/system/gannet-acme.service",
            "/etc/systemd/system/gannet.socket",
            "/etc/gannet/gannet.toml",
        ];
        assert_eq!(paths("/usr/local/bin/gannet", true), own);
    }

    #[test]
    fn with_a_socket_the_service_needs_no_capability() {
        let service = |with_socket| texts("/usr/bin/gannet", with_socket).service();
        let capability = "AmbientCapabilities=CAP_NET_BIND_SERVICE\n";
        assert!(service(false).contains(capability));
        assert!(!service(true).contains(capability));
        assert!(service(true).contains("\nRequires=gannet.socket\n"));
        assert!(service(false).contains("\nExecStart=/usr/bin/gannet serve --config "));
    }
}
