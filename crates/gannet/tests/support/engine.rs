//! The same test over both engines.

use std::sync::OnceLock;

use super::{Folder, Gannet, command};

/// An engine, as its flag names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Engine {
    Uring,
    Epoll,
}

impl Engine {
    /// The value of `--engine`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        }
    }

    /// Serves a path on a free port, with more flags.
    pub fn serve(self, path: impl AsRef<std::path::Path>, flags: &[&str]) -> Gannet {
        let flags: Vec<&str> = ["--engine", self.name()]
            .into_iter()
            .chain(flags.iter().copied())
            .collect();
        Gannet::serve(path, &flags)
    }
}

/// Runs a test body on each engine, both at the same time: most of a test is waiting.
pub fn on_both_engines(test: impl Fn(Engine) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        let epoll = scope.spawn(move || test(Engine::Epoll));
        let uring = has_uring().then(|| scope.spawn(move || test(Engine::Uring)));
        let epoll = epoll.join();
        let uring = uring.map_or(Ok(()), std::thread::ScopedJoinHandle::join);
        assert!(epoll.is_ok(), "it failed on the epoll engine");
        assert!(uring.is_ok(), "it failed on the io_uring engine");
    });
}

/// Whether this machine lets gannet use io_uring; says why if not.
pub fn has_uring() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let folder = Folder::new();
        let mut command = command();
        command
            .args(["--port", "0", "--engine", "auto"])
            .arg(folder.path());
        let server = Gannet::start(&mut command);
        let lines = server.start_lines();
        if lines
            .iter()
            .any(|line| line.starts_with("engine   io_uring"))
        {
            return true;
        }
        let why = lines.iter().find(|line| line.contains("not io_uring"));
        println!(
            "skipped: the io_uring engine; {}",
            why.expect("a reason is given").trim()
        );
        false
    })
}
