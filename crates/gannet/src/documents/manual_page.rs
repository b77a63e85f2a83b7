//! The manual page `gannet(1)`, for `gannet help --man`.

use roff::{Inline, Roff, bold, italic, roman};

use crate::command_line::arguments::ACTIONS;
use crate::command_line::commands::{self, COMMANDS, Table};
use crate::command_line::flag::{Description, Group, Value};
use crate::documents::help::{capitalised, sentence};
use crate::documents::passages::{
    CONFIGURATION, EXAMPLES, EXIT_STATUSES, LATER_VERSIONS, LAYERS, SIGNALS,
};

/// The page, in roff.
#[must_use]
pub fn render() -> String {
    let mut page = Roff::new();
    let version = concat!("gannet ", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["GANNET", "1", "", version]);
    page.control("SH", ["NAME"]);
    page.text([roman("gannet - a static web server for Linux")]);
    synopsis(&mut page);
    page.control("SH", ["DESCRIPTION"]);
    page.text([
        bold("gannet"),
        roman(
            " serves a live directory, a single file, or a whole site compiled into one archive, \
             over HTTP/1.0, HTTP/1.1, HTTP/2 and HTTP/3. It listens on loopback unless you name \
             another address. \
             Sub-commands make archives and look into them.",
        ),
    ]);
    page.control("SH", ["OPTIONS"]);
    tables(&mut page, Table::Serve);
    page.control("SS", ["Configuration and help"]);
    for (name, letter, value, brief) in ACTIONS {
        let letter = letter.map_or(String::new(), |letter| format!("-{letter}, "));
        entry(
            &mut page,
            &format!("{letter}--{name}"),
            value,
            &capitalised(brief),
        );
    }
    commands_section(&mut page);
    page.control("SH", ["ENVIRONMENT AND CONFIGURATION"]);
    page.text([roman(LAYERS)]);
    page.control("PP", []);
    literal(&mut page, CONFIGURATION);
    for promise in LATER_VERSIONS {
        page.control("PP", []);
        page.text([roman(*promise)]);
    }
    for (title, rows) in [("SIGNALS", SIGNALS), ("EXIT STATUS", EXIT_STATUSES)] {
        page.control("SH", [title]);
        for (name, text) in rows {
            entry(&mut page, name, "", &capitalised(text));
        }
    }
    page.control("SH", ["EXAMPLES"]);
    for (line, text) in EXAMPLES {
        entry(&mut page, line, "", &capitalised(text));
    }
    page.render()
}

fn synopsis(page: &mut Roff) {
    page.control("SH", ["SYNOPSIS"]);
    page.text([
        bold("gannet"),
        roman(" ["),
        italic("OPTIONS"),
        roman("] ["),
        italic("PATH"),
        roman("]"),
    ]);
    for command in COMMANDS {
        page.control("br", []);
        page.text([roman(command.usage())]);
    }
}

fn tables(page: &mut Roff, table: Table) {
    let flags = commands::flags(table);
    for group in Group::ALL {
        let mut flags = flags.iter().filter(|flag| flag.group == group).peekable();
        if flags.peek().is_some() && table == Table::Serve {
            page.control("SS", [group.title()]);
        }
        for flag in flags {
            flag_entry(page, flag);
        }
    }
}

fn flag_entry(page: &mut Roff, flag: &Description) {
    if flag.is_key() {
        entry(page, flag.name, flag.value_name(), &sentence(flag));
        return;
    }
    let name = match (flag.value, flag.short) {
        (Value::Positional { .. }, _) => String::new(),
        (_, Some(letter)) => format!("-{letter}, --{}", flag.name),
        (_, None) => format!("--{}", flag.name),
    };
    entry(page, &name, flag.value_name(), &sentence(flag));
    page.control("br", []);
    page.text([
        roman("Variable "),
        bold(flag.variable()),
        roman(", key "),
        bold(flag.key()),
        roman("."),
    ]);
}

fn commands_section(page: &mut Roff) {
    page.control("SH", ["COMMANDS"]);
    for command in COMMANDS {
        page.control("SS", [command.name]);
        page.text([roman(command.usage())]);
        page.control("PP", []);
        page.text([roman(format!(
            "{} {}",
            capitalised(command.brief),
            command.details
        ))]);
        for argument in command.arguments {
            entry(page, &argument.usage(), "", &capitalised(argument.brief));
        }
        if command.name == "pack" {
            tables(page, Table::Pack);
        }
    }
}

/// A tagged paragraph.
fn entry(page: &mut Roff, name: &str, value: &str, text: &str) {
    page.control("TP", []);
    let mut tag: Vec<Inline> = vec![bold(name)];
    if !value.is_empty() {
        let space = if name.is_empty() { "" } else { " " };
        tag.extend([roman(space), italic(value)]);
    }
    page.text(tag);
    page.text([roman(text)]);
}

fn literal(page: &mut Roff, text: &str) {
    page.control("nf", []);
    for line in text.lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_describes_every_flag_and_command() {
        // Roff writes the hyphens of options as \-.
        let page = render().replace("\\-", "-").replace("\\&", "");
        for flag in commands::all_flags() {
            let name = match flag.is_key() {
                true => flag.name.to_owned(),
                false => flag.variable(),
            };
            assert!(page.contains(&name), "{}", flag.name);
        }
        for command in COMMANDS {
            assert!(
                page.contains(&format!(".SS {}", command.name)),
                "{}",
                command.name
            );
        }
    }
}
