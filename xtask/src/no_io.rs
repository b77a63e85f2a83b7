//! Proves that the pure crates do no I/O.
//!
//! Three checks, each printed by name: their source uses no part of the standard library that
//! reaches the system; their dependencies are those listed here, each reviewed for the same; and
//! they compile for wasm32-unknown-unknown, which has no system to reach, if its library is installed
//! or can be.

use std::{collections::BTreeSet, fs, path::Path, process::Stdio};

use anyhow::{Context, Result, bail};

use crate::tidy::{self, source};
use xtask::process;

/// The crates that do no I/O.
const CRATES: [&str; 3] = ["gannet-http", "gannet-archive", "gannet-content"];

/// Permitted dependencies, direct or not: computation only. `cc`, `shlex` and `find-msvc-tools` are
/// run by a build script; `libc` detects CPU features on aarch64. The HTML parser keeps its
/// interned names behind a lock (`parking_lot` and its dependencies).
const DEPENDENCIES: [&str; 51] = [
    "alloc-no-stdlib",
    "alloc-stdlib",
    "arrayvec",
    "base64",
    "blake3",
    "block-buffer",
    "brotli-decompressor",
    "cc",
    "cfg-if",
    "constant_time_eq",
    "cpufeatures",
    "crypto-common",
    "digest",
    "fastrand",
    "find-msvc-tools",
    "gannet-archive",
    "gannet-http",
    "generic-array",
    "html5ever",
    "libc",
    "lock_api",
    "log",
    "markup5ever",
    "md-5",
    "memchr",
    "minisign-verify",
    "new_debug_unreachable",
    "parking_lot",
    "parking_lot_core",
    "phf",
    "phf_codegen",
    "phf_generator",
    "phf_shared",
    "precomputed-hash",
    "proc-macro2",
    "quote",
    "scopeguard",
    "sha1",
    "sha2",
    "shlex",
    "siphasher",
    "smallvec",
    "string_cache",
    "string_cache_codegen",
    "tendril",
    "typenum",
    "unicode-ident",
    "version_check",
    "web_atoms",
    "xxhash-rust",
    "zlib-rs",
];

/// Parts of `std` that reach the system, as paths below it.
const FORBIDDEN: [&str; 12] = [
    "env",
    "fs",
    "io::stderr",
    "io::stdin",
    "io::stdout",
    "net",
    "os",
    "process",
    "thread",
    "time::Instant",
    "time::SystemTime",
    "time::UNIX_EPOCH",
];

/// Types among them that are plain values.
const VALUES: [&str; 4] = [
    "net::IpAddr",
    "net::Ipv4Addr",
    "net::Ipv6Addr",
    "net::SocketAddr",
];

/// Macros that print.
const FORBIDDEN_MACROS: [&str; 4] = ["print", "println", "eprint", "eprintln"];

/// `cargo xtask no-io`.
pub(crate) fn main() -> Result<()> {
    let mut findings = 0;
    findings += check_sources()?;
    findings += check_dependencies()?;
    if findings > 0 {
        bail!("no-io: {findings} findings");
    }
    check_for_wasm()
}

fn check_sources() -> Result<usize> {
    let root = process::root();
    let mut findings = 0;
    let mut count = 0;
    for file in tidy::files(&root)? {
        let ours = CRATES
            .iter()
            .any(|c| file.starts_with(Path::new("crates").join(c).join("src")));
        if !ours || file.extension().is_none_or(|e| e != "rs") {
            continue;
        }
        count += 1;
        let text = fs::read_to_string(root.join(&file))?;
        for (line, path) in forbidden_in(&file, &text) {
            println!("{}:{line}: '{path}' does I/O", file.display());
            findings += 1;
        }
    }
    println!(
        "no-io: sources of {}: {count} files checked",
        CRATES.join(", ")
    );
    Ok(findings)
}

/// Lines of non-test code that name a forbidden path or macro.
fn forbidden_in(file: &Path, text: &str) -> Vec<(usize, String)> {
    let lines = source::split(text);
    let in_tests = source::test_lines(file, &lines);
    let mut found = Vec::new();
    let mut code = String::new();
    // Offsets at which lines start, to find the line of a match in the joined code.
    let mut starts = Vec::new();
    for (line, is_test) in lines.iter().zip(in_tests) {
        starts.push(code.len());
        if !is_test {
            code.push_str(&line.code);
        }
        code.push('\n');
    }
    let line_of = |at: usize| starts.partition_point(|&start| start <= at);
    for root in ["std", "core"] {
        for (at, _) in code
            .match_indices(root)
            .filter(|(at, _)| is_path_root(&code, *at, root))
        {
            for path in use_tree(code[at + root.len()..].trim_start()) {
                let is_value = VALUES.iter().any(|value| path.ends_with(value));
                if !is_value && FORBIDDEN.iter().any(|bad| leads_to(&path, bad)) {
                    found.push((line_of(at), format!("{root}::{path}")));
                }
            }
        }
    }
    for name in FORBIDDEN_MACROS {
        let call = format!("{name}!");
        for (at, _) in code.match_indices(&call) {
            if !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                found.push((line_of(at), call.clone()));
            }
        }
    }
    found.sort();
    found
}

