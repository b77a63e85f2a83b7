//! The reference page of the manual: `docs/manual/reference.md`.

use std::fmt::Write;

use crate::command_line::arguments::ACTIONS;
use crate::command_line::commands::{self, COMMANDS, Table};
use crate::command_line::flag::{Description, Group};
use crate::documents::help::{capitalised, sentence};
use crate::documents::passages::{
    CONFIGURATION, EXAMPLES, EXIT_STATUSES, LATER_VERSIONS, LAYERS, SIGNALS,
};

/// The page, in Markdown.
#[must_use]
pub fn render() -> String {
    let mut page = String::from(
        "<!-- Made by `gannet reference` from the program's own tables; a test compares. -->\n\n\
         # Reference\n\n\
         Every flag, environment variable, configuration key and command of gannet. The same texts\n\
         are in `gannet --help-all` and in the manual page (`gannet help --man`).\n\n\
         ```text\ngannet [OPTIONS] [PATH]\n",
    );
    for command in COMMANDS {
        let _ = writeln!(page, "{}", command.usage());
    }
    page.push_str("```\n\n## Examples\n\n");
    rows(&mut page, ["Command", "What it does"], EXAMPLES, true);
    let _ = write!(
        page,
        "\n## Configuration\n\n{}\n\n```toml\n{CONFIGURATION}```\n",
        plain(LAYERS)
    );
    page.push_str("\n### Later versions\n\n");
    for promise in LATER_VERSIONS {
        let _ = writeln!(page, "- {}", plain(promise));
    }
    page.push_str("\n## Flags\n");
    tables(&mut page, Table::Serve, "###");
    page.push_str("\n### Configuration and help\n\n| Flag | |\n|---|---|\n");
    for (name, letter, value, brief) in ACTIONS {
        let letter = letter.map_or(String::new(), |letter| format!("-{letter}, "));
        let shape = format!("{letter}--{name} {value}");
        let _ = writeln!(
            page,
            "| `{}` | {} |",
            shape.trim_end(),
            plain(&capitalised(brief))
        );
    }
    page.push_str("\n## Commands\n");
    for command in COMMANDS {
        let text = format!("{} {}", capitalised(command.brief), command.details);
        let _ = write!(
            page,
            "\n### `{}`\n\n{}\n",
            command.usage(),
            plain(text.trim_end())
        );
        let _ = write!(page, "\n```sh\n{}\n```\n", command.example);
        if !command.arguments.is_empty() {
            page.push_str("\n| Argument | |\n|---|---|\n");
        }
        for argument in command.arguments {
            let text = plain(&capitalised(argument.brief));
            let _ = writeln!(page, "| `{}` | {text} |", argument.usage());
        }
        if command.name == "pack" {
            tables(&mut page, Table::Pack, "####");
        }
    }
    page.push_str("\n## Signals\n\n");
    rows(&mut page, ["Signal", "What it does"], SIGNALS, true);
    page.push_str("\n## Exit status\n\n");
    rows(&mut page, ["Status", "Meaning"], EXIT_STATUSES, false);
    page
}

fn tables(page: &mut String, table: Table, heading: &str) {
    let flags = commands::flags(table);
    for group in Group::ALL {
        let mut flags = flags.iter().filter(|flag| flag.group == group).peekable();
        if flags.peek().is_none() {
            continue;
        }
        let _ = write!(page, "\n{heading} {}\n\n", group.title());
        page.push_str(match group {
            Group::Keys => "| Key | |\n|---|---|\n",
            _ => "| Flag | Variable | Key | |\n|---|---|---|---|\n",
        });
        for flag in flags {
            flag_row(page, flag);
        }
    }
}

fn flag_row(page: &mut String, flag: &Description) {
    let text = plain(&sentence(flag));
    if flag.is_key() {
        let _ = writeln!(page, "| `{}` | {text} |", flag.usage());
        return;
    }
    let (usage, variable, key) = (flag.usage(), flag.variable(), flag.key());
    let _ = writeln!(page, "| `{usage}` | `{variable}` | `{key}` | {text} |");
}

fn rows(page: &mut String, head: [&str; 2], rows: &[(&str, &str)], is_code: bool) {
    let _ = write!(page, "| {} | {} |\n|---|---|\n", head[0], head[1]);
    let tick = if is_code { "`" } else { "" };
    for (name, text) in rows {
        let name = name.replace('|', "\\|");
        let _ = writeln!(
            page,
            "| {tick}{name}{tick} | {} |",
            plain(&capitalised(text))
        );
    }
}

/// Escapes characters that are special in Markdown.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '|' | '*' | '_' | '<' | '`') {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_committed_page_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/reference.md");
        let page = render();
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, &page).expect("the page can be written");
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == page,
            "docs/manual/reference.md is not what the tables say; \
             UPDATE_EXPECT=1 cargo test -p gannet rewrites it"
        );
    }
}
