//! `gannet releases`: what a store has, or what a server serves.

pub(super) mod node;

use std::cmp::Reverse;
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;

use clap::ArgMatches;
use gannet_server::notices::ERRORS;
use gannet_store::{Earlier, Pointer, ReleaseId, Store, StoreError, time_text};

use super::destination::{self, StoreName, is_url};
use super::{stores, text, write};
use crate::json;
use crate::messages::{Failure, printable};
use crate::quantities::size;

/// Lists all pointers of the log, the newest first, as a table or as JSON.
///
/// # Errors
/// The folder is not a store, or its log cannot be read. A pointer that cannot be used is reported, and
/// left out; if it is the one in force, the status is 1.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let typed = text(matches, "store");
    if typed.to_string_lossy().starts_with("https://") {
        let refused = Failure::usage(format!(
            "cannot ask '{}': a server has its metrics at http://",
            printable(&typed.to_string_lossy())
        ));
        return Err(refused.help(
            "name the address of --metrics, such as http://127.0.0.1:9090, on its machine or \
             through a tunnel",
        ));
    }
    if let Some(address) = typed.to_str().filter(|it| it.starts_with("http://")) {
        if matches.contains_id("public-key") {
            let refused = Failure::usage("--public-key has no effect: a server checks its own");
            return Err(refused.help("leave it out"));
        }
        let served = node::ask(address)?;
        return match matches.get_flag("json") {
            true => write(|out| node::write_json(&served, out)),
            false => write(|out| node::write_table(&served, out)),
        };
    }
    let key = super::public_key(matches)?;
    if is_url(typed) {
        return destination::read(typed, key.as_deref(), |store, named| {
            print_releases(store, named, matches)
        });
    }
    let folder = Path::new(typed);
    let store = Store::open(folder, key.as_deref());
    let store = store.map_err(|error| match is_address(&typed.to_string_lossy()) {
        true => Failure::from(error).help(format!(
            "to query a server: 'gannet releases http://{}', its address of --metrics",
            printable(&typed.to_string_lossy())
        )),
        false => error.into(),
    })?;
    let named = StoreName::of(&store, printable(&folder.to_string_lossy()));
    print_releases(&store, &named, matches)
}

fn print_releases(store: &Store, named: &StoreName, matches: &ArgMatches) -> Result<u8, Failure> {
    let list = List::of(store, named, stores::now())?;
    let status = match matches.get_flag("json") {
        true => write(|out| list.write_json(out)),
        false => write(|out| list.write_table(out)),
    };
    Ok(u8::from(list.is_refused).max(status?))
}

/// Whether a text has the form `HOST:PORT`.
fn is_address(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    parts.is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()
    })
}

/// What the log has, and what became of it.
struct List {
    in_force: Option<Pointer>,
    /// The pointer in force cannot be used.
    is_refused: bool,
    /// The serial of what is served by all servers.
    served: Option<u64>,
    /// When the pointer in force is active everywhere, if that lies ahead.
    staged_until: Option<u64>,
    rows: Vec<Row>,
}

struct Row {
    pointer: Pointer,
    state: &'static str,
}

/// The last release before the current one that servers have taken and can still read.
fn served_before(
    store: &Store,
    current: &Pointer,
    files: &HashSet<ReleaseId>,
    now: u64,
) -> Result<Option<Pointer>, StoreError> {
    let is_served = |it: &Earlier| {
        it.was_active_everywhere()
            && it.pointer.last_activation() <= now
            && files.contains(&it.pointer.release)
    };
    Ok(store.earlier(current)?.find(is_served).map(|it| it.pointer))
}

impl List {
    fn of(store: &Store, named: &StoreName, now: u64) -> Result<Self, Failure> {
        let (in_force, is_refused) = match store.pointer() {
            Ok(pointer) => (Some(pointer), false),
            Err(StoreError::Empty(_)) => (None, false),
            Err(error) => {
                named.explained(error.into()).report();
                (None, true)
            }
        };
        let history = store.history()?;
        for skipped in history.skipped {
            let error = named.text(&printable(&skipped.error.to_string()));
            ERRORS.log(format_args!("gannet: {error}"));
        }
        let mut list = Self {
            in_force,
            is_refused,
            served: None,
            staged_until: None,
            rows: Vec::new(),
        };
        let mut pointers = history.pointers;
        let Some(current) = &list.in_force else {
            let unknown = |pointer| Row {
                pointer,
                state: "unknown",
            };
            list.rows = pointers.into_iter().map(unknown).collect();
            return Ok(list);
        };
        if current.is_expired(now) {
            let expired = StoreError::Expired(store.pointer_path(), current.serial);
            named.explained(expired.into()).report();
        }
        if pointers.iter().all(|it| it.serial != current.serial) {
            // A copy of a store without its log.
            pointers.push(current.clone());
            pointers.sort_unstable_by_key(|it| Reverse(it.serial));
        }
        let files: HashSet<_> = store.releases()?.into_iter().collect();
        let were_in_force = serials_in_force(&pointers, current);
        let served = match current.last_activation() <= now && files.contains(&current.release) {
            true => None,
            false => served_before(store, current, &files, now)?,
        };
        // With nothing before it, servers do not wait for it.
        let served = served.as_ref().unwrap_or(current);
        let is_staged = served.serial != current.serial && current.last_activation() > now;
        list.staged_until = is_staged.then(|| current.last_activation());
        list.served = files.contains(&served.release).then_some(served.serial);
        let kept = store.kept(current, now)?.releases;
        let kept: HashSet<u64> = kept.iter().map(|it| it.pointer.serial).collect();
        let mut seen = HashSet::new();
        list.rows.reserve(pointers.len());
        for pointer in pointers {
            let (serial, release) = (pointer.serial, pointer.release);
            let has_file = files.contains(&release);
            let state = match () {
                () if list.served == Some(serial) => "current",
                () if serial == current.serial && is_staged && has_file => "staged",
                () if current.void.contains(&release) => "void",
                () if !has_file => "gone",
                () if !were_in_force.contains(&serial) => "unfinished",
                () if kept.contains(&serial) => "kept",
                () if seen.contains(&release) => "repeated",
                () => "over",
            };
            if ["current", "staged", "kept"].contains(&state) {
                seen.insert(release);
            }
            list.rows.push(Row { pointer, state });
        }
        Ok(list)
    }

