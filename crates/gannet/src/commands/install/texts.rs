//! The texts of the files.

use crate::documents::manual_page;

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
/// The folder of the access log.
pub(super) const LOGS: &str = "/var/log/gannet";
/// Rotates it.
pub(super) const ROTATION: &str = "/etc/logrotate.d/gannet";
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
            files.push((self.socket_path(), self.socket()));
        }
        files.push((
            self.page_path(),
            sealed(".\\\"", "", &manual_page::render()),
        ));
        files.push((ROTATION.into(), rotation()));
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

    pub(super) fn socket_path(&self) -> String {
        format!("{}/systemd/system/gannet.socket", self.base())
    }

    /// The page that the units name.
    fn page_path(&self) -> String {
        let share = match self.base() {
            "/etc" => "/usr/local/share",
            _ => "/usr/share",
        };
        format!("{share}/man/man1/gannet.1")
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
        // A client that waits at a socket starts the service again at once, until systemd gives up the socket.
        let no_restart = match self.with_socket {
            true => "",
            false => "# A wrong configuration stays wrong.\nRestartPreventExitStatus=2\n",
        };
        let text = format!(
            "[Unit]\n\
             Description=gannet web server\n\
             Documentation=man:gannet(1)\n\
             After=network-online.target\n\
             Wants=network-online.target\n\
             # However often it is killed, it comes back.\n\
             StartLimitIntervalSec=0\n\
             {after}\n\
             [Service]\n\
             Type=notify\n\
             ExecStart={program} serve --config {CONFIGURATION}\n\
             # The server reads the configuration. The second line fails if that is wrong, and takes\n\
             # long enough for systemd to learn from the server that it waits for the new process.\n\
             ExecReload=/bin/sh -c 'kill -HUP $MAINPID'\n\
             ExecReload={program} serve --config {CONFIGURATION} --check-config\n\
             User={USER}\n\
             Group={USER}\n\
             {rights}\
             LimitNOFILE=1048576\n\
             # Longer than --grace.\n\
             TimeoutStopSec=40\n\
             WatchdogSec=30\n\
             Restart=always\n\
             RestartSec=2\n\
             {no_restart}\
             LogsDirectory=gannet\n\
             LogsDirectoryMode=0750\n\
             RuntimeDirectory=gannet\n\
             {CONFINEMENT}\
             \n\
             [Install]\n\
             WantedBy=multi-user.target\n"
        );
        sealed("#", "Change it by 'systemctl edit gannet'.", &text)
    }

    fn socket(&self) -> String {
        let text = "[Unit]\n\
         Description=addresses of gannet\n\
         Documentation=man:gannet(1)\n\
         \n\
         [Socket]\n\
         ListenStream=0.0.0.0:80\n\
         ListenStream=[::]:80\n\
         BindIPv6Only=ipv6-only\n\
         FileDescriptorName=http\n\
         \n\
         [Install]\n\
         WantedBy=sockets.target\n";
        sealed("#", "Change it by 'systemctl edit gannet.socket'.", text)
    }

    /// Started by nothing but the administrator: most servers order by themselves.
    fn orderer(&self) -> String {
        let program = self.program;
        let text = format!(
            "#\n\
             # Orders and renews certificates, as the user of the servers on this machine, who read them. Where\n\
             # there is one server, 'acme.hosts' in {CONFIGURATION} is enough, and this is not\n\
             # needed: it is for a fleet, and for several servers. {ORDERS} has what to order:\n\
             #\n\
             #   HOSTS=example.org www.example.org\n\
             #   OPTIONS=--email admin@example.org\n\
             #\n\
             # Then 'systemctl enable --now gannet-acme'. Every server of these hosts has the acme.thumbprint\n\
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
        );
        sealed("#", "Change it by 'systemctl edit gannet-acme'.", &text)
    }

    fn configuration(&self) -> String {
        let listen = match self.with_socket {
            true => "# The addresses are those of gannet.socket: 'systemctl edit gannet.socket'.\n",
            false => {
                "listen = [\"0.0.0.0:80\", \"[::]:80\"]\n\
                 \n\
                 # HTTPS and HTTP/3 instead, with a certificate of Let's Encrypt for each name. Leave 'listen'\n\
                 # out: it takes port 443, and redirects from port 80.\n\
                 #acme.hosts = [\"example.org\"]\n\
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
             # says what this machine lacks. After a change: systemctl reload gannet\n\
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
             # One line for each request. {ROTATION} rotates the file; without 'log-file' the\n\
             # journal gets the lines.\n\
             log.format = \"combined\"\n\
             log-file = \"{LOGS}/access.log\"\n"
        )
    }
}

