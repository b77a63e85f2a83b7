//! The proxies that streams go through, each with persistent connections to the server behind it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;
use xtask::other_server::OtherServer;
use xtask::process;

/// A proxy that passes every request on and keeps no answer.
pub(super) struct Proxy {
    pub(super) name: &'static str,
    /// The program, and Debian's package of it.
    program: &'static str,
    package: &'static str,
    /// In these and in the configuration, `FOLDER`, `FILE`, `PORT` and `UPSTREAM` are replaced.
    arguments: &'static [&'static str],
    config: &'static str,
    /// Further files, by their names.
    files: &'static [(&'static str, &'static str)],
    environment: &'static [(&'static str, &'static str)],
}

pub(super) const PROXIES: [Proxy; 8] = [
    Proxy {
        name: "haproxy",
        program: "haproxy",
        package: "haproxy",
        arguments: &["-db", "-f", "FILE"],
        config: "defaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n \
                 http-reuse always\nlisten site\n bind 127.0.0.1:PORT\n server gannet 127.0.0.1:UPSTREAM\n",
        files: &[],
        environment: &[],
    },
    Proxy {
        name: "nginx",
        program: "nginx",
        package: "nginx",
        arguments: &["-p", "FOLDER", "-c", "FILE"],
        config: "daemon off;\nworker_processes 1;\npid FOLDER/pid;\nerror_log FOLDER/error.log;\n\
                 events { worker_connections 4096; }\nhttp {\n access_log off;\n client_body_temp_path FOLDER/body;\n \
                 proxy_temp_path FOLDER/proxy;\n upstream gannet { server 127.0.0.1:UPSTREAM; keepalive 32; }\n \
                 server {\n listen 127.0.0.1:PORT;\n location / {\n proxy_pass http://gannet;\n \
                 proxy_http_version 1.1;\n proxy_set_header Connection \"\";\n proxy_request_buffering off;\n \
                 proxy_redirect off;\n }\n }\n}\n",
        files: &[],
        environment: &[],
    },
    Proxy {
        name: "Apache",
        program: "apache2",
        package: "apache2",
        arguments: &["-d", "FOLDER", "-f", "FILE", "-D", "FOREGROUND"],
        config: "ServerName site\nListen 127.0.0.1:PORT\nPidFile FOLDER/pid\nErrorLog FOLDER/error.log\n\
                 DefaultRuntimeDir FOLDER\nUser www-data\nGroup www-data\nHttpProtocolOptions Unsafe\n\
                 LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
                 LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
                 LoadModule proxy_module /usr/lib/apache2/modules/mod_proxy.so\n\
                 LoadModule proxy_http_module /usr/lib/apache2/modules/mod_proxy_http.so\n\
                 ProxyPass / http://127.0.0.1:UPSTREAM/\n",
        files: &[],
        environment: &[],
    },
    Proxy {
        name: "Varnish",
        program: "varnishd",
        package: "varnish",
        arguments: &[
            "-F",
            "-j",
            "none",
            "-n",
            "FOLDER/work",
            "-a",
            "127.0.0.1:PORT",
            "-f",
            "FILE",
            "-s",
            "default,16m",
        ],
        config: "vcl 4.1;\nbackend gannet { .host = \"127.0.0.1\"; .port = \"UPSTREAM\"; }\n\
                 sub vcl_recv { return (pass); }\n",
        files: &[],
        environment: &[],
    },
    Proxy {
        name: "squid",
        program: "squid",
        package: "squid",
        arguments: &["-N", "-f", "FILE"],
        config: "http_port 127.0.0.1:PORT accel defaultsite=site no-vhost\n\
                 cache_peer 127.0.0.1 parent UPSTREAM 0 no-query originserver name=gannet\n\
                 http_access allow all\ncache deny all\ncache_peer_access gannet allow all\npid_filename FOLDER/pid\n\
                 access_log none\ncache_log FOLDER/cache.log\ncoredump_dir FOLDER\nshutdown_lifetime 1 seconds\n\
                 pinger_enable off\nnever_direct allow all\nretry_on_error off\n",
        files: &[],
        environment: &[],
    },
    Proxy {
        name: "Traffic Server",
        program: "traffic_server",
        package: "trafficserver",
        arguments: &[],
        config: "",
        files: &[
            (
                "records.config",
                "CONFIG proxy.config.http.server_ports STRING PORT:ip-in=127.0.0.1\n\
                 CONFIG proxy.config.http.cache.http INT 0\nCONFIG proxy.config.url_remap.remap_required INT 0\n\
                 CONFIG proxy.config.diags.show_location INT 0\nCONFIG proxy.config.admin.user_id STRING #-1\n",
            ),
            (
                "ip_allow.yaml",
                "ip_allow:\n  - apply: in\n    ip_addrs: 0/0\n    action: allow\n    methods: ALL\n",
            ),
            ("storage.config", "FOLDER 32M\n"),
            ("remap.config", "map / http://127.0.0.1:UPSTREAM/\n"),
            (
                "runroot.yaml",
                "prefix: FOLDER\nexec_prefix: /usr\nbindir: /usr/bin\nsbindir: /usr/sbin\nsysconfdir: FOLDER\n\
                 datadir: FOLDER\nincludedir: /usr/include\nlibdir: /usr/lib\nlibexecdir: FOLDER\n\
                 localstatedir: FOLDER\nruntimedir: FOLDER\nlogdir: FOLDER\ncachedir: FOLDER\n",
            ),
        ],
        environment: &[("TS_RUNROOT", "FOLDER/runroot.yaml")],
    },
    Proxy {
        name: "Caddy",
        program: "caddy",
        package: "caddy",
        arguments: &["run", "--adapter", "caddyfile", "--config", "FILE"],
        config: "{\n admin off\n log {\n level ERROR\n }\n}\nhttp://:PORT {\n bind 127.0.0.1\n \
                 reverse_proxy 127.0.0.1:UPSTREAM\n}\n",
        files: &[],
        environment: &[("HOME", "FOLDER")],
    },
    Proxy {
        name: "h2o",
        program: "h2o",
        package: "h2o",
        arguments: &["-c", "FILE"],
        config: "listen:\n  host: 127.0.0.1\n  port: PORT\nuser: root\nnum-threads: 1\nproxy.timeout.keepalive: 2000\n\
                 hosts:\n  default:\n    paths:\n      /:\n        proxy.reverse.url: http://127.0.0.1:UPSTREAM/\n",
        files: &[],
        environment: &[],
    },
];

