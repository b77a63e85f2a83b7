//! Runs the command of `--build`: in a process group of its own, so that all of it can be ended: also what
//! a build has left in the background, when the next one begins and at the end.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};

use super::limits::{OUTPUT_SHOWN, STOP_PATIENCE};
use super::state::Problem;

/// The builds of a run, one after the other.
#[derive(Clone)]
pub(super) struct Builds {
    command: String,
    last: Arc<Mutex<Option<Last>>>,
    /// Set before the last one is stopped.
    is_stopping: Arc<AtomicBool>,
}

/// The build that began last.
struct Last {
    /// The shell. Until it is waited for, its process group cannot be another's.
    shell: Child,
    group: Pid,
    is_over: bool,
}

impl Last {
    /// Ends what is left of it.
    fn end(mut self) {
        // None left is no error.
        let _ = kill_process_group(self.group, Signal::KILL);
        let _ = self.shell.wait();
    }
}

/// What became of a build.
pub(super) struct Built {
    pub(super) problem: Option<Problem>,
    pub(super) took: Duration,
}

/// How long to wait for the rest of the output, which processes in the background may hold open.
const REST: Duration = Duration::from_millis(500);

impl Builds {
    pub(super) fn new(command: String) -> Self {
        Self {
            command,
            last: Arc::default(),
            is_stopping: Arc::default(),
        }
    }

    /// Runs the command; calls `ended` on another thread.
    pub(super) fn begin(&self, ended: impl FnOnce(Built) + Send + 'static) {
        let builds = self.clone();
        let run = move || {
            let started = Instant::now();
            let problem = builds.run().unwrap_or_else(|error| {
                Some(Problem {
                    title: "The build cannot be run".into(),
                    text: format!("{}\n{error}", builds.command),
                })
            });
            let took = started.elapsed();
            ended(Built { problem, took });
        };
        thread::spawn(run);
    }

    fn last(&self) -> MutexGuard<'_, Option<Last>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) -> io::Result<Option<Problem>> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.command).process_group(0);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (group, out, err) = {
            let mut last = self.last();
            if let Some(before) = last.take() {
                before.end();
            }
            if self.is_stopping.load(Ordering::SeqCst) {
                return Ok(None);
            }
            let mut shell = command.spawn()?;
            let (out, err) = (shell.stdout.take(), shell.stderr.take());
            let group = Pid::from_child(&shell);
            *last = Some(Last {
                shell,
                group,
                is_over: false,
            });
            (group, out, err)
        };
        let (output, errors) = (Tail::default(), Tail::default());
        let out = pass(out, io::stdout(), vec![output.clone()]);
        let err = pass(err, io::stderr(), vec![output.clone(), errors.clone()]);
        let status = self.wait(group)?;
        for reader in [out, err] {
            // It ends by itself once nothing holds the pipe.
            let _ = reader.recv_timeout(REST);
        }
        let how = match (status.exit_status(), status.terminating_signal()) {
            (Some(0), _) => return Ok(None),
            (Some(code @ (126 | 127)), _) => {
                format!("exit status {code}{}", last_words(&errors.text()))
            }
            (Some(code), _) => format!("exit status {code}"),
            (None, signal) => format!("ended by signal {}", signal.unwrap_or_default()),
        };
        Ok(Some(Problem {
            title: format!("The build failed ({how})"),
            text: format!("$ {}\n{}", self.command, output.text()),
        }))
    }

    /// Waits for the shell, and leaves it as it is.
    fn wait(&self, shell: Pid) -> io::Result<WaitIdStatus> {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = loop {
            match waitid(WaitId::Pid(shell), ended) {
                Ok(Some(status)) => break status,
                Ok(None) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        if let Some(last) = &mut *self.last() {
            last.is_over = true;
        }
        Ok(status)
    }

    /// Ends the last build with everything that it started.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        let until = Instant::now() + STOP_PATIENCE;
        self.signal(Signal::TERM);
        while self.is_running() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        self.kill();
    }

    /// Ends it without patience.
    pub(super) fn kill(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        self.signal(Signal::KILL);
    }

    fn is_running(&self) -> bool {
        self.last().as_ref().is_some_and(|last| !last.is_over)
    }

    fn signal(&self, signal: Signal) {
        if let Some(last) = &*self.last() {
            // None left is no error.
            let _ = kill_process_group(last.group, signal);
        }
    }
}

/// The end of what was written.
#[derive(Clone, Default)]
struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    fn extend(&self, bytes: &[u8]) {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(bytes);
        let excess = tail.len().saturating_sub(OUTPUT_SHOWN);
        tail.drain(..excess);
    }

    fn text(&self) -> String {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plain(tail.make_contiguous())
    }
}

/// Passes output on, and keeps the end of it. The receiver ends with the output.
fn pass(
    from: Option<impl Read + Send + 'static>,
    mut to: impl Write + Send + 'static,
    tails: Vec<Tail>,
) -> Receiver<()> {
    let (end, ended) = mpsc::channel::<()>();
    thread::spawn(move || {
        let _end = end;
        let mut chunk = [0; 8 << 10];
        let Some(mut from) = from else {
            return;
        };
        while let Ok(count @ 1..) = from.read(&mut chunk) {
            // A terminal that is gone does not end the build.
            let _ = to.write_all(&chunk[..count]).and_then(|()| to.flush());
            for tail in &tails {
                tail.extend(&chunk[..count]);
            }
        }
    });
    ended
}

