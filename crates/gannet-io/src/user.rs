//! Users and groups by name, and giving up root's rights for a user's.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::mem::zeroed;
use std::panic::resume_unwind;
use std::{ptr, thread};

use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Gid, Uid, dumpable_behavior, getegid, geteuid, set_dumpable_behavior,
};
use rustix::thread::{
    CapabilitySet, capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::cause::cause;
use crate::residency::last_errno;

/// A user, with the groups that its processes are in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct User {
    /// The user's number.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// All its groups, that one included.
    pub groups: Vec<u32>,
}

/// The entries of a directory service may be long: a group's has all its members.
const ENTRY_LEN: usize = 1 << 20;
/// The most groups that the kernel lets a process be in.
const GROUPS_MAX: usize = 65_536;

impl User {
    /// A user by name or number, in its own groups; or, with `group`, in that one alone.
    ///
    /// # Errors
    /// In words for a name that does not exist; the errors of the directory service.
    pub fn find(name: &str, group: Option<&str>) -> io::Result<Self> {
        let group = group.map(group_id).transpose()?;
        let found = entry(name)?;
        let Some((uid, gid, name)) = found else {
            let number = name.parse().ok().filter(|uid| *uid != u32::MAX);
            let uid = number.ok_or_else(|| unknown("user", name))?;
            // A number without an entry has no groups of its own.
            let gid = group.ok_or_else(|| {
                let text = format!("user {uid} has no entry: name a group as well, {uid}:GROUP");
                io::Error::new(io::ErrorKind::InvalidInput, text)
            })?;
            return Ok(Self {
                uid,
                gid,
                groups: vec![gid],
            });
        };
        let (gid, groups) = match group {
            Some(gid) => (gid, vec![gid]),
            None => (gid, groups_of(&name, gid)?),
        };
        Ok(Self { uid, gid, groups })
    }

    /// Makes this process the user's, all threads of it, and verifies that nothing of the former
    /// rights is left. One that cannot be dumped or traced stays so.
    ///
    /// # Errors
    /// `EPERM` without root's rights; in words if a thread kept any.
    pub fn become_it(&self) -> io::Result<()> {
        self.change(&OF_PROCESS)?;
        let unseen = |error: io::Error| {
            let text = format!(
                "cannot see its threads in /proc/self/task: {}",
                cause(&error)
            );
            io::Error::new(error.kind(), text)
        };
        for entry in fs::read_dir("/proc/self/task").map_err(unseen)? {
            let status = entry.and_then(|it| fs::read_to_string(it.path().join("status")));
            let status = match status {
                Err(error) if has_ended(&error) => continue,
                status => status.map_err(unseen)?,
            };
            if let Some(kept) = self.kept(&status) {
                let text = format!("a thread kept other rights: {kept}");
                return Err(io::Error::other(text));
            }
        }
        // SAFETY: no memory is involved. It must fail.
        match self.uid != 0 && unsafe { libc::setuid(0) } == 0 {
            true => Err(io::Error::other("root's rights could be had again")),
            false => Ok(()),
        }
    }

