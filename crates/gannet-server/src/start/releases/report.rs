//! Reports the releases of one content: on the board, and to people.

use std::fmt::Arguments;
use std::path::Path;
use std::sync::Arc;

use super::origin::{Refusal, UNREADABLE};
use crate::bounds::limits::LATE_S;
use crate::observe::board::{Board, ContentFacts, ReleaseFacts, ReleaseState};
use crate::release::opened::OpenedArchive;
use crate::watch::notices::Channel;

/// See the module documentation.
pub(super) struct Report {
    board: Arc<Board>,
    /// Number of the content on the board.
    number: usize,
    messages: &'static Channel,
    /// The operator's name of the content.
    name: String,
    /// The last refusal, which is reported once.
    refused: Option<String>,
}

impl Drop for Report {
    fn drop(&mut self) {
        self.board.remove(self.number);
    }
}

impl Report {
    pub(super) fn new(
        board: Arc<Board>,
        messages: &'static Channel,
        name: &Path,
        now: u64,
    ) -> Self {
        let name = name.display().to_string();
        let number = board.add(ContentFacts {
            name: name.clone(),
            activated: now,
            checked: now,
            ..ContentFacts::default()
        });
        Self {
            board,
            number,
            messages,
            name,
            refused: None,
        }
    }

    /// Logs a line about this content.
    pub(super) fn log(&self, text: Arguments<'_>) {
        let name = &self.name;
        self.messages.log(format_args!("gannet: '{name}': {text}"));
    }

    /// A pointer or a release is refused, and `serving` is served on.
    pub(super) fn refused(&mut self, refusal: &Refusal, serving: &str, now: u64) {
        self.change(|facts| {
            *facts.refused.entry(refusal.reason).or_default() += 1;
            facts.refusal = Some(refusal.text.clone());
            if refusal.reason != UNREADABLE {
                facts.checked = now;
            }
        });
        if self.refused.as_ref() == Some(&refusal.text) {
            return;
        }
        self.refused = Some(refusal.text.clone());
        self.log(format_args!(
            "refused the new release: {}; still serving release {serving}",
            refusal.text
        ));
    }

    /// The file of the current release is not what was published.
    pub(super) fn current_is_bad(&self, refusal: &Refusal, serving: &str) {
        self.change(|facts| *facts.refused.entry(refusal.reason).or_default() += 1);
        self.log(format_args!(
            "release {serving} is served, but not as it was published: {}; publish the site again, \
             or roll back",
            refusal.text
        ));
    }

    /// The origin's pointer has expired, which is reported once.
    pub(super) fn expired(&mut self, text: String, serving: &str) {
        if self.refused.as_ref() != Some(&text) {
            self.change(|facts| *facts.refused.entry("expired").or_default() += 1);
            self.log(format_args!("{text}; still serving release {serving}"));
            self.refused = Some(text);
        }
    }

    /// What the origin has is current or staged: another refusal will be a new one.
    pub(super) fn accepted(&mut self) {
        if self.refused.take().is_some() {
            self.change(|facts| facts.refusal = None);
        }
    }

    /// The origin was read, and has nothing new.
    pub(super) fn checked(&self, now: u64) {
        self.change(|facts| facts.checked = now);
    }

    pub(super) fn activated(&self, now: u64) {
        self.change(|facts| facts.activated = now);
    }

    /// A release is to be activated at this moment (Unix seconds), and is late some seconds after it;
    /// `None`: there is no such release.
    pub(super) fn due(&self, activation: Option<u64>) {
        let late_from = activation.map(|activation| activation.saturating_add(LATE_S));
        self.change(|facts| facts.late_from = late_from);
    }

    /// Writes the releases on the board.
    pub(super) fn releases<'a>(
        &self,
        current: &OpenedArchive,
        staged: impl Iterator<Item = &'a OpenedArchive>,
        kept: impl Iterator<Item = &'a OpenedArchive>,
        serial: Option<u64>,
    ) {
        let of = |archive: &OpenedArchive, state| ReleaseFacts {
            id: archive.short_id(),
            state,
            kept_answers: Arc::clone(&archive.kept_answers),
            partial: archive.partial.as_ref().and_then(|it| it.file.clone()),
        };
        let staged = staged.map(|it| of(it, ReleaseState::Staged));
        let kept = kept.map(|it| of(it, ReleaseState::Kept));
        let current = [of(current, ReleaseState::Current)].into_iter();
        let releases = current.chain(staged).chain(kept).collect();
        self.change(|facts| {
            facts.releases = releases;
            facts.serial = serial;
        });
    }

    fn change(&self, change: impl FnOnce(&mut ContentFacts)) {
        self.board.change(self.number, change);
    }
}
