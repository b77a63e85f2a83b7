//! `gannet releases`: what a store has, or what a server serves.

mod node;

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap::ArgMatches;
use gannet_server::notices::ERRORS;
use gannet_store::{Pointer, ReleaseId, Store, StoreError, time_text};

use super::{stores, text, write};
use crate::command_line::values;
use crate::json;
use crate::messages::{Failure, printable};
use crate::quantities::size;

/// Lists all pointers of the log, the newest first, as a table or as JSON.
///
/// # Errors
/// The folder is not a store, or its log cannot be read. A pointer that cannot be used is told, and
/// left out.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let typed = text(matches, "store");
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
    let folder = Path::new(typed);
    let key = match matches.get_one::<OsString>("public-key") {
        None => None,
        Some(key) => {
            let shown = printable(&key.to_string_lossy());
            let read = key
                .to_str()
                .ok_or("not UTF-8".to_owned())
                .and_then(values::public_key);
            Some(read.map_err(|cause| {
                Failure::usage(format!("cannot use '--public-key {shown}': {cause}"))
                    .help("give the line of Base64 in the .pub file, or the name of that file")
            })?)
        }
    };
    let store = Store::open(folder, key.as_deref())?;
    let list = List::of(&store, stores::now())?;
    match matches.get_flag("json") {
        true => write(|out| list.write_json(out)),
        false => write(|out| list.write_table(out)),
    }
}

/// What the log has, and what became of it.
struct List {
    in_force: Option<Pointer>,
    rows: Vec<Row>,
}

struct Row {
    pointer: Pointer,
    state: &'static str,
}

impl List {
    fn of(store: &Store, now: u64) -> Result<Self, Failure> {
        let in_force = match store.pointer() {
            Ok(pointer) => Some(pointer),
            Err(StoreError::Empty(_)) => None,
            Err(error) => {
                Failure::from(error).report();
                None
            }
        };
        let history = store.history()?;
        for skipped in history.skipped {
            ERRORS.tell(format_args!(
                "gannet: {}",
                printable(&skipped.error.to_string())
            ));
        }
        let mut kept = HashSet::new();
        let mut were_in_force = HashSet::new();
        if let Some(current) = &in_force {
            let found = store.kept(current, now)?;
            kept.extend(found.pointers.iter().map(|it| it.release));
            were_in_force.extend(store.earlier(current)?.iter().map(|it| it.serial));
        }
        let state = |pointer: &Pointer| {
            let release = pointer.release;
            let current = in_force.as_ref();
            let is_current = |id: ReleaseId| current.is_some_and(|it| it.release == id);
            let is_settled = current.is_none_or(|it| it.settled() <= now);
            match current {
                Some(it) if it.serial == pointer.serial && !is_settled => "staged",
                _ if is_current(release) => "current",
                Some(it) if it.void.contains(&release) => "void",
                _ if !store.release_path(release).is_file() => "gone",
                None => "unknown",
                Some(_) if !were_in_force.contains(&pointer.serial) => "unfinished",
                _ if kept.contains(&release) => "kept",
                _ => "over",
            }
        };
        let rows = history.pointers.into_iter().map(|pointer| Row {
            state: state(&pointer),
            pointer,
        });
        Ok(Self {
            rows: rows.collect(),
            in_force,
        })
    }

    fn is_in_force(&self, row: &Row) -> bool {
        let current = self.in_force.as_ref();
        current.is_some_and(|it| it.serial == row.pointer.serial)
    }

    fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
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
            let star = if self.is_in_force(row) { '*' } else { ' ' };
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
        Ok(())
    }

    fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{{\"releases\": [")?;
        for (index, row) in self.rows.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(out, "{comma}\n  {}", self.row_json(row))?;
        }
        writeln!(out, "\n]}}")
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
