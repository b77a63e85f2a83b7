//! The tar of an image, written from front to back: what names a blob follows it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use aws_lc_rs::digest::{Context, Digest, SHA256};
use flate2::{Compression, GzBuilder};
use gannet_http::semantics::date::write_timestamp;
use serde_json::{Value, json};
use tar::EntryType;

use super::BundleError;
use super::layer::{BLOCK, Layer, USER, header};
use super::name::ImageName;
use crate::archive::{ArchiveFile, hex, verify_open};
use crate::pack::Temporary;

/// What the header of a tar has, and where.
const TAR_MAGIC: &[u8] = b"ustar";
const TAR_MAGIC_OFFSET: usize = 257;

/// How the name of the first file of an image begins, with which its tar begins: a blob, as here, or
/// what others write first.
const FIRST: [&[u8]; 2] = [b"blobs/", b"oci-layout\0"];

const NANOSECONDS: u64 = 1_000_000_000;

/// An image that is being written.
pub(super) struct Image {
    temporary: Temporary,
    file: File,
    time: u64,
}

/// A blob of an image.
pub(super) struct Blob {
    kind: &'static str,
    /// SHA-256 in hexadecimal.
    digest: String,
    len: u64,
    /// Of a layer: the digest of its tar, which is this blob, compressed or not.
    tar: String,
}

/// What an image has.
pub(super) struct Contents {
    /// The version of its program.
    pub(super) version: Option<&'static str>,
    /// The processor that it is for.
    pub(super) machine: &'static str,
    pub(super) has_site: bool,
}

impl Image {
    /// Begins an image that will become `target`, which is refused if it is there and no image: a
    /// mistyped name would destroy it.
    pub(super) fn create(target: &Path, time: u64) -> Result<Self, BundleError> {
        if !may_be_replaced(target).map_err(BundleError::io("read", target))? {
            return Err(BundleError::Foreign(target.to_path_buf()));
        }
        let created = Temporary::create(target);
        let (temporary, file) = created.map_err(BundleError::io("write", target))?;
        Ok(Self {
            temporary,
            file,
            time,
        })
    }

    /// Adds a layer as it is, whose last file is an archive: that of this path. Whatever is wrong with it is
    /// found here rather than on the machines that serve it; and what is verified is the copy, since the
    /// archive itself may be written to meanwhile.
    pub(super) fn add(&mut self, layer: Layer, archive: &Path) -> Result<Blob, BundleError> {
        let start = self.begin()?;
        let time = self.time;
        let target = self.temporary.target();
        let mut out = Digesting::new(BufWriter::new(&self.file));
        let place = layer.write(&mut out, target, time)?;
        let (flushed, digest, len) = out.finish();
        flushed.map_err(BundleError::io("write", target))?;
        let copy = self.file.try_clone();
        let copy = copy.map_err(BundleError::io("read", target))?;
        let place = (start + BLOCK + place.start, place.end - place.start);
        verify_open(&ArchiveFile::within(archive, copy, place)?)?;
        let digest = hex(digest.as_ref());
        self.end(start, &blob_path(&digest), len)?;
        Ok(Blob {
            kind: "layer.v1.tar",
            tar: digest.clone(),
            digest,
            len,
        })
    }

    /// Adds a layer that is small enough to be compressed in memory.
    pub(super) fn add_compressed(&mut self, layer: Layer) -> Result<Blob, BundleError> {
        let (target, time) = (self.temporary.target(), self.time);
        // Neither a name nor a time.
        let encoder = GzBuilder::new().write(Vec::new(), Compression::best());
        let mut out = Digesting::new(encoder);
        layer.write(&mut out, target, time)?;
        let bytes = out.inner.finish();
        let bytes = bytes.map_err(BundleError::io("write", target))?;
        let tar = hex(out.context.finish().as_ref());
        let blob = self.add_bytes("layer.v1.tar+gzip", &bytes)?;
        Ok(Blob { tar, ..blob })
    }

