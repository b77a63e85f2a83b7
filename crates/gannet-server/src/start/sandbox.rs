//! The sandbox: what each thread may still do once the server serves.
//!
//! ```text
//!  prepare: plan ─▶ serve: files of sockets ─▶ user ─▶ main thread, and all that it starts now
//!                                                 └──▶ each worker, before its first connection
//! ```
//!
//! Workers, which have the bytes of peers, get the least: they open files below live directories,
//! and none at all where there are only archives. The threads that read content again, write the
//! log and remove the files of sockets reach what that takes.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gannet_io::cause::cause;
use gannet_io::driver::{EngineReport, Errno, RING_RESTRICTIONS};
use gannet_io::sandbox::{Calls, Domain, Kernel, Reach};

use crate::config::{Config, Content, Hosted, ListenAddress, RunAs, SandboxChoice};
use crate::start::bound::Bound;
use crate::start::start_error::StartError;
use crate::watch::notices::ERRORS;

/// What the sandbox of a server consists of.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SandboxReport {
    /// The parts in use: `user www`, `landlock 6`, `seccomp`, `ring restrictions`.
    pub in_use: Vec<String>,
    /// The parts that are missing, each with the reason.
    pub missing: Vec<(&'static str, String)>,
}

impl fmt::Display for SandboxReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.in_use.is_empty() {
            true => f.write_str("none")?,
            false => f.write_str(&self.in_use.join(", "))?,
        }
        let mut missing = self.missing.iter();
        missing.try_for_each(|(part, why)| write!(f, "; without {part}: {why}"))
    }
}

/// The sandbox of a server that has not begun.
pub(crate) struct Sandbox {
    choice: SandboxChoice,
    /// `None` if there is to be none: a service manager may kill a process that asks for it.
    kernel: Option<Kernel>,
    user: Option<RunAs>,
    worker: Reach,
    worker_calls: Calls,
    control: Reach,
}

impl Sandbox {
    /// Plans the sandbox: what will have to be opened while serving, by workers with this engine.
    pub(crate) fn plan(
        config: &Config,
        contents: &[Hosted],
        listeners: &[Bound],
        engine: &EngineReport,
    ) -> Self {
        let mut worker = Reach::default();
        // Where facts about the process and the machine's memory are.
        let mut control = Reach {
            read: vec!["/proc".into(), "/sys/fs/cgroup".into()],
            ..Reach::default()
        };
        for Hosted { content, .. } in contents {
            let folders = folders_of(content);
            if is_live(content) {
                worker.read.extend(folders.iter().cloned());
            }
            control.read.extend(folders);
        }
        if contents.iter().any(|it| is_live(&it.content)) {
            let copies = config.content.copies.as_deref();
            for folder in config.content.follow_links.paths().chain(copies) {
                let folders = replaceable(folder);
                worker.read.extend(folders.iter().cloned());
                control.read.extend(folders);
            }
        }
        if let Some(tls) = &config.tls {
            let ordered = tls.source.ordered.iter();
            // The folder above these has the account's key, which is not for this process.
            let folders = ordered.flat_map(|it| [it.certificates(), it.challenges()]);
            let folders: Vec<PathBuf> = folders.collect();
            let is_there = |file: &&Path| folders.iter().any(|it| file.parent() == Some(it));
            let files = tls.source.files().filter(|file| !is_there(file));
            control.read.extend(files.flat_map(replaceable));
            control.read.extend(folders);
        }
        if let Some(file) = &config.passwords.file {
            control.read.extend(replaceable(file));
        }
        if let Some(log) = &config.log_file {
            // A device or a FIFO is opened again, but never made.
            match log.is_file() {
                true => control.write.extend(holders(log)),
                false => control.write.push(log.clone()),
            }
        }
        for bound in listeners {
            if let ListenAddress::Unix(unix) = &bound.address {
                control.remove.extend(holders(&unix.path));
            }
        }
        Self {
            choice: config.sandbox,
            kernel: (config.sandbox != SandboxChoice::Off).then(|| Kernel {
                has_free_rings: free_rings(engine).is_some(),
                ..Kernel::look()
            }),
            user: config.run_as.clone(),
            worker_calls: Calls::Worker {
                opens: contents.iter().any(|it| is_live(&it.content)),
            },
            worker,
            control,
        }
    }

