//! What the flags of `gannet publish` ask of the next pointer.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ArgMatches;
use gannet_store::{Keep, Next, Placed, Pointer, ReleaseId, Stage, Store};

use super::awaiting;
use crate::commands::stores::{moment, note, release};
use crate::commands::texts;
use crate::messages::{Failure, printable};

/// The wishes; `None` where there is none. An empty text takes back what is inherited.
pub(super) struct Wishes {
    activate: Option<u64>,
    /// Empty for all nodes together.
    stages: Option<Vec<Stage>>,
    keep: Option<Keep>,
    /// Empty for none.
    note: Option<String>,
    /// `Some(None)` for never.
    expires: Option<Option<u64>>,
    /// As typed: ids, or `none`.
    void: Vec<String>,
    /// URLs that have to be answered.
    pub(super) must: Vec<String>,
    /// URLs that may vanish.
    pub(super) allow_removal: Option<u64>,
    /// Where to list the URLs whose answers change.
    pub(super) changed: Option<PathBuf>,
    /// Servers that have to serve the release before the command ends.
    pub(super) wait: Vec<String>,
}

impl Wishes {
    pub(super) fn of(matches: &ArgMatches, now: u64) -> Result<Self, Failure> {
        let typed = |name: &str| {
            let value = matches.get_one::<OsString>(name);
            value.map(|it| it.to_string_lossy().into_owned())
        };
        let refuse = |name: &'static str, text: &str, why: &str| {
            let text = printable(text);
            Failure::usage(format!("cannot use '--{name} {text}': {why}"))
                .help("see 'gannet publish --help'")
        };
        let stages = typed("stages").map(|text| {
            if text.is_empty() {
                return Ok(Vec::new());
            }
            let items: Vec<_> = text.split(',').map(str::trim).collect();
            Stage::parse_list(&items.join(", ")).map_err(|why| refuse("stages", &text, why))
        });
        let keep = typed("keep").map(|text| {
            let words: Vec<_> = text.split_whitespace().collect();
            Keep::parse(&words.join(" ")).map_err(|why| refuse("keep", &text, why))
        });
        let allowed = typed("allow-removal").map(|text| {
            let refuse = |_| refuse("allow-removal", &text, "not a number");
            text.parse().map_err(refuse)
        });
        let expires = typed("expires").map(|text| match &*text {
            "" => Ok(None),
            text => match moment("expires", text, now)? {
                passed if passed <= now => Err(refuse("expires", text, "it has passed already")),
                moment => Ok(Some(moment)),
            },
        });
        let wait = texts(matches, "wait");
        wait.iter().try_for_each(|server| awaiting::check(server))?;
        let activate = typed("activate").map(|it| moment("activate", &it, now));
        Ok(Self {
            activate: activate.transpose()?,
            stages: stages.transpose()?,
            keep: keep.transpose()?,
            note: typed("note").map(|text| note(&text)).transpose()?,
            expires: expires.transpose()?,
            void: texts(matches, "void"),
            must: texts(matches, "must"),
            allow_removal: allowed.transpose()?,
            changed: matches.get_one::<OsString>("changed").map(PathBuf::from),
            wait,
        })
    }

    /// All void releases: those named, and those that were void before unless `none` is named.
    pub(super) fn void(
        &self,
        store: &Store,
        current: Option<&Pointer>,
    ) -> Result<Vec<ReleaseId>, Failure> {
        let named = self.void.iter().filter(|typed| *typed != "none");
        let mut void = Vec::new();
        for typed in named {
            void.push(release(store, typed)?);
        }
        if let Some(current) = current.filter(|_| !self.void.iter().any(|it| it == "none")) {
            void.extend(&current.void);
        }
        Ok(void)
    }

    /// Whether they ask for another pointer, though the release stays. A moment of activation does
    /// not after the release has been activated everywhere: a job that publishes after every build
    /// gives it each time.
    pub(super) fn change(&self, current: &Pointer, void: &[ReleaseId], now: u64) -> bool {
        let is_other = |stages: &Vec<Stage>| *stages != current.stages;
        void != current.void
            || self.keep.is_some_and(|keep| keep != current.keep)
            || self.stages.as_ref().is_some_and(is_other)
            || self.note.as_ref().is_some_and(|it| *it != current.note)
            || self
                .expires
                .is_some_and(|it| it.or(current.expires).is_some())
            || self.activate.is_some() && current.last_activation() > now
    }

    /// Whether nodes are to wait.
    pub(super) fn delay(&self) -> bool {
        self.activate.is_some() || self.stages.as_ref().is_some_and(|it| !it.is_empty())
    }

    /// The next pointer. What is kept stays as it was; if the release stays too, so does everything
    /// that no flag names.
    pub(super) fn next(
        &self,
        current: Option<&Pointer>,
        release: ReleaseId,
        placed: Placed,
        void: Vec<ReleaseId>,
        now: u64,
    ) -> Next {
        let keep = self.keep.or(current.map(|it| it.keep));
        let same = current.filter(|it| it.release == release);
        let stages = || Some(same?.stages.clone());
        let note = || Some(same?.note.clone());
        let begin = || match same? {
            it if self.stages.is_some() => it.activate.filter(|moment| *moment > now),
            it if it.stages.is_empty() => it.activate,
            // Stages continue from where they started.
            it => Some(it.activate.unwrap_or(it.published)),
        };
        Next {
            release,
            placed,
            activate: self.activate.or_else(begin),
            stages: self.stages.clone().or_else(stages).unwrap_or_default(),
            keep: keep.unwrap_or_default(),
            void,
            note: self.note.clone().or_else(note).unwrap_or_default(),
            expires: match self.expires {
                Some(wish) => wish,
                None => same.and_then(|it| it.expires),
            },
        }
    }
}
