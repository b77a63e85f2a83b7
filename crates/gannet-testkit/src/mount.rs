//! File systems that a test mounts for itself. Takes root, loop devices, and the programs that make them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Folder, left_out, run, tool};

/// A file system that is mounted in a folder, until it is dropped.
pub struct Mount {
    folder: Folder,
    path: PathBuf,
}

impl Mount {
    /// Mounts what `make` has put into the file `image`, or nothing. `None` if this machine has no such thing.
    fn new(kind: &str, options: &str, make: impl FnOnce(&Path)) -> Option<Self> {
        let folder = Folder::new();
        let (path, image) = (folder.join("mounted"), folder.join("image"));
        fs::create_dir(&path).expect("made");
        fs::write(&image, "").expect("made");
        make(&image);
        let mut mount = Command::new("mount");
        mount.args(["-t", kind, "-o", options]).arg(&image);
        let ended = run(mount.arg(&path));
        if ended.status == Some(0) {
            return Some(Self { folder, path });
        }
        left_out(
            "mounting file systems",
            format!("{kind}: {}", ended.err.trim()),
        );
        None
    }

    /// In memory.
    pub fn tmpfs() -> Option<Self> {
        Self::new("tmpfs", "size=64m", |_| {})
    }

    /// With these features, each of which begins with a comma.
    pub fn ext4(features: &str) -> Option<Self> {
        Self::filled_ext4(features, |_| {})
    }

    /// With so many copies of a file, `0.bin` and so on, none of which has changed for years: a file that has changed
    /// within a minute is not sent as pages.
    pub fn old_files(count: usize, content: &[u8]) -> Option<Self> {
        if !tool("debugfs", &["-V"]) {
            return None;
        }
        Self::filled_ext4("", |image| {
            let folder = Folder::new();
            let file = folder.write("content", content);
            let commands = (0..count).map(|number| {
                let write = format!("write {} {number}.bin", file.display());
                let set = |time| format!("set_inode_field {number}.bin {time} 20200101");
                [write, set("mtime"), set("ctime")].join("\n")
            });
            let commands = commands.collect::<Vec<_>>().join("\n");
            let commands = folder.write("commands", commands + "\n");
            must(
                Command::new("debugfs")
                    .args(["-w", "-f"])
                    .arg(commands)
                    .arg(image),
            );
        })
    }

    fn filled_ext4(features: &str, fill: impl FnOnce(&Path)) -> Option<Self> {
        if !tool("mkfs.ext4", &["-V"]) {
            return None;
        }
        Self::new("ext4", "loop", |image| {
            let file = fs::File::options().write(true).open(image);
            file.and_then(|file| file.set_len(192 << 20)).expect("ours");
            let features = format!("extent{features}");
            must(
                Command::new("mkfs.ext4")
                    .args(["-q", "-F", "-b", "4096", "-O"])
                    .arg(features)
                    .arg(image),
            );
            fill(image);
        })
    }

    /// With the files of a folder, and their times.
    pub fn erofs(of: &Folder) -> Option<Self> {
        if !tool("mkfs.erofs", &["--help"]) {
            return None;
        }
        Self::new("erofs", "loop,ro", |image| {
            let mut make = Command::new("mkfs.erofs");
            must(make.arg("--quiet").arg(image).arg(of.path()));
        })
    }

    /// The same.
    pub fn squashfs(of: &Folder) -> Option<Self> {
        if !tool("mksquashfs", &["-version"]) {
            return None;
        }
        Self::new("squashfs", "loop,ro", |image| {
            let mut make = Command::new("mksquashfs");
            make.arg(of.path()).arg(image);
            must(make.args(["-noappend", "-quiet", "-no-progress"]));
        })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The file that it is in.
    pub fn image(&self) -> PathBuf {
        self.folder.join("image")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Of a failed test a server may still be at work.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

fn must(command: &mut Command) {
    let ended = run(command.stdin(Stdio::null()));
    assert_eq!(ended.status, Some(0), "{}", ended.err);
}
