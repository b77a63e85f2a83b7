//! `gannet publish`: puts a site into a store, and into force there.

mod awaiting;
mod changed;
mod gates;
mod targets;
mod wishes;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use gannet_server::notices::ERRORS;
use gannet_site::archive::{self, ArchiveFile, SiteError};
use gannet_site::pack::Signer;
use gannet_store::{Pointer, Publisher, ReleaseId, Store};

use super::destination::{Destination, is_url};
use super::pack::{self, Shown};
use super::serve::content_kind::is_archive;
use super::stores::{self, in_force, is_signed_alike, last_known, void_list};
use super::{print, resolve, text};
use crate::command_line::commands::PACK_SECTION;
use crate::command_line::layers::{Origin, Origins};
use crate::command_line::pack_flags::{PACK_FLAGS, PackSettings};
use crate::messages::{Failure, printable};
use crate::quantities::size;
use targets::Targets;
use wishes::Wishes;

/// Publishes, and says what is in force from when on and how to go back.
///
/// # Errors
/// The site cannot be packed, is damaged or does not pass a gate, or the store refuses it. The
/// release in force still is.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let (settings, origins) = resolve(PACK_FLAGS, PACK_SECTION, matches)?;
    let now = stores::now();
    let site = PathBuf::from(text(matches, "site"));
    let site = &super::file_in_force(site, Store::intact_file)?;
    let typed = text(matches, "store");
    let folder = Path::new(typed);
    let wishes = Wishes::of(matches, now)?;
    let is_packed = is_packed(site)?;
    refuse_idle(site, is_packed, &origins)?;
    if !is_packed && !is_url(typed) {
        refuse_nested(site, folder)?;
    }
    let targets = Targets::of(matches, settings.sign.is_some())?;
    let signer = settings.sign.as_deref().map(Signer::open).transpose()?;
    if matches.get_flag("check-config") {
        Destination::check(typed)?;
        if !is_packed {
            check_packing(site, typed, settings, &origins)?;
        }
        return print("the configuration is valid\n");
    }
    let (shown, is_quiet) = (Shown::of(&settings), settings.quiet);
    let destination = Destination::open(typed, signer.as_ref(), now)?;
    let job = Publication {
        destination: &destination,
        publisher: destination.publisher(),
        site,
        is_packed,
        signer: signer.as_ref(),
    };
    let published = job.publish(&wishes, (settings, &origins), now);
    let pointer = published.map_err(|failure| destination.explained(failure))?;
    let brought = targets.bring(&destination, &pointer);
    let (lines, mut failures) = brought.map_err(|failure| destination.explained(failure))?;
    // Others may publish meanwhile.
    drop(destination);
    shown.text(&lines)?;
    for failure in &failures {
        failure.report();
    }
    let late = awaiting::all(&wishes.wait, &pointer, is_quiet)?;
    late.iter().for_each(Failure::report);
    failures.extend(late);
    Ok(u8::from(!failures.is_empty()))
}

fn in_force_already(current: &Pointer, was_there: bool) -> String {
    let what = match was_there {
        true => "nothing to publish",
        false => "its file, which was missing or damaged, is there again",
    };
    let Pointer {
        release, serial, ..
    } = current;
    format!("{release} is in force already, as serial {serial}: {what}\n")
}

/// What is published where.
struct Publication<'p> {
    destination: &'p Destination,
    /// Of the destination.
    publisher: &'p Publisher,
    site: &'p Path,
    is_packed: bool,
    signer: Option<&'p Signer>,
}

