//! Where a server keeps what it gets from others: copies of stores, and certificates.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The folder that systemd makes for the service (`StateDirectory=`), root's, or the user's, by the
/// environment; `None` if that names none.
pub(super) fn state_folder(
    is_root: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<PathBuf> {
    let absolute = |value: OsString| Some(PathBuf::from(value)).filter(|it| it.is_absolute());
    let named = |name| variable(name).and_then(absolute);
    // systemd.exec(5): several are separated by colons. The first is the service's own.
    let of_service = variable("STATE_DIRECTORY").and_then(|all| {
        let all = all.into_vec();
        let first = all.split(|byte| *byte == b':').next()?;
        absolute(OsString::from_vec(first.to_vec()))
    });
    let of_user = || {
        let state = named("XDG_STATE_HOME");
        let state = state.or_else(|| Some(named("HOME")?.join(".local/state")));
        Some(state?.join("gannet"))
    };
    let of_root = || is_root.then(|| PathBuf::from("/var/lib/gannet"));
    of_service.or_else(of_root).or_else(of_user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_root_and_users_have_folders() {
        let find = |is_root, given: &[(&str, &str)]| {
            let found = state_folder(is_root, |name| {
                let found = given.iter().find(|(it, _)| *it == name)?;
                Some(OsString::from(found.1))
            });
            found.map(|it| it.into_os_string().into_string().unwrap())
        };
        let home = ("HOME", "/home/ann");
        let xdg = ("XDG_STATE_HOME", "/home/ann/state");
        let service = ("STATE_DIRECTORY", "/var/lib/site:/var/lib/other");
        let is = |found: Option<String>, expect: &str| assert_eq!(found.as_deref(), Some(expect));
        is(find(false, &[home]), "/home/ann/.local/state/gannet");
        is(find(false, &[home, xdg]), "/home/ann/state/gannet");
        is(find(true, &[home, xdg]), "/var/lib/gannet");
        is(find(true, &[home, service]), "/var/lib/site");
        assert_eq!(find(false, &[("HOME", "relative")]), None);
    }
}
