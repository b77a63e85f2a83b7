//! Decides which files are excluded from an archive, and by which rule.
//!
//! Patterns have gitignore's syntax and semantics: the last match decides. Sources are consulted in
//! this order, and the first with a match decides: `--include` and `--exclude`, the `.gannetignore`
//! files from the file's own folder up to the site's root, the list below. An excluded folder is
//! not searched, so nothing in it can be included again.

use std::fs;
use std::io;
use std::path::Path;

use gannet_io::driver::Root;
use gannet_io::named_file;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::walk::no_file;
use super::{PackError, PackOptions};

/// Maximum length in bytes of a patterns file; real ones have a few hundred.
const PATTERNS_FILE_MAX: u64 = 1 << 20;

/// The name of a folder's patterns file.
pub(super) const FILE_NAME: &str = ".gannetignore";

/// Excluded by default: hidden files, leftovers of editors and desktops, private files of programs,
/// and leftovers of `gannet pack .`.
const DEFAULTS: &[&str] = &[
    ".*",
    "!/.well-known",
    ".DS_Store",
    "Thumbs.db",
    "desktop.ini",
    "*~",
    "\\#*#",
    "*.swp",
    "*.tmp",
    "*.temp",
    "*.log",
    "*.lock",
    "*.gannet",
];

/// How many entries of the list concern dotfiles.
const DOTFILES: usize = 2;

/// All sources of patterns that apply at one point of a walk.
#[derive(Debug)]
pub(super) struct IgnoreRules {
    asked: Gitignore,
    /// Those of the folders from the root to the current one.
    folders: Vec<Option<Gitignore>>,
    defaults: Gitignore,
}

impl IgnoreRules {
    /// Creates the sources outside the site.
    ///
    /// # Errors
    /// A pattern of the options is malformed.
    pub(super) fn new(options: &PackOptions, root: &Path) -> Result<Self, PackError> {
        let mut asked = GitignoreBuilder::new(root);
        let included = options.include.iter().map(|pattern| format!("!{pattern}"));
        for pattern in options.exclude.iter().cloned().chain(included) {
            check_class(&pattern)
                .map_err(|why| PackError::Pattern(format!("'{pattern}'"), why.into()))?;
            asked
                .add_line(None, &pattern)
                .map_err(|error| PackError::pattern(&pattern, &error))?;
        }
        let mut defaults = GitignoreBuilder::new(root);
        let first = if options.dotfiles { DOTFILES } else { 0 };
        for pattern in &DEFAULTS[first..] {
            defaults
                .add_line(None, pattern)
                .map_err(|error| PackError::pattern(pattern, &error))?;
        }
        let build = |builder: &GitignoreBuilder| {
            builder
                .build()
                .map_err(|error| PackError::pattern("all patterns together", &error))
        };
        Ok(Self {
            asked: build(&asked)?,
            folders: Vec::new(),
            defaults: build(&defaults)?,
        })
    }

    /// Enters a folder, whose own patterns then apply. They are read only inside `site`, the canonical
    /// path of the site's root, unless links out of it are followed: an error quotes a pattern.
    ///
    /// # Errors
    /// Its `.gannetignore` cannot be read, leads out of the site, or has a malformed pattern.
    pub(super) fn enter(&mut self, folder: &Path, site: Option<&Path>) -> Result<(), PackError> {
        let file = folder.join(FILE_NAME);
        // Ignoring an unusable file silently would publish what it excludes.
        match fs::symlink_metadata(&file) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.folders.push(None);
                return Ok(());
            }
            // The folder itself cannot be searched.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(PackError::io("read", folder)(error));
            }
            Err(error) => return Err(PackError::io("read", &file)(error)),
        }
        if let Some(what) = no_file(fs::metadata(&file).as_ref()) {
            return Err(PackError::NoFile(file, what));
        }
        let text = match site {
            Some(site) => read_inside(site, &file),
            None => named_file::read_text(&file, PATTERNS_FILE_MAX),
        };
        let text = text.map_err(|error| match error.kind() {
            io::ErrorKind::CrossesDevices => PackError::PatternsLeadOut(file.clone()),
            _ => PackError::io("read", &file)(error),
        })?;
        let mut builder = GitignoreBuilder::new(folder);
        // Some editors prepend a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        for (number, line) in (1..).zip(text.lines()) {
            let refuse = |why: String| {
                PackError::Pattern(format!("'{line}' ({}:{number})", file.display()), why)
            };
            check_class(line).map_err(|why| refuse(why.into()))?;
            builder
                .add_line(Some(file.clone()), line)
                .map_err(|error| refuse(error.to_string()))?;
        }
        let rules = builder
            .build()
            .map_err(|error| PackError::patterns(&file, &error))?;
        self.folders.push(Some(rules));
        Ok(())
    }

    /// Returns to the parent folder.
    pub(super) fn leave(&mut self) {
        self.folders.pop();
    }

    /// Whether a pattern of the options or of the site includes this file.
    pub(super) fn asks_for(&self, path: &Path) -> bool {
        let of_folders = self.folders.iter().rev().flatten();
        let mut matches = std::iter::once(&self.asked)
            .chain(of_folders)
            .map(|rules| rules.matched(path, false));
        matches
            .find(|it| !it.is_none())
            .is_some_and(|it| it.is_whitelist())
    }

    /// The rule that excludes a path, if any, and whether the user requested it. The report names
    /// it, to explain missing files.
    pub(super) fn against(&self, path: &Path, is_folder: bool) -> Option<(String, bool)> {
        if path.file_name().is_some_and(|name| name == FILE_NAME) {
            return Some(("patterns for gannet pack".into(), false));
        }
        match self.asked.matched(path, is_folder) {
            Match::Ignore(glob) => return Some((glob.original().to_owned(), true)),
            Match::Whitelist(_) => return None,
            Match::None => {}
        }
        for rules in self.folders.iter().rev().flatten() {
            match rules.matched(path, is_folder) {
                Match::Ignore(glob) => {
                    return Some((format!("{FILE_NAME}: {}", glob.original()), false));
                }
                Match::Whitelist(_) => return None,
                Match::None => {}
            }
        }
        match self.defaults.matched(path, is_folder) {
            Match::Ignore(glob) if glob.original() == ".*" => Some(("dotfile".into(), false)),
            Match::Ignore(glob) => {
                Some((glob.original().trim_start_matches('\\').to_string(), false))
            }
            Match::Whitelist(_) | Match::None => None,
        }
    }
}