/// What a shell says last, on standard error, of a command that is not there (127) or cannot be run (126): each
/// shell and language has its own words, and all of them name the command. Standard output, which is read by
/// another thread, may come before or after them.
fn last_words(errors: &str) -> String {
    const LETTERS_MAX: usize = 200;
    let last = errors.lines().rev().find(|line| !line.trim().is_empty());
    let last: Option<String> = last.map(|line| line.trim().chars().take(LETTERS_MAX).collect());
    last.map_or(String::new(), |line| format!(": {line}"))
}

/// Output without the colours of terminals.
fn plain(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' if letters.as_str().starts_with('[') => {
                letters.next();
                let _ = letters.find(|it| ('@'..='~').contains(it));
            }
            '\n' | '\t' => plain.push(letter),
            _ if letter.is_control() => {}
            _ => plain.push(letter),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use gannet_testkit::process::until_gone;

    use super::*;

    fn run(command: &str) -> Option<Problem> {
        let (send, ended) = mpsc::channel();
        Builds::new(command.into()).begin(move |built| {
            let _ = send.send(built.problem);
        });
        ended
            .recv_timeout(Duration::from_secs(20))
            .expect("it ends")
    }

    #[test]
    fn a_build_that_fails_is_shown_with_its_output() {
        assert_eq!(run("true"), None);
        let problem = run("printf 'o%s\\n' ne; printf '\\033[31mt%s\\033[0m' wo >&2; exit 3");
        let problem = problem.expect("it fails");
        assert_eq!(problem.title, "The build failed (exit status 3)");
        assert!(problem.text.starts_with("$ printf"), "{problem:?}");
        assert!(problem.text.contains("one") && problem.text.contains("two"));
        assert!(!problem.text.contains('\x1b'), "{problem:?}");
        let problem = run("echo of-the-build; no-such-generator --minify").expect("it fails");
        let title = problem.title;
        assert!(title.starts_with("The build failed (exit status 127: "));
        assert!(title.contains("no-such-generator") && !title.contains("of-the-build"));
        let problem = run("/dev/null").expect("it fails");
        let title = problem.title;
        assert!(
            title.starts_with("The build failed (exit status 126: ") && title.contains("/dev/null")
        );
        assert_eq!(
            run("exit 127").expect("it fails").title,
            "The build failed (exit status 127)"
        );
        let problem = run("kill -9 $$").expect("it fails");
        assert_eq!(problem.title, "The build failed (ended by signal 9)");
        // Something stays in the background, with the output open.
        let problem = run("sleep 2 & seq 20000; exit 1").expect("it fails");
        assert!(problem.text.len() < OUTPUT_SHOWN + 100 && problem.text.contains("20000"));
    }

    /// Runs a script, whose BEGUN is a file that it makes, and stops it then.
    fn stopped(name: &str, script: &str) -> Problem {
        let begun = std::env::temp_dir().join(format!("gannet-{name}-{}", std::process::id()));
        let script = script.replace("BEGUN", &begun.display().to_string());
        let builds = Builds::new(script);
        let (send, ended) = mpsc::channel();
        builds.begin(move |built| {
            let _ = send.send(built.problem);
        });
        while !begun.exists() {
            thread::yield_now();
        }
        std::fs::remove_file(&begun).expect("it is there");
        builds.stop();
        let problem = ended.recv_timeout(Duration::from_secs(20));
        problem.expect("it ends").expect("it was stopped")
    }

    #[test]
    fn a_build_is_stopped_with_what_it_started() {
        let script = "trap '' TERM; : > BEGUN; sleep 1000 & wait; sleep 1000";
        let problem = stopped("build", script);
        assert!(problem.title.contains("signal 9"));
    }

    #[test]
    fn what_outlives_the_shell_is_stopped_too() {
        let script = "(trap '' TERM; : > BEGUN; exec sleep 1000) & echo $!; wait";
        let text = stopped("outlives", script).text;
        until_gone(text.lines().last().expect("a number"));
    }

    #[test]
    fn what_a_build_leaves_in_the_background_ends_with_the_next_and_at_the_end() {
        let begun = std::env::temp_dir().join(format!("gannet-left-{}", std::process::id()));
        let script = format!("sleep 1000 >&- 2>&- & echo $! > {}", begun.display());
        let builds = Builds::new(script);
        let run = || {
            assert_eq!(builds.run().expect("it runs"), None);
            let pid = std::fs::read_to_string(&begun).expect("a number");
            assert!(std::path::Path::new("/proc").join(pid.trim()).exists());
            pid
        };
        let (first, second) = (run(), run());
        until_gone(&first);
        builds.stop();
        until_gone(&second);
        std::fs::remove_file(&begun).expect("it is there");
    }
}