    /// Names the parts; `None` if there is to be no sandbox at all.
    ///
    /// # Errors
    /// One is missing that is required.
    pub(crate) fn report(
        &self,
        engine: &EngineReport,
    ) -> Result<Option<SandboxReport>, StartError> {
        let mut report = SandboxReport::default();
        if let Some(user) = &self.user {
            report.in_use.push(format!("user {}", user.name));
        }
        let Some(kernel) = &self.kernel else {
            return Ok(self.user.is_some().then_some(report));
        };
        match kernel.landlock {
            Ok(version) => report.in_use.push(format!("landlock {version}")),
            Err(errno) => report.missing.push(("landlock", why(errno))),
        }
        match kernel.seccomp {
            Ok(()) => report.in_use.push("seccomp".into()),
            Err(errno) => report.missing.push(("seccomp", why(errno))),
        }
        if engine.in_use.contains(&RING_RESTRICTIONS) {
            report.in_use.push(RING_RESTRICTIONS.into());
        }
        report.missing.extend(free_rings(engine).cloned());
        match report.missing.first() {
            Some((part, why)) if self.choice == SandboxChoice::Require => {
                Err(StartError::Sandbox(part, why.clone()))
            }
            _ => Ok(Some(report)),
        }
    }

    /// Changes the user of the process, confines the calling thread, and returns what to confine
    /// the workers with.
    ///
    /// # Errors
    /// The user cannot be changed; a part is refused that is required.
    pub(crate) fn begin(&self) -> Result<Option<Arc<Domain>>, StartError> {
        if let Some(RunAs { name, user }) = &self.user {
            let refuse = |error| StartError::User(name.clone(), error);
            user.become_it().map_err(refuse)?;
        }
        let Some(kernel) = &self.kernel else {
            return Ok(None);
        };
        let domain = |reach, calls| Domain::new(kernel, reach, calls);
        // While this thread may still make one.
        let worker = domain(&self.worker, self.worker_calls);
        let entered = domain(&self.control, Calls::Control).and_then(|control| control.enter());
        entered.or_else(|error| self.refused(&error))?;
        match worker {
            Ok(worker) => Ok(Some(Arc::new(worker))),
            Err(error) => self.refused(&error).map(|()| None),
        }
    }

    /// A thread could not be confined, though the kernel has all it takes: an error if it has to be.
    pub(crate) fn refused(&self, error: &io::Error) -> Result<(), StartError> {
        let why = cause(error);
        if self.choice == SandboxChoice::Require {
            return Err(StartError::Sandbox("a thread's domain", why));
        }
        ERRORS.log(format_args!(
            "gannet: cannot confine a thread: {why}; continuing without it"
        ));
        Ok(())
    }

    /// The folders below which directories can be served; `None` without a sandbox.
    pub(crate) fn readable(&self) -> Option<Readable> {
        let kernel = self.kernel.as_ref()?;
        let is_confined = kernel.landlock.is_ok();
        is_confined.then(|| {
            Readable(
                self.worker
                    .read
                    .iter()
                    .filter_map(|it| identity(it))
                    .collect(),
            )
        })
    }
}

/// A file that workers can open while they serve directories, though it is none of these.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WithinReach {
    /// The file.
    pub file: PathBuf,
    /// The folder whose files they can open: it holds a served directory, or the folder of one.
    pub folder: PathBuf,
}

/// Which of these files confined workers could open, because they are below a folder of which a served
/// directory may be replaced.
pub fn within_reach<'f>(
    contents: &[Hosted],
    files: impl IntoIterator<Item = &'f Path>,
) -> Vec<WithinReach> {
    let folders = worker_folders(contents);
    let reached = files.into_iter().filter_map(|file| {
        let target = real(file);
        let folder = folders.iter().find(|folder| target.starts_with(folder))?;
        Some(WithinReach {
            file: file.to_owned(),
            folder: folder.clone(),
        })
    });
    reached.collect()
}