    /// Does this with the user's rights alone, on a thread of its own: the process keeps its rights, and
    /// the thread ends with this. A process that cannot be dumped or traced stays so.
    ///
    /// # Errors
    /// The thread cannot be started; `EPERM` without root's rights.
    pub fn act<T: Send>(&self, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let acting = thread::Builder::new().name("gannet-rights".into());
            let acting = acting.spawn_scoped(scope, || {
                self.change(&OF_THREAD)?;
                Ok(act())
            })?;
            acting.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Changes all numbers of the process or of the thread to the user's. With the last of root's it loses all
    /// capabilities.
    ///
    /// With each change of an effective number, the kernel (`commit_creds`) makes the whole process as dumpable
    /// as `fs.suid_dumpable` says; with 1, whatever else runs as the user may trace it. Until that is undone,
    /// root's numbers stay as the saved ones, which forbid that. Giving those up does not make it dumpable again.
    /// `setfsuid` would be no way round: the kernel treats it alike.
    fn change(&self, of: &IdChange) -> io::Result<()> {
        let before = dumpable_behavior()?;
        let (gid, uid) = (getegid().as_raw(), geteuid().as_raw());
        (of.groups)(&self.groups)?;
        (of.gids)([self.gid, self.gid, gid])?;
        (of.uids)([self.uid, self.uid, uid])?;
        if before == DumpableBehavior::NotDumpable {
            set_dumpable_behavior(before)?;
        }
        (of.gids)([self.gid; 3])?;
        (of.uids)([self.uid; 3])
    }

    /// The line of a thread's status (proc_pid_status(5)) with rights that are not this user's.
    fn kept<'a>(&self, status: &'a str) -> Option<&'a str> {
        let (uid, gid) = (self.uid.to_string(), self.gid.to_string());
        status.lines().find(|line| {
            let Some((name, values)) = line.split_once(':') else {
                return false;
            };
            let mut values = values.split_ascii_whitespace();
            !match name {
                "Uid" => values.all(|it| it == uid),
                "Gid" => values.all(|it| it == gid),
                "Groups" => values.all(|it| it.parse().is_ok_and(|it| self.groups.contains(&it))),
                "CapInh" | "CapPrm" | "CapEff" | "CapAmb" => {
                    self.uid == 0 || values.all(|it| it.bytes().all(|digit| digit == b'0'))
                }
                _ => true,
            }
        })
    }
}

/// Sets the groups, and the real, effective and saved numbers.
struct IdChange {
    groups: fn(&[u32]) -> io::Result<()>,
    gids: fn([u32; 3]) -> io::Result<()>,
    uids: fn([u32; 3]) -> io::Result<()>,
}

/// The C library's functions, as they reach all threads, which system calls do not.
const OF_PROCESS: IdChange = IdChange {
    // SAFETY: the length is that of the list.
    groups: |all| ended(unsafe { libc::setgroups(all.len() as _, all.as_ptr()) }),
    // SAFETY: no memory is involved.
    gids: |[real, effective, saved]| ended(unsafe { libc::setresgid(real, effective, saved) }),
    // SAFETY: no memory is involved.
    uids: |[real, effective, saved]| ended(unsafe { libc::setresuid(real, effective, saved) }),
};

/// System calls, which the C library's functions would have all threads make.
const OF_THREAD: IdChange = IdChange {
    groups: |all| {
        let all: Vec<Gid> = all.iter().copied().map(Gid::from_raw).collect();
        Ok(set_thread_groups(&all)?)
    },
    gids: |all| {
        let [real, effective, saved] = all.map(Gid::from_raw);
        Ok(set_thread_res_gid(real, effective, saved)?)
    },
    uids: |all| {
        let [real, effective, saved] = all.map(Uid::from_raw);
        Ok(set_thread_res_uid(real, effective, saved)?)
    },
};

/// The number of the user whose rights this process has.
#[must_use]
pub fn effective() -> u32 {
    geteuid().as_raw()
}

/// Whether this process is root's.
#[must_use]
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Whether this process may give files to other users.
#[must_use]
pub fn may_give_files() -> bool {
    capabilities(None).is_ok_and(|all| all.effective.contains(CapabilitySet::CHOWN))
}

