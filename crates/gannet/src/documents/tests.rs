//! The command lines of the manual: whatever a reader copies from it has to exist.

use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

use crate::command_line::arguments::{Form, command, parse};

/// A command line of a page.
#[derive(Debug)]
struct Shown {
    /// Line of the page, from 1.
    line: usize,
    /// The program and its arguments.
    words: Vec<String>,
    /// The line below it, where a program's answer may be.
    answer: String,
    /// Part of a sentence, where arguments that do not matter there are left out.
    is_mention: bool,
}

impl Shown {
    /// What is wrong with it.
    fn mistake(&self) -> Option<String> {
        let typed: Vec<_> = self.words.iter().map(Into::into).collect();
        let message = parse(&typed).err()?.message;
        let is_partial = || {
            let parsed = command(Form::Parsing).try_get_matches_from(&typed);
            parsed.is_err_and(|error| error.kind() == ErrorKind::MissingRequiredArgument)
        };
        let is_shown = self.answer == format!("gannet: {message}");
        let is_meant = is_shown || self.is_mention && is_partial();
        (!is_meant).then(|| format!("line {}: {message}", self.line))
    }
}

/// The command lines of this program in a page.
fn commands_in(page: &str) -> Vec<Shown> {
    let mut found = Vec::new();
    // The language of the block of code that the line is in.
    let mut block: Option<&str> = None;
    let mut lines = page.lines().enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            block = block.is_none().then_some(language);
            continue;
        }
        let typed = match block {
            Some("sh") => Some(line),
            Some("console") => line.strip_prefix("$ "),
            Some("ini") => line.strip_prefix("ExecStart="),
            // Headings of the reference are usages.
            None if !line.starts_with('#') => {
                // A table escapes the bars in its cells.
                let line = line.replace("\\|", "|");
                let mentioned = line.split('`').skip(1).step_by(2);
                found.extend(mentioned.flat_map(commands).map(|words| Shown {
                    line: index + 1,
                    words,
                    answer: String::new(),
                    is_mention: true,
                }));
                None
            }
            _ => None,
        };
        let Some(mut typed) = typed.map(str::to_owned) else {
            continue;
        };
        while typed.ends_with('\\') {
            typed.pop();
            typed += lines.next().map_or("", |(_, line)| line);
        }
        let answer = lines.peek().map_or("", |(_, line)| line);
        found.extend(commands(&typed).into_iter().map(|words| Shown {
            line: index + 1,
            words,
            answer: answer.to_owned(),
            is_mention: false,
        }));
    }
    found
}

/// The words of each command of this program in a line of the shell, without redirections.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let (mut word, mut quote, mut is_redirected) = (None::<String>, None, false);
    let mut letters = line.chars().chain(['\n']);
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(end), _) if letter == end => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '\\') => word.get_or_insert_default().extend(letters.next()),
            (None, ' ' | '\n' | '&' | '|' | ';' | '<' | '>') => {
                if let Some(word) = word.take()
                    && !std::mem::take(&mut is_redirected)
                {
                    all.last_mut().expect("there is always one").push(word);
                }
                match letter {
                    '<' | '>' => is_redirected = true,
                    '&' | '|' | ';' => all.push(Vec::new()),
                    _ => {}
                }
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    all.into_iter().filter_map(of_this_program).collect()
}

/// A command without what may precede the program's name, if it is this program.
fn of_this_program(mut words: Vec<String>) -> Option<Vec<String>> {
    let is_before = |word: &&String| *word == "sudo" || word.contains('=');
    words.drain(..words.iter().take_while(is_before).count());
    let name = Path::new(words.first()?).file_name()?;
    (name == "gannet").then_some(words)
}

/// The pages whose readers type commands.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manual = fs::read_dir(root.join("docs/manual")).expect("the manual is there");
    let manual = manual.map(|entry| entry.expect("it can be read").path());
    manual.chain([root.join("README.md")]).collect()
}

#[test]
fn the_commands_of_the_manual_exist() {
    let mut mistakes = Vec::new();
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page of text");
        let shown = commands_in(&text);
        count += shown.len();
        let here = shown.iter().filter_map(Shown::mistake);
        mistakes.extend(here.map(|mistake| format!("{}, {mistake}", page.display())));
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(count > 200, "only {count} commands were found");
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    let check = |page: &str, expect: &[&str]| {
        let shown = commands_in(page);
        let mistakes: Vec<_> = shown.iter().filter_map(Shown::mistake).collect();
        assert_eq!(mistakes, expect, "{page}: {shown:?}");
    };
    let sh = |line: &str| format!("```sh\n{line}\n```\n");
    let unknown = ["line 2: unknown flag '--cert'"];
    check(&sh("gannet serve ./site --cert a.pem"), &unknown);
    check(&sh("sudo gannet ./site \\\n  --cert a.pem"), &unknown);
    check(&sh("A=b /usr/bin/gannet --cert a.pem &"), &unknown);
    check(&sh("cd site && gannet . --cert a.pem | cat"), &unknown);
    check(&sh("gannet pack ./site -o 'a b' # --cert"), &[]);
    check(&sh("gannet cert > authority.pem; gannet ."), &[]);
    check(
        &sh("gannet cert >> a b"),
        &["line 2: unexpected argument 'b'"],
    );
    check(&sh("gannet ls"), &["line 2: missing <ARCHIVE>"]);
    check(&sh("cargo gannet --cert"), &[]);
    check(
        "```console\n$ gannet --cert\ngannet --cert\n```\n",
        &unknown,
    );
    check(
        "```console\n$ gannet --cert\ngannet: unknown flag '--cert'\n```\n",
        &[],
    );
    check(
        "```ini\nExecStart=/bin/gannet --cert a.pem\n```\n",
        &unknown,
    );
    check("```text\ngannet --cert\n```\n", &[]);
    check(
        "With `gannet ls --cert` or `gannet ls --json`.\n",
        &["line 1: unknown flag '--cert'"],
    );
}
