//! Compares the cost of a large download from gannet and nginx, with and without kernel TLS, in one
//! VM.
//!
//! With KVM the figure is time. Under emulation time is meaningless, since the cost of emulating an
//! instruction has nothing to do with its real cost; instead, QEMU lets each instruction take one
//! nanosecond, and the figure is the number of instructions, including those of the kernel on the
//! server's behalf.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::vm::boot::{self, Accelerator};
use crate::vm::cpio::Cpio;
use crate::vm::kernels::Kernel;
use crate::vm::{directory, image};
use xtask::certificate::{Certificate, ECDSA_P256};
use xtask::process;

/// Length of the file.
const MEBIBYTES: u32 = 64;

/// Downloads counted per server.
const ROUNDS: [u32; 3] = [1, 2, 3];

/// The base of the ratios.
const BASE: &str = "nginx-kernel";

/// The programs in the VM.
struct Programs {
    gannet: PathBuf,
    nginx: PathBuf,
}

/// Measures in each kernel.
pub(super) fn run(
    qemu: &Path,
    accelerator: Accelerator,
    kernels: &[Kernel],
    gannet: Option<PathBuf>,
    is_verbose: bool,
) -> Result<()> {
    let gannet = match gannet {
        Some(path) => path.canonicalize().context("no such program")?,
        None => process::build(&["--package", "gannet", "--bin", "gannet"], "dist")?,
    };
    let programs = Programs {
        gannet,
        nginx: process::find_or_install("nginx", "nginx-light")?,
    };
    let unit = match accelerator {
        Accelerator::Kvm => "ms of CPU time",
        Accelerator::Emulation { .. } | Accelerator::Arm { .. } | Accelerator::Counting => {
            "million instructions"
        }
    };
    for kernel in kernels {
        let image = write_image(kernel, &programs)?;
        let report = boot::run(qemu, accelerator.counting(), kernel, &image, is_verbose)?;
        ensure!(
            report.has_finished(),
            "the VM with kernel {} did not reach the end:\n{}",
            kernel.release,
            report.tail()
        );
        println!("vm: kernel {}: {MEBIBYTES} MiB, {unit}", kernel.release);
        print!("{}", table(report.measured())?);
    }
    Ok(())
}

/// One line per server: the cost of a download, and its ratio to nginx in the same round.
fn table(measured: &[(String, u64, u64)]) -> Result<String> {
    let mut by_name: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for (name, cost, encrypted) in measured {
        by_name.entry(name).or_default().push((*cost, *encrypted));
    }
    let base = by_name.get(BASE).context("nginx was not measured")?.clone();
    let mut text = String::new();
    for (name, runs) in &by_name {
        ensure!(
            runs.len() == base.len() && runs.iter().all(|(cost, _)| *cost > 0),
            "{name}: a run is missing"
        );
        let wants_kernel = name.ends_with("-kernel");
        let by_kernel = runs.iter().all(|(_, encrypted)| *encrypted > 0);
        ensure!(
            wants_kernel == by_kernel,
            "{name}: the kernel encrypted in {} of {} runs",
            runs.iter().filter(|(_, encrypted)| *encrypted > 0).count(),
            runs.len()
        );
        let costs = runs.iter().map(|(cost, _)| *cost as f64 / 1e6).collect();
        let ratios: Vec<f64> = runs
            .iter()
            .zip(&base)
            .map(|((cost, _), (base, _))| *cost as f64 / *base as f64)
            .collect();
        let (least, most) = (
            ratios.iter().copied().fold(f64::MAX, f64::min),
            ratios.iter().copied().fold(0.0, f64::max),
        );
        text.push_str(&format!(
            "  {name:<20} {:>8.1}   ratio to nginx {:.2} ({least:.2}-{most:.2})\n",
            median(costs),
            median(ratios)
        ));
    }
    Ok(text)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn write_image(kernel: &Kernel, programs: &Programs) -> Result<PathBuf> {
    let path = directory().join(format!("{}-bench.cpio", kernel.release));
    let mut cpio = Cpio::new(BufWriter::new(File::create(&path)?));
    image::write_base(&mut cpio, kernel, [&programs.gannet, &programs.nginx])?;
    for folder in ["var/log/nginx", "var/lib/nginx", "bench/site"] {
        cpio.folder(&format!("/{folder}"))?;
    }
    let certificate = Certificate::create(ECDSA_P256, &directory())?;
    cpio.bytes("/bench/chain.pem", &fs::read(&certificate.chain)?)?;
    cpio.bytes("/bench/key.pem", &fs::read(&certificate.key)?)?;
    for (kind, port, options) in [
        ("kernel", 8004, "ssl_conf_command Options KTLS;"),
        ("user", 8005, ""),
    ] {
        let text = nginx_configuration(kind, port, options);
        cpio.bytes(&format!("/bench/nginx-{kind}.conf"), text.as_bytes())?;
    }
    let rounds: Vec<String> = ROUNDS.iter().map(u32::to_string).collect();
    let init = include_str!("bench.sh")
        .replace("MEBIBYTES", &MEBIBYTES.to_string())
        .replace("ROUNDS", &rounds.join(" "))
        .replace("GANNET", &programs.gannet.display().to_string())
        .replace("NGINX", &programs.nginx.display().to_string());
    cpio.bytes("/init", init.as_bytes())?;
    cpio.finish()?
        .into_inner()
        .map_err(|error| error.into_error())?;
    Ok(path)
}

fn nginx_configuration(kind: &str, port: u16, options: &str) -> String {
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path /bench/{kind}/{name};\n"))
        .concat();
    format!(
        "daemon off;
user root;
worker_processes 1;
pid /bench/nginx-{kind}.pid;
error_log stderr crit;
events {{ worker_connections 512; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    {temporary}
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate /bench/chain.pem;
        ssl_certificate_key /bench/key.pem;
        ssl_protocols TLSv1.3;
        ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
        {options}
        root /bench/site;
    }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, cost: u64, encrypted: u64) -> (String, u64, u64) {
        (name.to_owned(), cost * 1_000_000, encrypted)
    }

    #[test]
    fn ratios_are_those_of_each_round() {
        let shown = table(&[
            run(BASE, 100, 1),
            run("gannet-uring-kernel", 50, 1),
            run(BASE, 200, 1),
            run("gannet-uring-kernel", 180, 1),
            run(BASE, 300, 1),
            run("gannet-uring-kernel", 180, 1),
        ]);
        let shown = shown.expect("complete");
        assert!(shown.contains("ratio to nginx 0.60 (0.50-0.90)"), "{shown}");
    }

    #[test]
    fn what_the_kernel_did_not_encrypt_is_no_result() {
        assert!(table(&[run(BASE, 100, 0)]).is_err());
        assert!(table(&[run(BASE, 100, 1), run("nginx-user", 100, 1)]).is_err());
        assert!(table(&[run("nginx-user", 100, 0)]).is_err());
    }
}
