//! Images for containers: of this program, of an archive, or of both.
//!
//! An image is one tar that is both an OCI image layout (image-spec 1.1) and what `docker load` takes.
//! It needs no daemon and no root to make. The archive is a layer of its own, above that of the
//! program, so that a new release of a site moves that layer only.
//!
//! ```text
//!  index.json ─▶ manifest ─┬─▶ config: user, port, health check, variables
//!                          ├─▶ layer: /usr/bin/gannet, licences, bill of materials
//!                          └─▶ layer: /srv/site.gannet
//! ```

mod error;
mod image;
mod layer;
mod name;

use std::path::{Path, PathBuf};

pub use error::BundleError;

use self::image::{Contents, Image};
use self::layer::{Layer, Member};
use self::name::ImageName;
use crate::archive::ArchiveFile;

/// What an image is made of.
#[derive(Clone, Debug)]
pub struct BundleOptions {
    /// The program, unless the image is only a volume.
    pub program: Option<Program>,
    /// The archive to serve.
    pub archive: Option<PathBuf>,
    /// The file to write.
    pub output: PathBuf,
    /// `NAME:TAG` as registries spell it; without a tag, `latest`.
    pub name: String,
    /// The time of every file and of the image, in Unix seconds. At most the year 9999.
    pub time: u64,
}

/// A program and its description.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its file: ELF, and without a dynamic linker, which an image does not have.
    pub file: PathBuf,
    /// Its version.
    pub version: &'static str,
    /// Its bill of materials, in CycloneDX JSON.
    pub bill: Vec<u8>,
    /// The texts of its licences.
    pub licences: Vec<u8>,
}

/// An image that was written.
#[derive(Clone, Debug)]
pub struct BundleReport {
    /// Its name with its tag.
    pub name: String,
    /// SHA-256 of its manifest in hexadecimal: what registries know it by.
    pub digest: String,
    /// Length of the file, bytes.
    pub len: u64,
}

/// Writes an image. The same program, archive, name and time make the same bytes. The file appears
/// under its name when it is complete, and replaces an earlier one.
///
/// # Errors
/// The archive is damaged or the program cannot be used, the name is not one of an image, the file is
/// there and no image, or the system refuses something. An earlier file is untouched then.
pub fn bundle(options: &BundleOptions) -> Result<BundleReport, BundleError> {
    let name = ImageName::parse(&options.name)?;
    let site = options.archive.as_deref();
    let site = site.map(|path| Ok::<_, BundleError>((path, site_layer(path, options)?)));
    let site = site.transpose()?;
    let program = options.program.as_ref().map(layer::of_program);
    let program = program.transpose()?;
    let mut image = Image::create(&options.output, options.time)?;
    let contents = Contents {
        version: options.program.as_ref().map(|it| it.version),
        machine: program.as_ref().map_or(NATIVE, |(_, machine)| *machine),
        has_site: site.is_some(),
    };
    let mut layers = Vec::new();
    if let Some((layer, _)) = program {
        layers.push(image.add_compressed(layer)?);
    }
    if let Some((path, layer)) = site {
        layers.push(image.add(layer, path)?);
    }
    let digest = image.describe(&name, &contents, &layers)?;
    let len = image.publish()?;
    Ok(BundleReport {
        name: name.to_string(),
        digest,
        len,
    })
}

/// The layer of an archive. What it stores is compressed already.
fn site_layer(path: &Path, options: &BundleOptions) -> Result<Layer, BundleError> {
    let archive = ArchiveFile::open(path)?;
    let same = std::fs::canonicalize(&options.output).ok();
    if same.is_some() && same == std::fs::canonicalize(path).ok() {
        return Err(BundleError::Itself(path.to_path_buf()));
    }
    let file = archive.into_file();
    let (file, len) = file.map_err(BundleError::io("read", path))?;
    let name = match options.program {
        Some(_) => "srv/site.gannet",
        // The operator who mounts the volume chooses the folder.
        None => "site.gannet",
    };
    Ok(Layer(vec![Member::from_file(
        name,
        path.to_path_buf(),
        file,
        len,
    )]))
}

/// The processor that this program was built for, in the words of images (Go's `GOARCH`).
const NATIVE: &str = match std::env::consts::ARCH.as_bytes() {
    b"aarch64" => "arm64",
    _ => "amd64",
};

#[cfg(test)]
mod tests;