    fn is_in_force(&self, row: &Row) -> bool {
        let current = self.in_force.as_ref();
        current.is_some_and(|it| it.serial == row.pointer.serial)
    }

    fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.rows.is_empty() && self.is_refused {
            return Ok(());
        }
        if self.rows.is_empty() {
            return writeln!(out, "nothing has been published yet");
        }
        writeln!(
            out,
            "  {:>6}  {:<32}  {:<20}  {:<10}  {:>10}  note",
            "serial", "release", "published", "state", "size"
        )?;
        for row in &self.rows {
            let pointer = &row.pointer;
            let is_served = self.served == Some(pointer.serial);
            let star = if is_served { '*' } else { ' ' };
            let line = format!(
                "{star} {:>6}  {}  {}  {:<10}  {:>10}  {}",
                pointer.serial,
                pointer.release,
                time_text(pointer.published),
                row.state,
                size(pointer.size),
                printable(&pointer.note)
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        if let (Some(current), Some(until)) = (&self.in_force, self.staged_until) {
            let begin = match current.stages.first() {
                Some(first) => {
                    let begin = current.activate.unwrap_or(current.published) + first.after_s;
                    format!("in stages from {} ", time_text(begin))
                }
                None => String::new(),
            };
            let (serial, until) = (current.serial, time_text(until));
            write!(out, "\nstaged: serial {serial}, {begin}until {until}")?;
            let is_served = |it: &&Row| self.served == Some(it.pointer.serial);
            if let Some(Row { pointer, .. }) = self.rows.iter().find(is_served) {
                let is_void = current.void.contains(&pointer.release);
                let void = if is_void { ", though void" } else { "" };
                write!(out, "; served: serial {}{void}", pointer.serial)?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{{\"releases\": [")?;
        for (index, row) in self.rows.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(out, "{comma}\n  {}", self.row_json(row))?;
        }
        let number = |serial: Option<u64>| serial.map_or("null".to_owned(), |it| it.to_string());
        let time = |moment: Option<u64>| match moment {
            Some(moment) => format!("\"{}\"", time_text(moment)),
            None => "null".to_owned(),
        };
        writeln!(
            out,
            "\n], \"served\": {}, \"staged_until\": {}}}",
            number(self.served),
            time(self.staged_until)
        )
    }

    fn row_json(&self, row: &Row) -> String {
        let pointer = &row.pointer;
        let time = |moment: Option<u64>| match moment {
            Some(moment) => format!("\"{}\"", time_text(moment)),
            None => "null".to_owned(),
        };
        let void = pointer.void.iter().map(ToString::to_string);
        let stages = pointer.stages.iter().map(|stage| {
            let (percent, after_s) = (stage.percent, stage.after_s);
            format!("{{\"percent\": {percent}, \"after_s\": {after_s}}}")
        });
        format!(
            "{{\"serial\": {}, \"release\": \"{}\", \"in_force\": {}, \"state\": \"{}\", \
             \"published\": {}, \"publisher\": {}, \"size\": {}, \"activate\": {}, \
             \"stages\": [{}], \"keep\": \"{}\", \"void\": {}, \"expires\": {}, \"note\": {}}}",
            pointer.serial,
            pointer.release,
            self.is_in_force(row),
            row.state,
            time(Some(pointer.published)),
            json::string(&pointer.publisher),
            pointer.size,
            time(pointer.activate),
            stages.collect::<Vec<_>>().join(", "),
            pointer.keep,
            json::strings(void),
            time(pointer.expires),
            json::string(&pointer.note)
        )
    }
}

/// The serials of the pointers that were in force, up to the current one: each of them says which
/// one it replaces. Past one that cannot be used, the next lower one counts.
fn serials_in_force(pointers: &[Pointer], current: &Pointer) -> HashSet<u64> {
    let mut serials = HashSet::from([current.serial]);
    let mut replaced = current.replaces;
    for pointer in pointers.iter().filter(|it| it.serial < current.serial) {
        match replaced {
            None => break,
            Some(serial) if pointer.serial > serial => {}
            Some(_) => {
                serials.insert(pointer.serial);
                replaced = pointer.replaces;
            }
        }
    }
    serials
}