fn is_path_root(code: &str, at: usize, root: &str) -> bool {
    let before = code[..at].trim_end_matches("::");
    !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
        && code[at + root.len()..].trim_start().starts_with("::")
}

/// Whether using `path` brings in `bad`: the path itself, something below it, or a glob above.
fn leads_to(path: &str, bad: &str) -> bool {
    let below = path
        .strip_prefix(bad)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
    let glob = path
        .strip_suffix("*")
        .is_some_and(|above| bad.starts_with(above));
    below || glob
}

/// The paths of `::a::{b, c::{d, e}, self as f}`, joined with `::`.
fn use_tree(text: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let mut prefixes: Vec<String> = Vec::new();
    let mut path = String::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix("::") {
            if !path.is_empty() {
                path.push_str("::");
            }
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            prefixes.push(path.clone());
            rest = after;
        } else if let Some(after) = rest.strip_prefix(',').filter(|_| !prefixes.is_empty()) {
            paths.push(std::mem::take(&mut path));
            path.clone_from(&prefixes[prefixes.len() - 1]);
            rest = after;
        } else if let Some(after) = rest.strip_prefix('}').filter(|_| !prefixes.is_empty()) {
            paths.push(std::mem::take(&mut path));
            prefixes.pop();
            if prefixes.is_empty() {
                break;
            }
            rest = after;
        } else if let Some(after) = rest.strip_prefix("as ") {
            rest = after
                .trim_start()
                .trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        } else {
            let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '*'));
            let name = &rest[..end.unwrap_or(rest.len())];
            let continues = path.is_empty() || path.ends_with("::");
            if name.is_empty() || !continues {
                paths.push(path);
                break;
            }
            path.push_str(name);
            rest = &rest[name.len()..];
        }
    }
    paths.retain(|path| !path.is_empty());
    paths
}

fn check_dependencies() -> Result<usize> {
    let mut unknown = BTreeSet::new();
    for name in CRATES {
        let mut command = process::cargo();
        command.args([
            "tree",
            "--package",
            name,
            "--edges",
            "normal,build",
            "--prefix",
            "none",
        ]);
        command.args(["--format", "{lib}|{p}"]);
        for line in process::capture(&mut command)?.lines() {
            let package = line.split('|').nth(1).unwrap_or(line);
            let package = package.split(' ').next().unwrap_or_default();
            if package != name && !DEPENDENCIES.contains(&package) {
                unknown.insert(format!(
                    "{name} depends on '{package}', which is not listed"
                ));
            }
        }
    }
    for finding in &unknown {
        println!("xtask/src/no_io.rs: {finding}");
    }
    println!("no-io: dependency trees of {}", CRATES.join(", "));
    Ok(unknown.len())
}

fn check_for_wasm() -> Result<()> {
    const TARGET: &str = "wasm32-unknown-unknown";
    let sysroot = process::output("rustc", &["--print", "sysroot"])?;
    let library = Path::new(&sysroot).join("lib/rustlib").join(TARGET);
    if !library.is_dir() {
        let add = process::output("rustup", &["target", "add", TARGET]);
        if let Err(e) = add.map_err(|e| e.root_cause().to_string()) {
            println!("no-io: check for {TARGET} skipped: its library is not installed ({e})");
            return Ok(());
        }
    }
    let mut command = process::cargo();
    command
        .args(["check", "--quiet", "--target", TARGET])
        .stdin(Stdio::null());
    for name in CRATES {
        command.args(["--package", name]);
    }
    process::run(&mut command).with_context(|| format!("check for {TARGET}"))?;
    println!("no-io: {} compile for {TARGET}", CRATES.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[(usize, &str)]) {
        let found = forbidden_in(Path::new("crates/gannet-http/src/a.rs"), text);
        let found: Vec<_> = found
            .iter()
            .map(|(line, path)| (*line, path.as_str()))
            .collect();
        assert_eq!(found, expect, "{text:?}");
    }

    #[test]
    fn paths_are_followed_through_braces() {
        check("use std::fs;\n", &[(1, "std::fs")]);
        check(
            "use std::{\n    fmt, fs::File as F,\n    time::{Duration, Instant},\n};\n",
            &[(1, "std::fs::File"), (1, "std::time::Instant")],
        );
        check(
            "let a = 1;\nlet b = ::std::env::var(\"A\");\n",
            &[(2, "std::env::var")],
        );
        check("use std::time::*;\n", &[(1, "std::time::*")]);
        check("use std::net::{self};\n", &[(1, "std::net::self")]);
    }

    #[test]
    fn what_computes_is_let_through() {
        check(
            "use std::{fmt, time::Duration, io::Write as _};\nuse core::mem;\n",
            &[],
        );
        check("use my_std::fs; // std::fs\nlet a = \"std::fs\";\n", &[]);
        check("#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n", &[]);
        check("fn print() { eprintln!(); }\n", &[(1, "eprintln!")]);
    }
}
