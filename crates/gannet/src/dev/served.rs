//! The server behind `gannet dev`: the usual one, at a Unix socket without a file.
//!
//! It caches for moments, as a server of a live directory does. So after each change another one
//! takes its place, which has seen nothing of what was before; that takes a few milliseconds.
//!
//! Programs of other users on this machine can connect to the socket, as they can to the port.

use std::io;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use gannet_io::unix_socket::Access;
use gannet_server::config::{
    Config, Content, ContentOptions, Hosted, ListenAddress, SandboxChoice, UnixAddress,
};
use gannet_server::{Inheritance, Running, StartError, bind_unnamed};

/// The one that serves now.
pub(super) struct CurrentServer {
    folder: PathBuf,
    content: ContentOptions,
    current: Mutex<Option<Current>>,
}

struct Current {
    socket: SocketAddr,
    running: Running,
}

impl CurrentServer {
    pub(super) fn new(folder: &Path, content: ContentOptions) -> Self {
        Self {
            folder: folder.to_path_buf(),
            content,
            current: Mutex::new(None),
        }
    }

    /// Serves the folder as it is now. Rules that cannot be used are left out, and returned as an
    /// error in the inner result.
    ///
    /// # Errors
    /// Nothing new is served: the one before continues.
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
        let mut current = self.current();
        let (bound, socket) = bind_unnamed().map_err(|error| {
            let path = PathBuf::from("(no file)");
            let access = Access::default();
            StartError::Listen(ListenAddress::Unix(UnixAddress { path, access }), error)
        })?;
        let config = Config {
            workers: 1,
            content,
            // This process runs the site's own commands.
            sandbox: SandboxChoice::Off,
            ..Config::default()
        };
        let hosted = Hosted {
            hosts: Vec::new(),
            content: Content::Directory(self.folder.clone()),
            entry: None,
        };
        let running =
            gannet_server::prepare(config, vec![hosted], vec![bound], Inheritance::default())?
                .serve()?;
        let before = current.replace(Current { socket, running });
        drop(current);
        if let Some(Current { mut running, .. }) = before {
            running.stop();
            // Answers in progress end in their own time.
            thread::spawn(move || running.wait());
        }
        Ok(())
    }

    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to the one that serves now.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        // Locked until it is connected: the kernel may give the address of one that has ended to
        // another program.
        let current = self.current();
        let current = current.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        UnixStream::connect_addr(&current.socket)
    }

    /// Ends at once.
    pub(super) fn stop(&self) {
        if let Some(Current { mut running, .. }) = self.current().take() {
            running.stop_now();
            running.wait();
        }
    }
}