impl Publication<'_> {
    /// Copies a packed site. Returns what to print of that.
    fn copy(&self) -> Result<String, Failure> {
        // What is cut short, or a part of a release, may be as long as the disk has room for.
        ArchiveFile::open(self.site)?;
        let copied = self.publisher.copy(self.site);
        copied.map_err(|error| self.of_draft(error.into()))?;
        Ok(String::new())
    }

    /// The file of an earlier release.
    fn file_of(&self, pointer: &Pointer) -> Result<PathBuf, String> {
        let store = self.publisher.store();
        match self.destination.try_to_bring(pointer.release) {
            true => store
                .intact_file(pointer)
                .map_err(|error| error.to_string()),
            false => {
                let path = store.release_path(pointer.release);
                Err(format!("'{}' could not be fetched", path.display()))
            }
        }
    }

    /// The release of a draft, if it is sound and not void.
    fn verify(&self, draft: &Path, void: &[ReleaseId]) -> Result<ReleaseId, Failure> {
        let verified = archive::verify(draft).map_err(|error| self.explained(error))?;
        let release = ReleaseId::of_build_id(&verified.build_id);
        if void.contains(&release) {
            let cause = format!("its release {release} is void");
            return Err(Failure::new("publish", self.site.display(), cause)
                .help("pack what was corrected; if it is good after all: --void none"));
        }
        Ok(release)
    }

    /// Writes what a draft answers otherwise than the releases that servers may serve now: the one in
    /// force, and before its moment the one that it replaces. One that becomes void answers nothing, and
    /// a cache has to forget its assets, too.
    fn write_changed(
        &self,
        file: &Path,
        (known, void): (Option<&Pointer>, &[ReleaseId]),
        now: u64,
    ) -> Result<(), Failure> {
        let served = match known {
            Some(known) => self.publisher.store().served(known, now)?,
            None => Vec::new(),
        };
        let mut files: Vec<_> = served.iter().map(|it| self.file_of(it)).collect();
        let is_new = |it: &&ReleaseId| known.is_some_and(|known| !known.void.contains(it));
        let mut newly_void = void.iter().filter(is_new);
        if let Some(release) = newly_void.next() {
            files = vec![Err(format!("release {release} is void from now on"))];
        }
        changed::write(file, &files, &self.publisher.draft_path())
    }

    /// Compares a draft with the release before it.
    fn check_removals(
        &self,
        before: Option<Result<PathBuf, String>>,
        draft: &Path,
        wishes: &Wishes,
    ) -> Result<(), Failure> {
        match before {
            None => Ok(()),
            Some(Ok(before)) => gates::removals(&before, draft, self.site, wishes.allow_removal),
            // A damaged or missing file of the release before must not hold up the next one.
            Some(Err(error)) => {
                let error = self.destination.named().text(&printable(&error));
                ERRORS.log(format_args!(
                    "gannet: not checked for URLs that vanish: {error}"
                ));
                Ok(())
            }
        }
    }

    /// Publishes, says what is in force, and returns that.
    fn publish(
        &self,
        wishes: &Wishes,
        (settings, origins): (PackSettings, &Origins),
        now: u64,
    ) -> Result<Pointer, Failure> {
        let Self {
            destination,
            publisher,
            site,
            ..
        } = *self;
        let store = publisher.store();
        let current = in_force(store, &destination.named())?;
        let was_signed_alike = is_signed_alike(store, self.signer)?;
        let known = last_known(store, current.as_ref())?;
        let before = known.as_ref().map(|it| self.file_of(it));
        let void = wishes.void(store, known.as_ref())?;
        let shown = Shown::of(&settings);
        let packed = match self.is_packed {
            true => self.copy()?,
            false => {
                // What a void release has must not be carried on.
                let is_void = known.as_ref().is_some_and(|it| void.contains(&it.release));
                let before = before.as_ref().and_then(|it| it.as_deref().ok());
                let before = before.filter(|path| !is_void && ArchiveFile::open(path).is_ok());
                self.pack(settings, origins, before, &shown)?
            }
        };
        // The draft goes if a gate refuses it.
        let draft = Draft(publisher);
        let path = publisher.draft_path();
        let release = self.verify(&path, &void)?;
        gates::must_answer(&path, site, &wishes.must)?;
        // Otherwise it is what it was, or will be again.
        if known.as_ref().is_none_or(|it| it.release != release) {
            self.check_removals(before, &path, wishes)?;
            destination.try_to_bring(release);
        }
        if let Some(file) = &wishes.changed {
            self.write_changed(file, (known.as_ref(), &void), now)?;
        }
        let placed = publisher.place(release, |path| stores::holds(path, release))?;
        drop(draft);
        let placed = destination.put(release, placed)?;
        let void = void_list(void, &[], release);
        if let Some(current) = &current
            && was_signed_alike
            && (current.release, current.digest) == (release, placed.digest)
            && !wishes.change(current, &void, now)
        {
            shown.text(&(packed + &in_force_already(current, placed.was_there)))?;
            return Ok(current.clone());
        }
        let next = wishes.next(known.as_ref(), release, placed, void, now);
        let pointer = publisher.next(next, now)?;
        if pointer.replaces.is_none() && wishes.delay() {
            ERRORS.log(format_args!(
                "gannet: a first release is active at once: servers have nothing else to serve"
            ));
        }
        let pruned = destination.commit(&pointer, self.signer, now)?;
        let summary = stores::summary(publisher, &pointer, &pruned, now)?;
        let is_new = Some(", which was there").filter(|_| placed.was_there);
        let is_new = is_new.unwrap_or_default();
        let folder = destination.shown();
        let next = match stores::before(store, &pointer)? {
            Some(before) => format!("back: gannet rollback {folder} {}\n", before.short()),
            None if current.is_none() => format!("next: gannet serve {folder}\n"),
            None => String::new(),
        };
        shown.text(&format!(
            "{packed}{folder}: serial {}, release {release}\n  {:<9} {}{is_new}\n{summary}{next}",
            pointer.serial,
            "size",
            size(placed.size)
        ))?;
        Ok(pointer)
    }

    /// Packs a directory to the draft, with what the release in force has; returns the warnings.
    fn pack(
        &self,
        mut settings: PackSettings,
        origins: &Origins,
        before: Option<&Path>,
        shown: &Shown,
    ) -> Result<String, Failure> {
        settings.output = Some(self.publisher.draft_path());
        let before = before.map(Path::to_path_buf);
        if settings.previous.is_empty() {
            settings.previous.extend(before);
        }
        // A first release has nothing to carry on.
        settings.carry = settings.carry.filter(|_| !settings.previous.is_empty());
        let report = pack::build(self.site, settings, origins, self.signer);
        let report = report.map_err(|failure| self.of_draft(failure))?;
        Ok(shown.warnings(&report))
    }

    /// A failure to write the draft, in terms of the folder that it is in: its name is of no use.
    fn of_draft(&self, failure: Failure) -> Failure {
        let draft = self.publisher.draft_path();
        let folder = draft.parent().unwrap_or(&draft);
        let (draft, folder) = (draft.display().to_string(), folder.display().to_string());
        Failure {
            message: failure.message.replace(&draft, &folder),
            ..failure
        }
    }

    /// An error of the draft, in terms of what the user named.
    fn explained(&self, error: SiteError) -> Failure {
        let failure = Failure::from(error);
        let draft = self.publisher.draft_path();
        let (draft, site) = (draft.display().to_string(), self.site.display().to_string());
        Failure {
            message: failure.message.replace(&draft, &site),
            ..failure
        }
    }
}

