//! lighttpd, from the distribution's package.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{BACKLOG, Launch, Task};
use xtask::process;

pub(super) fn find() -> Result<(PathBuf, String)> {
    let program = process::find_or_install("lighttpd", "lighttpd")?;
    // Debian packages TLS separately.
    if !Path::new("/usr/lib/lighttpd/mod_openssl.so").exists() {
        process::install("lighttpd-mod-openssl")?;
    }
    let version = process::output(&program.to_string_lossy(), &["-v"])?;
    Ok((
        program,
        version.lines().next().unwrap_or_default().to_owned(),
    ))
}

pub(super) fn launch(program: &Path, task: &Task<'_>) -> Result<Launch> {
    let (root, port, files) = (task.site.root.display(), task.port, task.files);
    let tls = task.certificate.map_or_else(String::new, |certificate| {
        let (chain, key) = (certificate.chain.display(), certificate.key.display());
        format!(
            "server.modules = ( \"mod_openssl\" )
ssl.engine = \"enable\"
ssl.pemfile = \"{chain}\"
ssl.privkey = \"{key}\"
ssl.openssl.ssl-conf-cmd = ( \"MinProtocol\" => \"TLSv1.2\" )
"
        )
    });
    // The maximum of requests per connection in lighttpd is 65535.
    let configuration = format!(
        "server.document-root = \"{root}\"
server.bind = \"127.0.0.1\"
server.port = {port}
server.listen-backlog = {BACKLOG}
server.max-fds = {files}
server.max-keep-alive-requests = 65535
server.max-keep-alive-idle = 3600
server.network-backend = \"sendfile\"
server.feature-flags = ( \"server.h2proto\" => \"enable\", \"server.h2c\" => \"enable\" )
{tls}mimetype.assign = ( \".html\" => \"text/html\", \".txt\" => \"text/plain; charset=utf-8\",
    \".bin\" => \"application/octet-stream\" )
"
    );
    let path = task.work.join("lighttpd.conf");
    fs::write(&path, &configuration)?;
    let mut command = Command::new(program);
    command.arg("-D").arg("-f").arg(path);
    Ok(Launch {
        command,
        input: None,
        configuration,
    })
}