    /// Adds what describes the image. Returns the digest of its manifest.
    pub(super) fn describe(
        &mut self,
        name: &ImageName,
        contents: &Contents,
        layers: &[Blob],
    ) -> Result<String, BundleError> {
        let moment = i64::try_from(self.time).unwrap_or(i64::MAX);
        let moment = write_timestamp(moment);
        let moment = str::from_utf8(&moment).expect("ASCII");
        let configuration = text(&configuration(contents, layers, moment));
        let configuration = self.add_bytes("config.v1+json", &configuration)?;
        let manifest = text(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": configuration.descriptor(),
            "layers": layers.iter().map(Blob::descriptor).collect::<Vec<_>>(),
        }));
        let manifest = self.add_bytes("manifest.v1+json", &manifest)?;
        let mut described = manifest.descriptor();
        described["platform"] = json!({"architecture": contents.machine, "os": "linux"});
        described["annotations"] = json!({
            "org.opencontainers.image.ref.name": name.tag,
            "io.containerd.image.name": name.complete(),
        });
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [described],
        });
        let of_docker = json!([{
            "Config": configuration.path(),
            "RepoTags": [name.to_string()],
            "Layers": layers.iter().map(Blob::path).collect::<Vec<_>>(),
        }]);
        self.add_file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        self.add_file("index.json", &text(&index))?;
        self.add_file("manifest.json", &text(&of_docker))?;
        Ok(manifest.digest)
    }

    /// Ends the tar, and gives the file its name. Returns its length.
    pub(super) fn publish(mut self) -> Result<u64, BundleError> {
        let target = self.temporary.target().to_path_buf();
        let refuse = |error| BundleError::io("write", &target)(error);
        // Two empty blocks end a tar.
        self.file
            .write_all(&[0; 2 * BLOCK as usize])
            .map_err(refuse)?;
        let len = self.file.stream_position().map_err(refuse)?;
        self.temporary.publish(&self.file).map_err(refuse)?;
        Ok(len)
    }

    fn add_bytes(&mut self, kind: &'static str, bytes: &[u8]) -> Result<Blob, BundleError> {
        let digest = aws_lc_rs::digest::digest(&SHA256, bytes);
        let blob = Blob {
            kind,
            digest: hex(digest.as_ref()),
            len: bytes.len() as u64,
            tar: String::new(),
        };
        self.add_file(&blob.path(), bytes)?;
        Ok(blob)
    }

    fn add_file(&mut self, path: &str, bytes: &[u8]) -> Result<(), BundleError> {
        let start = self.begin()?;
        let written = self.file.write_all(bytes);
        written.map_err(BundleError::io("write", self.temporary.target()))?;
        self.end(start, path, bytes.len() as u64)
    }

    /// Leaves room for a header; returns where.
    fn begin(&mut self) -> Result<u64, BundleError> {
        let start = self.file.stream_position();
        let begun = start.and_then(|start| {
            self.file.write_all(&[0; BLOCK as usize])?;
            Ok(start)
        });
        begun.map_err(BundleError::io("write", self.temporary.target()))
    }

    /// Writes the header of a file that is complete, and what pads it.
    fn end(&mut self, start: u64, path: &str, len: u64) -> Result<(), BundleError> {
        let time = self.time;
        let mut end = || {
            let mut header = header(EntryType::Regular, 0o644, time);
            header.set_path(path)?;
            header.set_size(len);
            header.set_cksum();
            self.file.seek(SeekFrom::Start(start))?;
            self.file.write_all(header.as_bytes())?;
            self.file.seek(SeekFrom::Start(start + BLOCK + len))?;
            let padding = usize::try_from(len.next_multiple_of(BLOCK) - len).unwrap_or(0);
            self.file.write_all(&[0; BLOCK as usize][..padding])
        };
        end().map_err(BundleError::io("write", self.temporary.target()))
    }
}

impl Blob {
    fn path(&self) -> String {
        blob_path(&self.digest)
    }

    /// How others refer to it (image-spec, descriptor).
    fn descriptor(&self) -> Value {
        json!({
            "mediaType": format!("application/vnd.oci.image.{}", self.kind),
            "digest": format!("sha256:{}", self.digest),
            "size": self.len,
        })
    }
}

fn blob_path(digest: &str) -> String {
    format!("blobs/sha256/{digest}")
}

/// How a container is started; flags are added as its arguments, or as variables. `Healthcheck` is
/// Docker's: OCI only reserves its place, and other runtimes ignore it.
fn configuration(contents: &Contents, layers: &[Blob], moment: &str) -> Value {
    let mut started = json!({});
    if let Some(version) = contents.version {
        let (path, folder) = match contents.has_site {
            true => ("/srv/site.gannet", "/srv"),
            false => ("/srv/www", "/srv/www"),
        };
        started = json!({
            "User": format!("{USER}:{USER}"),
            "ExposedPorts": {"8080/tcp": {}},
            "Env": [
                format!("GANNET_PATH={path}"),
                "GANNET_EXPOSE=true",
                "GANNET_PORT=8080",
                "GANNET_METRICS=127.0.0.1:9100",
            ],
            "Entrypoint": ["/usr/bin/gannet"],
            "Cmd": ["serve"],
            "WorkingDir": folder,
            "StopSignal": "SIGTERM",
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/gannet", "health"],
                "Interval": 30 * NANOSECONDS,
                "Timeout": 5 * NANOSECONDS,
                "StartPeriod": 5 * NANOSECONDS,
                "Retries": 3,
            },
        });
        if !contents.has_site {
            started["Labels"] = json!({
                "org.opencontainers.image.title": "gannet",
                "org.opencontainers.image.description": "static web server",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            });
        }
    }
    let tars: Vec<_> = layers
        .iter()
        .map(|it| format!("sha256:{}", it.tar))
        .collect();
    let history = json!({"created": moment, "created_by": "gannet bundle"});
    json!({
        "architecture": contents.machine,
        "os": "linux",
        "created": moment,
        "config": started,
        "rootfs": {"type": "layers", "diff_ids": tars},
        "history": vec![history; layers.len()],
    })
}

/// Whether a file is not there, empty, or the tar of an image. What is no file is refused later.
fn may_be_replaced(target: &Path) -> io::Result<bool> {
    if !fs::metadata(target).is_ok_and(|it| it.is_file() && it.len() > 0) {
        return Ok(true);
    }
    let mut header = [0; BLOCK as usize];
    match File::open(target)?.read_exact(&mut header) {
        Ok(()) => {
            let is_tar = header[TAR_MAGIC_OFFSET..].starts_with(TAR_MAGIC);
            Ok(is_tar && FIRST.iter().any(|name| header.starts_with(name)))
        }
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// Digests what is written.
struct Digesting<W> {
    inner: W,
    context: Context,
    len: u64,
}

impl<W: Write> Digesting<W> {
    fn new(inner: W) -> Self {
        Self {
            inner,
            context: Context::new(&SHA256),
            len: 0,
        }
    }

    /// Flushes; returns how that went, the digest and the length.
    fn finish(mut self) -> (io::Result<()>, Digest, u64) {
        (self.inner.flush(), self.context.finish(), self.len)
    }
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.context.update(&bytes[..count]);
        self.len += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
