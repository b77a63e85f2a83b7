//! What commands on stores share: times, ids, who publishes, signatures of pointers.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use gannet_archive::signature::{PublicKey, SignatureError};
use gannet_io::named_file;
use gannet_server::notices::ERRORS;
use gannet_site::archive;
use gannet_site::pack::Signer;
use gannet_store::limits::{NOTE_LEN_MAX, POINTER_LEN_MAX, PUBLISHER_LEN_MAX, VOID_MAX};
use gannet_store::{
    Earlier, Pointer, Pruned, Publisher, ReleaseId, Store, StoreError, parse_time, time_text,
};

use super::destination::StoreName;
use crate::messages::{Failure, printable};
use crate::quantities::{counted, parse_duration_ms, size};

/// The time, in Unix seconds.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |it| it.as_secs())
}

/// `ann@build`: the user as the environment has it, and the machine.
pub(super) fn publisher_name() -> String {
    let user = ["LOGNAME", "USER"]
        .iter()
        .find_map(|name| std::env::var(name).ok());
    let user = user.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    let machine = rustix::system::uname();
    let name = format!("{user}@{}", machine.nodename().to_string_lossy());
    let mut name = name.replace(char::is_control, "?");
    while name.len() > PUBLISHER_LEN_MAX {
        name.pop();
    }
    name.trim().to_owned()
}

/// Reads `+30s` (from now on) or `2026-11-23T08:30:00Z`.
pub(super) fn moment(flag: &str, text: &str, now: u64) -> Result<u64, Failure> {
    let ahead = text.strip_prefix('+').map(parse_duration_ms);
    let moment = match ahead {
        Some(Ok(ms)) => now.checked_add(ms.div_ceil(1000)),
        Some(Err(_)) => None,
        None => parse_time(text),
    };
    moment.ok_or_else(|| {
        Failure::usage(format!(
            "cannot use '--{flag} {}': not a time",
            printable(text)
        ))
        .help("write it as +30s, +10m, +30d, or 2026-11-23T08:30:00Z")
    })
}

/// Whether a file is an archive of this release, whole and undamaged.
pub(super) fn holds(archive: &Path, release: ReleaseId) -> bool {
    let verified = archive::verify(archive);
    verified.is_ok_and(|it| ReleaseId::of_build_id(&it.build_id) == release)
}

/// Checks a remark.
pub(super) fn note(text: &str) -> Result<String, Failure> {
    let text = text.trim();
    let cause = match text {
        _ if text.len() > NOTE_LEN_MAX => {
            format!("{} bytes, and at most {NOTE_LEN_MAX} fit", text.len())
        }
        _ if text.chars().any(char::is_control) => "it has a control character".into(),
        _ => return Ok(text.to_owned()),
    };
    Err(Failure::usage(format!("cannot use '--note': {cause}")).help("shorten it to one line"))
}

/// The release that a user means by at least eight digits of its id: among those that have a file,
/// or else those of the log.
pub(super) fn release(store: &Store, typed: &str) -> Result<ReleaseId, Failure> {
    let refuse = |cause: String| {
        let shown = printable(&store.folder().to_string_lossy());
        Failure::new("find release", typed, cause)
            .help(format!("'gannet releases {shown}' lists them"))
    };
    let is_digits = typed
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !is_digits || !(8..=32).contains(&typed.len()) {
        return Err(refuse("not 8 to 32 digits, 0 to 9 and a to f".into()).as_usage());
    }
    let is_meant = |id: &ReleaseId| id.to_string().starts_with(typed);
    let mut found = store.releases()?;
    found.retain(is_meant);
    if found.is_empty() {
        // One whose file is gone.
        let logged = store.history()?.pointers.into_iter();
        found = logged.map(|it| it.release).filter(is_meant).collect();
    }
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(refuse("the store has no such release".into())),
        [one, other, ..] => Err(refuse(format!("it may be {one} or {other}"))),
    }
}