/// The folders below which confined workers can open files, none of which is below another one: those
/// that let a served directory be replaced.
#[must_use]
pub fn worker_folders(contents: &[Hosted]) -> Vec<PathBuf> {
    let live = contents.iter().filter(|it| is_live(&it.content));
    let folders = live.flat_map(|it| folders_of(&it.content));
    let mut folders: Vec<PathBuf> = folders.map(|folder| real(&folder)).collect();
    folders.sort();
    // What is below a folder follows it.
    folders.dedup_by(|below, folder| below.starts_with(folder));
    folders
}

/// Whether workers open its files.
fn is_live(content: &Content) -> bool {
    !matches!(content, Content::Archive(_) | Content::Store(_))
}

/// The folders that a content is opened from, while it is served.
fn folders_of(content: &Content) -> Vec<PathBuf> {
    let path = std::path::absolute(content.clone().into_path()).unwrap_or_default();
    match content {
        // Its folder is the served directory.
        Content::File(_) => replaceable(path.parent().unwrap_or(&path)),
        // As for an entry that is to come.
        Content::Many(_) => replaceable(&real(&path).join("_")),
        _ => replaceable(&path),
    }
}

/// Folders, known by device and inode, as the kernel's rules know them: another folder at the same
/// path is none of them.
#[derive(Clone, Debug)]
pub(crate) struct Readable(Arc<[(u64, u64)]>);

impl Readable {
    /// Whether a path leads to one of them now, or to anything below one.
    pub(crate) fn holds(&self, path: &Path) -> bool {
        let is_one = |folder: &Path| identity(folder).is_some_and(|it| self.0.contains(&it));
        path.canonicalize()
            .is_ok_and(|target| target.ancestors().any(is_one))
    }
}

