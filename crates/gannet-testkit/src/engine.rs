//! Runs a test on both engines.

use std::sync::OnceLock;

use crate::{Folder, Gannet, left_out};

/// An engine, as its flag names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Engine {
    /// io_uring.
    Uring,
    /// epoll.
    Epoll,
}

impl Engine {
    /// The value of `--engine`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uring => "io_uring",
            Self::Epoll => "epoll",
        }
    }

    /// Serves a path on a free port, with additional flags.
    pub fn serve(self, path: impl AsRef<std::path::Path>, flags: &[&str]) -> Gannet {
        let flags: Vec<&str> = ["--engine", self.name()]
            .into_iter()
            .chain(flags.iter().copied())
            .collect();
        Gannet::serve(path, &flags)
    }
}

/// Runs a test body on both engines concurrently: most of a test is waiting.
pub fn on_both_engines(test: impl Fn(Engine) + Sync) {
    let test = &test;
    // Each thread has the test's name, which appears in messages about skips and failures.
    let name = std::thread::current().name().unwrap_or("test").to_owned();
    std::thread::scope(|scope| {
        let begin = |engine| {
            let thread = std::thread::Builder::new().name(name.clone());
            let thread = thread.spawn_scoped(scope, move || test(engine));
            thread.expect("one more thread")
        };
        let epoll = begin(Engine::Epoll);
        let uring = has_uring().then(|| begin(Engine::Uring));
        let epoll = epoll.join();
        let uring = uring.map_or(Ok(()), std::thread::ScopedJoinHandle::join);
        assert!(epoll.is_ok(), "it failed on the epoll engine");
        assert!(uring.is_ok(), "it failed on the io_uring engine");
    });
}

/// Whether gannet can use io_uring on this machine; if not, tests that need it are left out.
pub fn has_uring() -> bool {
    static WHY_NOT: OnceLock<Option<String>> = OnceLock::new();
    let why_not = WHY_NOT.get_or_init(|| {
        let folder = Folder::new();
        let server = Gannet::serve(folder.path(), &["--engine", "auto"]);
        let lines = server.start_lines();
        let is_uring = |line: &String| line.starts_with("engine   io_uring");
        if lines.iter().any(is_uring) {
            return None;
        }
        let mut lines = lines.iter();
        let why = lines.find_map(|line| Some(line.split_once("not io_uring: ")?.1.to_owned()));
        Some(why.expect("a reason is given"))
    });
    match why_not {
        None => true,
        Some(why) => {
            left_out("io_uring", why);
            false
        }
    }
}