/// The pointer in force; `None` in a new store. One that cannot be used is replaced by what is
/// published, and said to be.
pub(super) fn in_force(store: &Store, named: &StoreName) -> Result<Option<Pointer>, Failure> {
    match store.pointer() {
        Ok(pointer) => Ok(Some(pointer)),
        Err(StoreError::Empty(_)) => Ok(None),
        Err(error @ (StoreError::Pointer(..) | StoreError::Signature(..))) => {
            let instead = match (&error, store.newest()?) {
                (StoreError::Pointer(..), _) => String::new(),
                (_, Some(it)) => format!(", and serial {} is what the new one follows", it.serial),
                (_, None) => ", and nothing of it is taken over: neither what is kept nor what is \
                              void, and vanishing URLs are not checked"
                    .to_owned(),
            };
            let error = named.text(&printable(&error.to_string()));
            ERRORS.log(format_args!(
                "gannet: {error}; it will be replaced{instead}"
            ));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// What the next pointer inherits from: the one in force, or else, if that cannot be used or is
/// missing, the newest of the log that can be.
pub(super) fn last_known(
    store: &Store,
    current: Option<&Pointer>,
) -> Result<Option<Pointer>, Failure> {
    match current {
        Some(current) => Ok(Some(current.clone())),
        None => Ok(store.newest()?),
    }
}

/// Whether the pointer in force has the signature that the next one will have. An unsigned pointer
/// cannot replace a signed one, which nodes that require signatures would refuse in silence.
pub(super) fn is_signed_alike(store: &Store, signer: Option<&Signer>) -> Result<bool, Failure> {
    let path = store.pointer_path();
    let Ok(text) = named_file::read(&path, POINTER_LEN_MAX as u64) else {
        return Ok(false);
    };
    let Some(signer) = signer else {
        let text = String::from_utf8_lossy(&text);
        if gannet_store::split_signature(&text).1.is_none() {
            return Ok(true);
        }
        let cause = "the pointer in force is signed, and this one would not be";
        return Err(
            Failure::new("change store", store.folder().display(), cause)
                .help("sign it, too: --sign KEY"),
        );
    };
    let key = PublicKey::parse(&signer.public_key()?);
    let verified = key
        .ok_or(SignatureError::Key)
        .and_then(|it| Pointer::verify(&text, &it));
    if let Err(SignatureError::OtherKey) = verified {
        ERRORS.log(format_args!(
            "gannet: the pointer in force is signed with another key: nodes need the public key of \
             this one"
        ));
    }
    Ok(verified.is_ok())
}

/// Void releases of the next pointer: those named now come first, and at most [`VOID_MAX`] remain.
pub(super) fn void_list(
    named: Vec<ReleaseId>,
    before: &[ReleaseId],
    release: ReleaseId,
) -> Vec<ReleaseId> {
    let mut void: Vec<ReleaseId> = Vec::new();
    for id in named.into_iter().chain(before.iter().copied()) {
        if id != release && !void.contains(&id) {
            void.push(id);
        }
    }
    void.truncate(VOID_MAX);
    void
}

/// The release that was active last before a pointer, is not void, and has a file.
pub(super) fn before(store: &Store, current: &Pointer) -> Result<Option<ReleaseId>, Failure> {
    let earlier = store.earlier(current)?.filter(Earlier::was_active);
    let mut earlier = earlier.map(|it| it.pointer.release);
    Ok(earlier.find(|release| {
        *release != current.release
            && !current.void.contains(release)
            && store.release_path(*release).is_file()
    }))
}

/// What was put into force, for people.
pub(super) fn summary(
    publisher: &Publisher,
    pointer: &Pointer,
    pruned: &Pruned,
    now: u64,
) -> Result<String, Failure> {
    let kept = publisher.store().kept(pointer, now)?.releases;
    let bytes: u64 = kept.iter().map(|it| it.pointer.size).sum();
    let mut text = format!(
        "  {:<9} {}\n  {:<9} {}, {}\n",
        "active",
        active(pointer, now),
        "kept",
        counted(kept.len() as u64, "earlier release"),
        size(bytes)
    );
    if !pruned.releases.is_empty() {
        let count = counted(pruned.releases.len() as u64, "release");
        text += &format!("  {:<9} {count}, {}\n", "removed", size(pruned.bytes));
    }
    Ok(text)
}

/// When nodes activate a release.
fn active(pointer: &Pointer, now: u64) -> String {
    let begin = match pointer.activate {
        Some(moment) if moment > now => {
            format!("at {} (in {} s)", time_text(moment), moment - now)
        }
        _ => "at once".to_owned(),
    };
    match pointer.stages.as_slice() {
        [] => begin,
        stages => {
            let stages: Vec<_> = stages.iter().map(ToString::to_string).collect();
            format!("{begin}, in stages: {}", stages.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_absolute_or_from_now_on() {
        let check = |text: &str, expect: Option<u64>| {
            assert_eq!(moment("activate", text, 100).ok(), expect, "{text}");
        };
        check("+30s", Some(130));
        check("+1.5s", Some(102));
        check("+2m", Some(220));
        check("+0", Some(100));
        check("2026-11-23T08:30:00Z", Some(1_795_422_600));
        for bad in ["30s", "+", "+x", "now", "2026-11-23", ""] {
            check(bad, None);
        }
    }

    #[test]
    fn the_newest_void_releases_come_first() {
        let id = |letter: u8| ReleaseId::of_build_id(&[letter; 32]);
        let before: Vec<_> = (1..=6).map(id).collect();
        assert_eq!(
            void_list(vec![id(9), id(3)], &before, id(1)),
            [9, 3, 2, 4, 5, 6].map(id)
        );
        assert_eq!(void_list(Vec::new(), &[], id(1)), []);
    }

    #[test]
    fn a_publisher_has_a_name_that_fits() {
        let name = publisher_name();
        assert!(
            (1..=PUBLISHER_LEN_MAX).contains(&name.len()) && name.contains('@'),
            "{name}"
        );
        assert!(note("one\ntwo").is_err() && note(&"n".repeat(101)).is_err());
        assert_eq!(note(" a note ").unwrap(), "a note");
    }
}
