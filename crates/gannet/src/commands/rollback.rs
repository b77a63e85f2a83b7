//! `gannet rollback`: puts an earlier release of a store into force again.

use std::ffi::OsString;
use std::path::Path;

use clap::ArgMatches;
use gannet_site::archive;
use gannet_site::pack::Signer;
use gannet_store::{Next, Pointer, ReleaseId, Store, StoreError, time_text};

use super::destination::{Destination, is_url};
use super::stores::{self, in_force, is_signed_alike, last_known, void_list};
use super::{print, text};
use crate::messages::{Failure, printable};
use crate::quantities::size;

/// Goes back to the release that was in force before, or to the one named, under a new serial.
///
/// # Errors
/// There is no such release, its file is gone or damaged, or the store refuses the pointer. The
/// release in force still is.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let now = stores::now();
    let store = text(matches, "store");
    let typed = |name: &str| {
        let value = matches.get_one::<OsString>(name);
        value.map(|it| it.to_string_lossy().into_owned())
    };
    let activate = typed("activate").map(|it| stores::moment("activate", &it, now));
    let note = typed("note").map(|it| stores::note(&it)).transpose()?;
    let signer = matches.get_one::<OsString>("sign").map(Path::new);
    let signer = signer.map(Signer::open).transpose()?;
    let wishes = RollbackWishes {
        release: typed("release"),
        activate: activate.transpose()?,
        note: note.unwrap_or_default(),
        is_void: matches.get_flag("void"),
    };
    if !is_url(store) {
        // Publishing would make one.
        Store::open(Path::new(store), None)?;
    }
    let destination = Destination::open(store, signer.as_ref(), now)?;
    let text = back(&destination, wishes, signer.as_ref(), now);
    print(&text.map_err(|failure| destination.explained(failure))?)
}

/// What the flags ask for.
struct RollbackWishes {
    release: Option<String>,
    activate: Option<u64>,
    note: String,
    is_void: bool,
}

/// Goes back, and says how.
fn back(
    destination: &Destination,
    wishes: RollbackWishes,
    signer: Option<&Signer>,
    now: u64,
) -> Result<String, Failure> {
    let publisher = destination.publisher();
    let store = publisher.store();
    let current = in_force(store, &destination.named())?;
    let known = last_known(store, current.as_ref())?;
    is_signed_alike(store, signer)?;
    let release = match &wishes.release {
        Some(typed) => stores::release(store, typed)?,
        None => before(store, current.as_ref())?,
    };
    let shown = destination.shown();
    let refuse = |cause: String| {
        Failure::new("go back to", release, cause)
            .help(format!("'gannet releases {shown}' lists what there is"))
    };
    let left = current.as_ref().map(|it| it.release);
    if left == Some(release) {
        return Err(refuse("it is in force".into()));
    }
    if known.as_ref().is_some_and(|it| it.void.contains(&release)) {
        return Err(refuse("it is void".into()).help(
            "if it is good after all, publish its site again with '--void none', which takes all \
             such marks back",
        ));
    }
    let path = store.release_path(release);
    if !path.is_file() {
        return Err(refuse("its file has been removed".into()));
    }
    destination.bring(release)?;
    let placed = publisher.placed(release).map_err(|error| match error {
        StoreError::OtherFile(path) => {
            let signed = match signer {
                Some(_) => " that this key has signed",
                None => "",
            };
            let path = printable(&path.to_string_lossy());
            refuse(format!("no pointer{signed} names its file as it is")).help(format!(
                "if the file is good, 'gannet publish {path} {shown}' puts it into force"
            ))
        }
        error => error.into(),
    })?;
    let verified = archive::verify(&path)?;
    if ReleaseId::of_build_id(&verified.build_id) != release {
        return Err(refuse("its file holds another release".into()));
    }
    let named: Vec<_> = left.into_iter().filter(|_| wishes.is_void).collect();
    let earlier = known.as_ref().map_or(&[][..], |it| &it.void);
    let next = Next {
        activate: wishes.activate,
        keep: known.as_ref().map(|it| it.keep).unwrap_or_default(),
        void: void_list(named, earlier, release),
        note: wishes.note,
        ..Next::at_once(release, placed)
    };
    let pointer = publisher.next(next, now)?;
    let pruned = destination.commit(&pointer, signer, now)?;
    let summary = stores::summary(publisher, &pointer, &pruned, now)?;
    let until = Some(pointer.last_activation()).filter(|moment| wishes.is_void && *moment > now);
    let until = until.map_or_else(String::new, |it| {
        format!(", served until {}", time_text(it))
    });
    let word = if wishes.is_void { "void" } else { "left" };
    let left = left.map_or_else(String::new, |left| format!("  {word:<9} {left}{until}\n"));
    Ok(format!(
        "{shown}: serial {}, release {release}\n  {:<9} {}\n{left}{summary}",
        pointer.serial,
        "size",
        size(placed.size)
    ))
}

/// The release to go back to without a name.
fn before(store: &Store, current: Option<&Pointer>) -> Result<ReleaseId, Failure> {
    let found = match current {
        Some(current) => stores::before(store, current)?.ok_or("no earlier release has been kept"),
        None if matches!(store.pointer(), Err(StoreError::Empty(_))) => {
            return Err(StoreError::Empty(store.folder().to_path_buf()).into());
        }
        None => Err("it is not known what was in force: name a release"),
    };
    found.map_err(|cause| {
        let shown = printable(&store.folder().to_string_lossy());
        Failure::new("roll back", store.folder().display(), cause)
            .help(format!("'gannet releases {shown}' lists what there is"))
    })
}