fn identity(folder: &Path) -> Option<(u64, u64)> {
    let meta = fs::metadata(folder).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// That the rings of this engine are not restricted, and why.
fn free_rings(engine: &EngineReport) -> Option<&(&'static str, String)> {
    let mut missing = engine.missing.iter();
    missing.find(|(part, _)| *part == RING_RESTRICTIONS)
}

fn why(errno: Errno) -> String {
    match errno {
        Errno::NOSYS => "this kernel lacks it (ENOSYS)".into(),
        Errno::OPNOTSUPP => "it is off: it has to be in the kernel's parameter lsm=".into(),
        errno => cause(&errno.into()),
    }
}

/// The folders that let a path be replaced, and the folder above it as well: its [`holders`], and the
/// holder of the first one, unless that would be a home, or what all programs of a machine share.
fn replaceable(path: &Path) -> Vec<PathBuf> {
    let mut folders = holders(path);
    let above = folders[0].parent().filter(|above| {
        let is_path = folders[0] == real(path);
        let is_shared = SHARED.iter().any(|it| *above == Path::new(it));
        !is_path && !is_shared && !is_home(&folders[0]) && !is_home(above)
    });
    let above = above.map(Path::to_owned);
    folders.extend(above);
    folders
}

/// Folders that hold everything, or all homes.
const HOLD_ALL: [&str; 2] = ["/", "/home"];

/// Folders that hold what has nothing to do with a site.
const SHARED: [&str; 7] = ["/", "/etc", "/home", "/run", "/tmp", "/var", "/var/lib"];

fn is_home(folder: &Path) -> bool {
    let is_own = std::env::var_os("HOME").is_some_and(|home| folder == Path::new(&home));
    is_own || folder == Path::new("/root") || folder.parent() == Some(Path::new("/home"))
}

/// The folders from which a path can be replaced, by renaming or by changing a link on the way: the
/// one that holds it, first, and the one that holds both the link and its target. The root itself is
/// never among them, as it would be everything, nor is what holds a home.
fn holders(path: &Path) -> Vec<PathBuf> {
    let named = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = real(path);
    let holder = |path: &Path| {
        let parent = path.parent();
        let parent = parent.filter(|it| it.parent().is_some() && !is_home(path));
        parent.unwrap_or(path).to_owned()
    };
    let mut folders = vec![holder(&real)];
    if named != real {
        let begin = holder(&named);
        let steps = begin.components().zip(real.components());
        let shared: PathBuf = steps
            .take_while(|(one, other)| one == other)
            .map(|(step, _)| step)
            .collect();
        if !HOLD_ALL.iter().any(|it| shared == Path::new(it)) {
            folders.push(shared);
        }
    }
    folders
}

/// The path without links, if it leads anywhere.
fn real(path: &Path) -> PathBuf {
    let named = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    named.canonicalize().unwrap_or(named)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_beside_a_served_directory_are_within_reach() {
        let name = format!("gannet-reach-{}", std::process::id());
        let base = std::env::temp_dir().canonicalize().unwrap().join(name);
        fs::create_dir_all(base.join("app/public")).unwrap();
        fs::create_dir_all(base.join("keys")).unwrap();
        let (near, far) = (base.join("app/key.pem"), base.join("keys/key.pem"));
        fs::write(&near, "").unwrap();
        fs::write(&far, "").unwrap();
        let found = |content| {
            let contents = [Hosted {
                hosts: Vec::new(),
                content,
                entry: None,
            }];
            let files = [&near, &far].map(PathBuf::as_path);
            let folders = worker_folders(&contents);
            let found = within_reach(&contents, files);
            assert!(found.iter().all(|it| folders.contains(&it.folder)));
            found.into_iter().map(|it| it.file).collect::<Vec<_>>()
        };
        let inner = base.join("app/public");
        assert_eq!(found(Content::Directory(inner.clone()))[0], near);
        assert_eq!(
            found(Content::Archive(inner.join("a.gannet"))),
            [] as [PathBuf; 0]
        );
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn holders_allow_for_renames_and_links_but_never_for_all() {
        let name = format!("gannet-holders-{}", std::process::id());
        let base = std::env::temp_dir().canonicalize().unwrap().join(name);
        fs::create_dir_all(base.join("releases/42/public")).unwrap();
        symlink("releases/42", base.join("current")).unwrap();
        symlink("/usr", base.join("elsewhere")).unwrap();
        let check = |path: &Path, expect: &[PathBuf]| {
            assert_eq!(holders(path), expect, "{}", path.display());
        };
        check(&base.join("releases/42"), &[base.join("releases")]);
        check(
            &base.join("current"),
            &[base.join("releases"), base.clone()],
        );
        let inner = base.join("current/public");
        check(&inner, &[base.join("releases/42"), base.clone()]);
        check(&base.join("elsewhere"), &["/usr".into()]);
        check(&base.join("not-there"), std::slice::from_ref(&base));
        check("/usr".as_ref(), &["/usr".into()]);
        check("/".as_ref(), &["/".into()]);
        check("/home/somebody".as_ref(), &["/home/somebody".into()]);
        check("/home/somebody/site".as_ref(), &["/home/somebody".into()]);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn the_folder_above_may_be_replaced_as_well_but_no_home() {
        let check = |path: &str, expect: &[&str]| {
            let expect: Vec<_> = expect.iter().map(PathBuf::from).collect();
            assert_eq!(replaceable(path.as_ref()), expect, "{path}");
        };
        check("/srv/www/app/public", &["/srv/www/app", "/srv/www"]);
        check("/srv/app/public", &["/srv/app", "/srv"]);
        check("/var/www/html", &["/var/www"]);
        check("/var/lib/app/public", &["/var/lib/app"]);
        check("/home/somebody", &["/home/somebody"]);
        check("/home/somebody/site", &["/home/somebody"]);
        check("/home/somebody/app/dist", &["/home/somebody/app"]);
        check(
            "/home/somebody/app/dist/web",
            &["/home/somebody/app/dist", "/home/somebody/app"],
        );
        check("/site.gannet", &["/site.gannet"]);
        check("/sites/one", &["/sites"]);
    }
}
