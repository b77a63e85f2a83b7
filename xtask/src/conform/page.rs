//! The page of the manual that shows the results.

use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result};
use xtask::process;

use super::{Passed, SUITES, Suite};

const PAGE: &str = "docs/manual/proof.md";

const BEGIN: &str = "\
# Proof: other people's suites

What others wrote knows what gannet's authors did not think of. `cargo xtask conform --page` fetches these
suites, runs them and writes this page; `cargo xtask conform NAME` repeats one, and with `--page` writes its
results beside the others. Nothing of them is in the project, but for lists of cases that do not hold, each with
its reason.

| suite | shows | version | cases that passed | not compared, or different |
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
| `cargo xtask caches` | nginx, Varnish, Apache, squid and Traffic Server, configured as in [Behind a proxy](proxies.md) |
| `cargo xtask deny` | cargo-deny: the licences and sources of all dependencies, and RustSec's list of known faults |
| `cargo xtask asan` | AddressSanitizer and LeakSanitizer: the tests of gannet-io, -archive, -http and -server, servers that end, and the fuzz targets over their inputs; a program that leaks and one that reads what it freed have to be found first |

[cache-tests](https://github.com/http-tests/cache-tests) (b55b8bd of 2026-07-20) tests caches and has an origin of its
own, so it says nothing about gannet, but about the configurations in [Behind a proxy](proxies.md). Of its required
cases, those that fail are those that fail in its published results of the same cache, with these exceptions:

| cache | required cases that pass | other than published |
|---|---|---|
| nginx 1.22.1 | 101 | `stale-close-*` (3): `proxy_cache_use_stale` sends stored pages while the origin does not answer |
| Varnish 7.1.1, without a default lifetime | 118 | none |
| squid 5.7 | 117 | `cc-resp-no-cache-case-insensitive`: a defect of this version, which gannet's fields, in small letters, do not meet |
| Traffic Server 9.2.5 | 132 | none |

[TLS-Anvil](https://github.com/tls-attacker/TLS-Anvil) (c4eeb2a6 of 2025-07-14, strength 1) has 437 templates, 217 of
which are of what gannet lacks, or of clients. It takes half an hour, needs Maven, and is in no chore. 200 passed in
every combination; the other 20 failed in some, or in all:

| templates | why |
|---|---|
| 13 of TLS 1.2, of versions and of resumption, where ALPN is offered | the client chooses HTTP/2, where the server's settings follow the handshake at once (RFC 9113 section 3.4), and the template expects nothing |
| `testVersionPreferrence`, `omitSupportedVersionsExtension` | suites of RSA alone, without a server name: the first certificate is of ECDSA |
| `ecdsaNoSignatureAlgorithmsExtension` | without that extension only SHA-1 is left (RFC 5246 section 7.4.1.4.1) |
| `respondsWithValidKeyUpdate`, `appDataUnderNewKeysSucceeds` | an update of keys is answered before the next data (RFC 8446 section 4.6.3), and there is none to send |
| `closeNotify` of TLS 1.2 | it is answered, and the sending half closed; the socket ends with the client's |
| `zeroLengthRecord_Finished` | the library takes an empty record within the handshake; after it gannet refuses them (RFC 8446 section 5.4) |

What has not run, and what stands in for it:

| suite | why | in its place |
|---|---|---|
| BoGo's cases of QUIC | handshake and packets are those of the libraries, which keep the secrets that the runner compares | `h3spec`, `interop` |
| Wycheproof | its vectors are of primitives, which are those of the libraries | none is needed |
| lsquic, msquic, neqo, kwik as clients of QUIC | no registry has them as programs, and they were not built | the eight above |
";

/// Writes the page: what has not run keeps the results that the page has.
pub(super) fn write(rows: &[(&Suite, Passed)]) -> Result<()> {
    let path = process::root().join(PAGE);
    let old = fs::read_to_string(&path)?;
    let (mut page, mut tables) = (BEGIN.to_owned(), String::new());
    for suite in &SUITES {
        let name = suite.name;
        let ran = rows.iter().find(|(it, _)| it.name == name);
        let (row, table) = match ran {
            Some((_, passed)) => (row(suite, passed), passed.table.clone()),
            None => kept(&old, name).with_context(|| {
                format!("the page has no results of '{name}', which has to run")
            })?,
        };
        page += &row;
        if !table.is_empty() {
            write!(tables, "\n{}\n\n{table}", title(name))?;
        }
    }
    fs::write(path, page + &tables + END)?;
    println!("{PAGE} is written");
    Ok(())
}

fn row(suite: &Suite, passed: &Passed) -> String {
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
    format!("| [`{name}`]({origin}) | {about} | {version} | {cases} | {differences} |\n")
}

fn title(name: &str) -> String {
    format!("`{name}`, each cell:")
}

/// The row and the table of a suite in the page.
fn kept(page: &str, name: &str) -> Option<(String, String)> {
    let begin = format!("| [`{name}`]");
    let row = page.lines().find(|line| line.starts_with(&begin))?;
    let mut lines = page.lines().skip_while(|line| *line != title(name)).skip(2);
    let table = lines.by_ref().take_while(|line| line.starts_with('|'));
    let table = table.map(|line| format!("{line}\n")).collect();
    Some((format!("{row}\n"), table))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A suite that does not run keeps its row, and its table if it has one.
    #[test]
    fn results_are_kept() {
        let page = "| [`a`](x) | 1 |\n| [`b`](y) | 2 |\n\n`b`, each cell:\n\n| c |\n|---|\n| d |\n\nmore\n";
        let none = kept(page, "c");
        assert!(none.is_none());
        let (row, table) = kept(page, "a").expect("it is there");
        assert_eq!((&row[..], &table[..]), ("| [`a`](x) | 1 |\n", ""));
        let (row, table) = kept(page, "b").expect("it is there");
        assert_eq!(row, "| [`b`](y) | 2 |\n");
        assert_eq!(table, "| c |\n|---|\n| d |\n");
    }
}