/// Removes the draft that was not placed.
struct Draft<'p>(&'p Publisher);

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        self.0.discard();
    }
}

/// Refuses a store inside the site, which would be packed into the next release.
fn refuse_nested(site: &Path, folder: &Path) -> Result<(), Failure> {
    let full = |path: &Path| {
        std::path::absolute(path).and_then(|path| {
            let existing = path.ancestors().find(|it| it.exists()).unwrap_or(&path);
            let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
            Ok(existing.canonicalize()?.join(rest))
        })
    };
    match (full(site), full(folder)) {
        (Ok(site), Ok(inner)) if inner.starts_with(&site) => {
            let cause = "the store is inside the site, whose next release would contain it";
            Err(Failure::new("publish to", folder.display(), cause)
                .help("choose a folder beside the site"))
        }
        _ => Ok(()),
    }
}

/// Checks what packing the site would refuse before it begins, and its rules.
fn check_packing(
    site: &Path,
    store: &OsStr,
    mut settings: PackSettings,
    origins: &Origins,
) -> Result<(), Failure> {
    let folder = Path::new(store);
    // Nothing is written there.
    let above = match () {
        () if is_url(store) => &std::env::temp_dir(),
        () if folder.is_dir() => folder,
        () => folder.parent().unwrap_or(folder),
    };
    settings.output = Some(above.join(".new"));
    // As in a store without a release.
    settings.carry = settings.carry.filter(|_| !settings.previous.is_empty());
    pack::check(site, settings, origins)
}

/// Whether the site is an archive of gannet's.
fn is_packed(site: &Path) -> Result<bool, Failure> {
    let refuse = |error| Failure::of_system("publish", site.display(), &error);
    match std::fs::metadata(site).map_err(refuse)?.is_dir() {
        true => Ok(false),
        false => is_archive(site).map_err(refuse),
    }
}

/// Refuses flags of packing that can have no effect.
fn refuse_idle(site: &Path, is_packed: bool, origins: &Origins) -> Result<(), Failure> {
    for (name, origin) in origins {
        if *origin != Origin::CommandLine {
            continue;
        }
        if is_packed && !["sign", "quiet", "color"].contains(name) {
            let shown = printable(&site.to_string_lossy());
            let cause = format!("--{name} has no effect: '{shown}' is packed already");
            return Err(Failure::usage(cause).help("leave it out, or publish the directory"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_packing_are_refused_where_nothing_is_packed() {
        let check = |name: &'static str, is_packed: bool, expect: &str| {
            let origins = Origins::from([(name, Origin::CommandLine)]);
            let refused = refuse_idle(Path::new("a.gannet"), is_packed, &origins);
            let message = refused.err().map(|it| it.message).unwrap_or_default();
            assert_eq!(message, expect);
        };
        check("best", false, "");
        check(
            "best",
            true,
            "--best has no effect: 'a.gannet' is packed already",
        );
        check("sign", true, "");
    }
}