impl Proxy {
    /// Its name and the version of its package, if that is where it comes from.
    pub(super) fn version(&self) -> String {
        let asked = ["-W", "-f", "${Version}", self.package];
        match process::output("dpkg-query", &asked) {
            Ok(version) => format!("{} {version}", self.name),
            Err(_) => self.name.to_owned(),
        }
    }

    /// Starts it in a folder, on a port, in front of another; `None` if it cannot be had.
    pub(super) fn start(
        &self,
        folder: &Path,
        port: u16,
        upstream: u16,
    ) -> Result<Option<OtherServer>> {
        let Ok(program) = process::find_or_install(self.program, self.package) else {
            return Ok(None);
        };
        let config = folder.join("config");
        let filled = |text: &str| {
            text.replace("FOLDER", &folder.display().to_string())
                .replace("FILE", &config.display().to_string())
                .replace("PORT", &port.to_string())
                .replace("UPSTREAM", &upstream.to_string())
        };
        fs::write(&config, filled(self.config))?;
        for (name, text) in self.files {
            fs::write(folder.join(name), filled(text))?;
        }
        let log = fs::File::create(folder.join("output"))?;
        let mut command = Command::new(program);
        command
            .args(self.arguments.iter().map(|it| filled(it)))
            .envs(
                self.environment
                    .iter()
                    .map(|(name, value)| (name, filled(value))),
            )
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        OtherServer::start(&mut command, port).map(Some)
    }
}
