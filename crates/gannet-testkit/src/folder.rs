//! Folders for tests, and sites in them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary folder, removed on drop.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Folder {
    /// An empty folder.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("gannet-test-{}-{count}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // Left by a test that was killed, whose process had the same number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot make '{}': {error}", path.display()),
            }
        }
    }

    /// A small site: pages, an asset, an empty file, a folder with an index, equal files.
    pub fn site() -> Self {
        let folder = Self::new();
        folder.write(
            "index.html",
            "<!doctype html><title>home</title><p>hello\n".repeat(40),
        );
        folder.write("about.html", "<!doctype html><title>about</title>\n");
        folder.write("404.html", "<!doctype html><title>nothing here</title>\n");
        folder.write("assets/app.css", "body { margin: 0 }\n".repeat(200));
        folder.write("assets/copy.css", "body { margin: 0 }\n".repeat(200));
        folder.write("assets/empty.txt", "");
        folder.write("docs/index.html", "<!doctype html><title>docs</title>\n");
        folder
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The full path of an item in it.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// Writes a file and creates missing parent folders; returns its full path.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(path);
        let parent = path.parent().expect("it is below the folder");
        fs::create_dir_all(parent).expect("the folder can be made");
        fs::write(&path, content).expect("the file can be written");
        path
    }

    /// All regular files below it: relative paths with contents, sorted.
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("readable") {
                let path = entry.expect("readable").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let content = fs::read(&path).expect("readable");
                    let path = path.strip_prefix(&self.0).expect("below").to_owned();
                    files.push((path, content));
                }
            }
        }
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Leftovers in a temporary directory do no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}