/// Reads a patterns file; `CrossesDevices` if a link leads out of the site. Absolute links are
/// followed inside it, as the walk does.
fn read_inside(site: &Path, file: &Path) -> io::Result<String> {
    let target = file.canonicalize()?;
    let leads_out = |_| io::Error::from(io::ErrorKind::CrossesDevices);
    let inner = target.strip_prefix(site).map_err(leads_out)?;
    named_file::read_text_below(&Root::open(site)?, inner, PATTERNS_FILE_MAX)
}

/// Rejects a pattern with an unclosed `[`: git lets it match nothing, other programs take it
/// literally, and neither is what its author meant.
fn check_class(pattern: &str) -> Result<(), &'static str> {
    let mut letters = pattern.chars().peekable();
    if letters.peek() == Some(&'#') {
        return Ok(());
    }
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                letters.next();
            }
            '[' => {
                letters.next_if(|it| matches!(it, '!' | '^'));
                // A `]` directly after the `[` is a member of the class.
                letters.next();
                if !letters.by_ref().any(|it| it == ']') {
                    return Err("an unclosed '['; for a literal '[' write '\\['");
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(change: impl FnOnce(&mut PackOptions)) -> IgnoreRules {
        let mut options = PackOptions::new("site", "site.gannet");
        change(&mut options);
        IgnoreRules::new(&options, &options.source).expect("sound patterns")
    }

    fn check(rules: &IgnoreRules, name: &str, expect: Option<&str>) {
        let is_folder = name.ends_with('/');
        let path = Path::new("site").join(name.trim_end_matches('/'));
        let rule = rules.against(&path, is_folder).map(|(rule, _)| rule);
        assert_eq!(rule.as_deref(), expect, "{name}");
    }

    #[test]
    fn leftovers_and_hidden_files_are_left_out() {
        let rules = rules(|_| {});
        let check = |name, expect| check(&rules, name, expect);
        check("index.html", None);
        check(".well-known/", None);
        check(".well-known/security.txt", None);
        // Only `.well-known` in the root has a defined meaning, here as in a server.
        check("docs/.well-known/", Some("dotfile"));
        check(".git/", Some("dotfile"));
        check("a/b/.htaccess", Some("dotfile"));
        check(".DS_Store", Some(".DS_Store"));
        check("Thumbs.db", Some("Thumbs.db"));
        check("x/a.html~", Some("*~"));
        check("#a.html#", Some("#*#"));
        check("#1.html", None);
        check("c#.html", None);
        check("tags/c#/", None);
        check("x.tmp", Some("*.tmp"));
        check(".a.swp", Some("*.swp"));
        check("yarn.lock", Some("*.lock"));
        check("package-lock.json", None);
        check("changes.log", Some("*.log"));
        check("catalog", None);
    }

    #[test]
    fn dotfiles_may_be_asked_for() {
        let rules = rules(|options| options.dotfiles = true);
        check(&rules, ".htaccess", None);
        check(&rules, ".DS_Store", Some(".DS_Store"));
        check(&rules, FILE_NAME, Some("patterns for gannet pack"));
    }

    #[test]
    fn what_is_asked_for_comes_first_and_includes_win() {
        let rules = rules(|options| {
            options.exclude = vec!["*.map".into(), "/drafts/".into()];
            options.include = vec!["keep.map".into(), "*.log".into(), ".env.txt".into()];
        });
        let check = |name, expect| check(&rules, name, expect);
        check("a/b.map", Some("*.map"));
        check("a/keep.map", None);
        check("drafts/", Some("/drafts/"));
        check("a/drafts/", None);
        check("changes.log", None);
        check(".env.txt", None);
        check(".env", Some("dotfile"));
    }

    #[test]
    fn malformed_patterns_are_named() {
        for bad in ["a[z-b]", "[", "a[b", "[!", "[]", "\\\\[", "[^]a"] {
            let mut options = PackOptions::new("site", "site.gannet");
            options.exclude = vec![bad.into()];
            let error = IgnoreRules::new(&options, &options.source).expect_err(bad);
            assert!(error.to_string().contains(&format!("'{bad}'")), "{error}");
        }
        for good in ["a[b-z]", "[]]", "[!]a]", "\\[", "[a][b]", "# ["] {
            assert_eq!(check_class(good), Ok(()), "{good}");
        }
    }
}