/// The group's number; in words if there is none.
pub(crate) fn group_id(group: &str) -> io::Result<u32> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let name = CString::new(group).map_err(|_| unknown("group", group))?;
    let mut buffer = vec![0; ENTRY_LEN];
    // SAFETY: an all-zero `group` is valid: numbers and null pointers.
    let mut entry: libc::group = unsafe { zeroed() };
    let mut found = ptr::null_mut();
    // SAFETY: the name ends with a zero; entry, buffer (with its length) and found are ours and
    // outlive the call.
    let result = unsafe {
        libc::getgrnam_r(
            name.as_ptr(),
            &raw mut entry,
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut found,
        )
    };
    match result {
        _ if !found.is_null() => Ok(entry.gr_gid),
        0 => Err(unknown("group", group)),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// The number, the group and the name of a user, by name or number, if there is an entry.
fn entry(user: &str) -> io::Result<Option<(u32, u32, CString)>> {
    let name = CString::new(user).map_err(|_| unknown("user", user))?;
    let mut buffer = vec![0; ENTRY_LEN];
    // SAFETY: an all-zero `passwd` is valid: numbers and null pointers.
    let mut entry: libc::passwd = unsafe { zeroed() };
    let mut found = ptr::null_mut();
    let (buffer, len) = (buffer.as_mut_ptr(), buffer.len());
    let (entry, found) = (&raw mut entry, &raw mut found);
    let result = match user.parse() {
        // SAFETY: entry, buffer (with its length) and found are ours and outlive the call.
        Ok(uid) => unsafe { libc::getpwuid_r(uid, entry, buffer, len, found) },
        // SAFETY: the same, and the name ends with a zero.
        Err(_) => unsafe { libc::getpwnam_r(name.as_ptr(), entry, buffer, len, found) },
    };
    // SAFETY: found is ours, and initialized.
    let found = unsafe { found.read() };
    if !found.is_null() {
        // SAFETY: the call filled the entry in, which nothing else refers to any more.
        let entry = unsafe { &*entry };
        // SAFETY: the name ends with a zero, in the buffer, which is alive.
        let name = unsafe { CStr::from_ptr(entry.pw_name) };
        return Ok(Some((entry.pw_uid, entry.pw_gid, name.to_owned())));
    }
    // Some directory services report a missing entry as an error.
    let is_missing = [0, libc::ENOENT, libc::ESRCH].contains(&result);
    match is_missing {
        true => Ok(None),
        false => Err(io::Error::from_raw_os_error(result)),
    }
}

/// The groups that a user is in.
fn groups_of(user: &CStr, gid: u32) -> io::Result<Vec<u32>> {
    let mut groups = vec![gid; GROUPS_MAX];
    let mut count = GROUPS_MAX as libc::c_int;
    // SAFETY: the name ends with a zero; the list has room for `count` groups.
    let result =
        unsafe { libc::getgrouplist(user.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
    if result < 0 {
        return Err(Errno::INVAL.into());
    }
    groups.truncate(usize::try_from(count).unwrap_or_default());
    Ok(groups)
}

fn unknown(what: &str, name: &str) -> io::Error {
    let text = format!("there is no {what} '{name}'");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Whether a thread's file cannot be read because the thread has ended meanwhile, as one of
/// [`User::act`] may have.
fn has_ended(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::NOENT, Errno::SRCH]
        .iter()
        .any(|it| code == Some(it.raw_os_error()))
}

fn ended(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(last_errno().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let root = User::find("root", None).unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert_eq!(User::find("0", None).unwrap(), root);
        let in_one = User::find("0", Some("7")).unwrap();
        assert_eq!((in_one.gid, in_one.groups), (7, vec![7]));
        let number = User::find("4000000000", Some("8")).unwrap();
        assert_eq!((number.uid, number.groups), (4_000_000_000, vec![8]));
        for (name, group) in [
            ("4000000000", None),
            ("4294967295", Some("1")),
            ("no-such-user", None),
            ("root", Some("no-such-group")),
        ] {
            assert!(User::find(name, group).is_err(), "{name} {group:?}");
        }
    }

    #[test]
    fn rights_that_were_kept_are_noticed() {
        let user = User {
            uid: 5,
            gid: 6,
            groups: vec![6, 7],
        };
        let clean = "Name:\tgannet\nUid:\t5\t5\t5\t5\nGid:\t6\t6\t6\t6\nGroups:\t6 7 \n\
                     CapInh:\t0000\nCapPrm:\t0000\nCapEff:\t0000\nCapBnd:\t01ff\nCapAmb:\t0000\n";
        assert_eq!(user.kept(clean), None);
        for (from, to) in [
            ("Uid:\t5\t5\t5", "Uid:\t5\t0\t5"),
            ("Gid:\t6", "Gid:\t0"),
            ("Groups:\t6 7", "Groups:\t6 0"),
            ("CapPrm:\t0000", "CapPrm:\t0400"),
            ("CapAmb:\t0000", "CapAmb:\t0001"),
        ] {
            let status = clean.replace(from, to);
            assert!(user.kept(&status).is_some(), "{status}");
        }
    }
}
