//! The server behind `gannet dev`: the usual one, at a Unix socket that only this user can reach.
//!
//! It caches for moments, as a server of a live directory does. So after each change another one
//! takes its place, which has seen nothing of what was before; that takes a few milliseconds.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use gannet_io::unix_socket::Access;
use gannet_server::config::{
    Config, Content, ContentOptions, Hosted, ListenAddress, Scheme, UnixAddress,
};
use gannet_server::{Running, StartError};

/// The folder of the sockets, removed on drop.
pub(super) struct Sockets(PathBuf);

impl Sockets {
    pub(super) fn new() -> io::Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let nonce = now.map_or(0, |it| it.as_nanos() as u64);
        let name = format!("gannet-dev-{}-{nonce:x}", std::process::id());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Sockets {
    /// Connections may hold the server until the process ends, so that dropping is not enough.
    fn remove(&self) {
        // What is left is a folder without content.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The one that serves now.
pub(super) struct Server {
    sockets: Sockets,
    folder: PathBuf,
    content: ContentOptions,
    current: Mutex<Option<Current>>,
}

struct Current {
    number: u64,
    socket: Arc<Path>,
    running: Running,
}

impl Server {
    pub(super) fn new(folder: &Path, content: ContentOptions) -> io::Result<Self> {
        Ok(Self {
            sockets: Sockets::new()?,
            folder: folder.to_path_buf(),
            content,
            current: Mutex::new(None),
        })
    }

    /// Serves the folder as it is now. Rules that cannot be used are left out, and returned as an
    /// error in the inner result.
    ///
    /// # Errors
    /// Nothing new is served: the one before goes on.
    pub(super) fn renew(&self) -> Result<Result<(), StartError>, StartError> {
        let first = match self.start(self.content.clone()) {
            Ok(()) => return Ok(Ok(())),
            Err(error) => error,
        };
        let mut without = self.content.clone();
        if without.routing.rules.take().is_none() {
            return Err(first);
        }
        self.start(without).map(|()| Err(first))
    }

    fn start(&self, content: ContentOptions) -> Result<(), StartError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let number = current.as_ref().map_or(0, |it| it.number + 1);
        let socket = self.sockets.0.join(number.to_string());
        let address = ListenAddress::Unix(UnixAddress {
            path: socket.clone(),
            access: Access::default(),
        });
        let bound = gannet_server::bind(&address, Scheme::Http, 1)
            .map_err(|error| StartError::Listen(address, error))?;
        let config = Config {
            workers: 1,
            content,
            ..Config::default()
        };
        let hosted = Hosted {
            hosts: Vec::new(),
            content: Content::Directory(self.folder.clone()),
        };
        let running = gannet_server::prepare(config, vec![hosted], vec![bound])?.serve()?;
        let before = current.replace(Current {
            number,
            socket: socket.into(),
            running,
        });
        drop(current);
        if let Some(Current { running, .. }) = before {
            running.stop();
            // Answers in progress end in their own time.
            thread::spawn(move || running.wait());
        }
        Ok(())
    }

    /// A connection to the one that serves now.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        let socket = || {
            let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            let socket = current.as_ref().map(|it| Arc::clone(&it.socket));
            socket.ok_or(io::ErrorKind::NotConnected)
        };
        // The one that was current a moment ago may be gone.
        UnixStream::connect(socket()?).or_else(|_| UnixStream::connect(socket()?))
    }

    /// Ends at once, and leaves nothing behind.
    pub(super) fn stop(&self) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Current { running, .. }) = current.take() {
            running.stop_now();
            running.wait();
        }
        self.sockets.remove();
    }
}