/// What logrotate does each day. Its signal reopens the file and does no more: a configuration that
/// someone is about to change is not read.
fn rotation() -> String {
    let text = format!(
        "{LOGS}/*.log {{\n    \
             daily\n    \
             rotate 14\n    \
             missingok\n    \
             notifempty\n    \
             compress\n    \
             delaycompress\n    \
             su {USER} {USER}\n    \
             create 0640 {USER} {USER}\n    \
             sharedscripts\n    \
             postrotate\n        \
                 systemctl kill --kill-who=main --signal=USR1 gannet.service || true\n    \
             endscript\n\
         }}\n"
    );
    sealed("#", "", &text)
}

/// A text under a line that shows later whether someone has changed it. `comment` begins the line, and
/// `advice` ends it.
fn sealed(comment: &str, advice: &str, text: &str) -> String {
    let checksum = checksum(text);
    let line = format!("{comment} Written by 'gannet install'{SEAL}{checksum:016x}. {advice}");
    format!("{}\n{text}", line.trim_end())
}

/// Stands before the checksum.
const SEAL: &str = ", checksum ";

/// Whether a version of this program has written this text, and it has not changed since.
pub(super) fn is_own(text: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(text) else {
        return false;
    };
    let sealed = text.split_once('\n').and_then(|(line, rest)| {
        let (_, after) = line.split_once(SEAL)?;
        let written = u64::from_str_radix(after.get(..16)?, 16).ok()?;
        Some(written == checksum(rest))
    });
    sealed.unwrap_or_else(|| UNSEALED.contains(&checksum(&without_program(text))))
}

/// Checksums of the units of versions that wrote none into them: the service, the same with sockets of
/// systemd, that of 'gannet acme', and the socket.
const UNSEALED: [u64; 4] = [
    0x3e5b_7e13_486c_7cd0,
    0xfce3_fda9_515a_98bd,
    0xf9a1_94f8_967d_971a,
    0x9e19_0085_2fb3_1bb7,
];

/// A unit without the path of the program in it.
fn without_program(unit: &str) -> String {
    let line = |line: &str| match line.strip_prefix("ExecStart=") {
        Some(command) => format!(
            "ExecStart={}\n",
            command.split_once(' ').unzip().1.unwrap_or_default()
        ),
        None => format!("{line}\n"),
    };
    unit.lines().map(line).collect()
}

/// FNV-1a of 64 bits: what it finds are changes that someone has made for a reason, and does not hide.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
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
            assert_eq!(file.entries.len(), if with_socket { 3 } else { 4 });
            // Comments start with a space; what can be switched on does not.
            let switched = |line: &str| match line.strip_prefix('#') {
                Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
                _ => String::new(),
            };
            let offered: String = text.lines().map(switched).collect();
            let file = parse("gannet.toml", &offered, &all_flags()).expect("valid");
            assert_eq!(file.entries.len(), if with_socket { 2 } else { 7 });
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
            "/usr/share/man/man1/gannet.1",
            "/etc/logrotate.d/gannet",
            "/etc/gannet/gannet.toml",
        ];
        assert_eq!(paths("/usr/bin/gannet", false), package);
        let own = [
            "/etc/sysusers.d/gannet.conf",
            "/etc/systemd/system/gannet.service",
            "/etc/systemd/system/gannet-acme.service",
            "/etc/systemd/system/gannet.socket",
            "/usr/local/share/man/man1/gannet.1",
            "/etc/logrotate.d/gannet",
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
        let gives_up = "\nRestartPreventExitStatus=2\n";
        assert!(service(false).contains(gives_up) && !service(true).contains(gives_up));
    }

    /// What this program writes is its own, wherever it is installed, until someone changes it.
    #[test]
    fn a_text_is_own_until_it_is_changed() {
        for with_socket in [false, true] {
            let texts = texts("/usr/local/bin/gannet", with_socket);
            let sealed = texts
                .files()
                .into_iter()
                .filter(|(_, text)| text.contains(SEAL));
            let sealed: Vec<_> = sealed.collect();
            assert_eq!(sealed.len(), if with_socket { 5 } else { 4 });
            for (path, text) in sealed {
                assert!(is_own(text.as_bytes()), "{path}");
                let changed = format!("{text}# more\n");
                assert!(!is_own(changed.as_bytes()), "{path}");
            }
        }
        assert!(!is_own(b"[Service]\nExecStart=/usr/bin/gannet serve\n"));
        assert!(!is_own(b"\xff") && !is_own(b"# x, checksum \n"));
    }

    /// A socket unit as the first versions have written it, without a checksum.
    #[test]
    fn units_without_a_checksum_are_own_as_they_were_written() {
        let socket = "# Written by 'gannet install --socket'. Change it by 'systemctl edit \
                      gannet.socket'.\n[Socket]\nListenStream=0.0.0.0:80\nListenStream=[::]:80\n\
                      BindIPv6Only=ipv6-only\nFileDescriptorName=http\n\n[Install]\n\
                      WantedBy=sockets.target\n";
        assert!(is_own(socket.as_bytes()));
        assert!(!is_own(socket.replace(":80", ":81").as_bytes()));
    }
}
