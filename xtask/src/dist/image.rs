//! The container image: one tar that is both an OCI layout and what `docker load` takes.
//!
//! It has one layer and no shell. `HEALTHCHECK` is Docker's: OCI only reserves its place in the
//! configuration, and other runtimes ignore it.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value, json};

use super::archive::{self, Entry};
use super::stage::Stage;
use super::{Release, digest, write};
use crate::process;

/// A user without rights, by a number that other images without a distribution use as well.
const USER: u32 = 65_532;

const NANOSECONDS: u64 = 1_000_000_000;

pub(super) fn make(release: &Release, stage: &Stage) -> Result<PathBuf> {
    let name = format!("gannet:{}", release.version);
    let layer = archive::tar(&layer(stage), release.date)?;
    let compressed = archive::compress(&layer)?;
    let seconds = format!("@{}", release.date);
    let date = process::output("date", &["-u", "-d", &seconds, "+%Y-%m-%dT%H:%M:%SZ"])?;
    let config = serde_json::to_vec(&configuration(release, &digest(&layer), &date))?;
    let blob = |kind: &str, bytes: &[u8]| {
        json!({
            "mediaType": format!("application/vnd.oci.image.{kind}"),
            "digest": format!("sha256:{}", digest(bytes)),
            "size": bytes.len(),
        })
    };
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob("config.v1+json", &config),
        "layers": [blob("layer.v1.tar+gzip", &compressed)],
    }))?;
    let mut described = blob("manifest.v1+json", &manifest);
    described["platform"] = json!({"architecture": "amd64", "os": "linux"});
    described["annotations"] = json!({
        "org.opencontainers.image.ref.name": release.version,
        "io.containerd.image.name": format!("docker.io/library/{name}"),
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described],
    });
    let path = |bytes: &[u8]| format!("blobs/sha256/{}", digest(bytes));
    let of_docker = json!([{
        "Config": path(&config),
        "RepoTags": [name],
        "Layers": [path(&compressed)],
    }]);
    let file = |path: &str, content: &[u8]| Entry::file(path, 0o644, content);
    let entries = [
        file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#),
        file("index.json", &serde_json::to_vec(&index)?),
        file("manifest.json", &serde_json::to_vec(&of_docker)?),
        file(&path(&config), &config),
        file(&path(&manifest), &manifest),
        file(&path(&compressed), &compressed),
    ];
    let image = archive::tar(&entries, release.date)?;
    let file = format!("gannet-{}-image.tar", release.version);
    write(release, &file, &image)
}

/// The root of a container.
fn layer(stage: &Stage) -> Vec<Entry> {
    let users = format!("root:x:0:0::/:/sbin/nologin\ngannet:x:{USER}:{USER}::/:/sbin/nologin\n");
    let groups = format!("root:x:0:\ngannet:x:{USER}:\n");
    vec![
        Entry::file("etc/passwd", 0o644, users),
        Entry::file("etc/group", 0o644, groups),
        Entry::folder("srv/www"),
        Entry::file("usr/bin/gannet", 0o755, stage.program.clone()),
        Entry::file(
            "usr/share/doc/gannet/gannet.cdx.json",
            0o644,
            stage.bill.clone(),
        ),
        Entry::file(
            "usr/share/doc/gannet/licenses.txt",
            0o644,
            stage.licences.clone(),
        ),
    ]
}

/// How a container is started. Flags are added as its arguments, or as variables.
fn configuration(release: &Release, layer: &str, date: &str) -> Value {
    json!({
        "architecture": "amd64",
        "os": "linux",
        "created": date,
        "config": {
            "User": format!("{USER}:{USER}"),
            "ExposedPorts": {"8080/tcp": {}},
            "Env": [
                "GANNET_PATH=/srv/www",
                "GANNET_EXPOSE=true",
                "GANNET_PORT=8080",
                "GANNET_METRICS=127.0.0.1:9100",
            ],
            "Entrypoint": ["/usr/bin/gannet"],
            "Cmd": ["serve"],
            "WorkingDir": "/srv/www",
            "StopSignal": "SIGTERM",
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/gannet", "health"],
                "Interval": 30 * NANOSECONDS,
                "Timeout": 5 * NANOSECONDS,
                "StartPeriod": 5 * NANOSECONDS,
                "Retries": 3,
            },
            "Labels": {
                "org.opencontainers.image.title": "gannet",
                "org.opencontainers.image.description": "static web server",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
        "history": [{"created": date, "created_by": "cargo xtask dist"}],
    })
}
