//! The page of the manual that shows the results.

use std::fmt::Write;
use std::fs;

use anyhow::{Result, ensure};
use xtask::process;

use super::{Passed, SUITES, Suite};

const PAGE: &str = "docs/manual/proof.md";

const BEGIN: &str = "\
# Proof: other people's suites

What others wrote knows what gannet's authors did not think of. `cargo xtask conform --page` fetches these
suites, runs them and writes this page; `cargo xtask conform NAME` repeats one. Nothing of them is in the
project, but for lists of cases that do not hold, each with its reason.

| suite | shows | version | cases, all passed | not compared, or different |
|---|---|---|---|---|
";

const END: &str = "
More of other people's work runs as chores of their own (see [CONTRIBUTING](../../CONTRIBUTING.md)):

| chore | what runs |
|---|---|
| `cargo xtask h2spec` | h2spec's cases of HTTP/2, clear and TLS, on both engines |
| `cargo xtask acme` | pebble, the ACME server of Let's Encrypt, which refuses nonces and orders at random |
| `cargo xtask world` | zsync, aria2, curl, wget, rclone, apt, pip, npm, git, GDAL and more, beside nginx and caddy; the engines of Netlify and Cloudflare for their rules |
| `cargo xtask proxies` | gannet behind haproxy, nginx and Caddy |
| `cargo xtask systemd` | a booted systemd: the service, its sockets, reloads, upgrades |
| `cargo xtask vm` | Debian's kernels from the oldest supported to the newest, with kernel TLS |
";

/// Writes the page: all suites have to have run.
pub(super) fn write(rows: &[(&Suite, Passed)]) -> Result<()> {
    ensure!(
        rows.len() == SUITES.len(),
        "the page shows all suites, and {} of {} have run",
        rows.len(),
        SUITES.len()
    );
    let mut page = BEGIN.to_owned();
    for (suite, passed) in rows {
        let Suite {
            name,
            about,
            origin,
            ..
        } = suite;
        let Passed {
            cases,
            version,
            differences,
            ..
        } = passed;
        writeln!(
            page,
            "| [`{name}`]({origin}) | {about} | {version} | {cases} | {differences} |"
        )?;
    }
    for (suite, passed) in rows.iter().filter(|(_, passed)| !passed.table.is_empty()) {
        write!(page, "\n`{}`, each cell:\n\n{}", suite.name, passed.table)?;
    }
    page += END;
    fs::write(process::root().join(PAGE), page)?;
    println!("{PAGE} is written");
    Ok(())
}
