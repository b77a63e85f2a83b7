//! The Debian package; deb(5), deb-control(5).

use std::path::PathBuf;

use anyhow::Result;

use super::archive::{self, Entry};
use super::stage::Stage;
use super::{Release, write};

/// Makes the user and the folder of the site; restarts what runs.
const POSTINST: &str = "\
#!/bin/sh
set -e
if [ \"$1\" = configure ]; then
    if command -v systemd-sysusers >/dev/null; then
        systemd-sysusers gannet.conf
    elif ! id gannet >/dev/null 2>&1; then
        useradd --system --user-group --no-create-home --home-dir / \\
            --shell /usr/sbin/nologin gannet
    fi
    mkdir -p /srv/www /var/log/gannet
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        systemctl try-restart gannet.service gannet-acme.service
    fi
fi
";

const PRERM: &str = "\
#!/bin/sh
set -e
if [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now gannet.service gannet-acme.service
fi
";

const POSTRM: &str = "\
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
if [ \"$1\" = purge ]; then
    rm -rf /var/log/gannet
fi
";

const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: gannet

Files: *
Copyright: the authors of gannet
License: MIT or Apache-2.0
 'gannet version --licenses' prints both, and those of everything in the program.
";

pub(super) fn make(release: &Release, stage: &Stage) -> Result<PathBuf> {
    let version = &release.version;
    let manual = archive::compress(&stage.manual)?;
    let share =
        |path: &str, content: &[u8]| Entry::file(&format!("usr/share/{path}"), 0o644, content);
    let mut entries = vec![
        Entry::file("usr/bin/gannet", 0o755, stage.program.clone()),
        share("man/man1/gannet.1.gz", &manual),
        share("bash-completion/completions/gannet", &stage.bash),
        share("fish/vendor_completions.d/gannet.fish", &stage.fish),
        share("zsh/vendor-completions/_gannet", &stage.zsh),
        share("doc/gannet/copyright", COPYRIGHT.as_bytes()),
        share("doc/gannet/gannet.cdx.json", &stage.bill),
    ];
    let installed = stage.installed.iter();
    // The page is there, compressed as packages have it.
    let installed = installed.filter(|(path, _)| !path.starts_with("usr/share/man/"));
    entries.extend(installed.map(|(path, content)| Entry::file(path, 0o644, content.clone())));
    for entry in &mut entries {
        entry.path.insert_str(0, "./");
    }
    let size: u64 = entries.iter().map(Entry::len).sum();
    let control = [
        Entry::file("./control", 0o644, control(release, size)),
        Entry::file("./conffiles", 0o644, conffiles(stage)),
        Entry::file("./postinst", 0o755, POSTINST),
        Entry::file("./prerm", 0o755, PRERM),
        Entry::file("./postrm", 0o755, POSTRM),
    ];
    let compressed = |entries: &[Entry]| archive::compress(&archive::tar(entries, release.date)?);
    let members = [
        ("debian-binary", &b"2.0\n"[..]),
        ("control.tar.gz", &compressed(&control)?),
        ("data.tar.gz", &compressed(&entries)?),
    ];
    let package = archive::ar(&members, release.date)?;
    let architecture = release.processor.debian;
    write(
        release,
        &format!("gannet_{version}_{architecture}.deb"),
        &package,
    )
}

fn control(release: &Release, bytes: u64) -> String {
    let (version, architecture) = (&release.version, release.processor.debian);
    let kib = bytes.div_ceil(1024);
    format!(
        "Package: gannet\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: The authors of gannet <gannet@packages.invalid>\n\
         Installed-Size: {kib}\n\
         Depends: passwd\n\
         Recommends: logrotate\n\
         Section: httpd\n\
         Priority: optional\n\
         Description: static web server\n \
         Serves a directory, or a site packed into one archive file, over HTTP/1, HTTP/2\n \
         and HTTP/3, on io_uring or epoll. The service is not enabled: edit\n \
         /etc/gannet/gannet.toml, then 'systemctl enable --now gannet'.\n"
    )
}

/// The files that belong to the administrator.
fn conffiles(stage: &Stage) -> String {
    let paths = stage.installed.iter().map(|(path, _)| path);
    let own = paths.filter(|path| path.starts_with("etc/"));
    own.map(|path| format!("/{path}\n")).collect()
}
