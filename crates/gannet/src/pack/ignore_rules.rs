//! Which names are left out of an archive: leftovers of editors and desktops, and hidden files.

/// The rule that leaves out a file or folder of this name, if there is one. The rule is told in
/// the report, so that nobody searches long for a missing file.
pub(super) fn rule_against(name: &[u8], with_dotfiles: bool) -> Option<&'static str> {
    match name {
        b".well-known" => return None,
        b".DS_Store" => return Some(".DS_Store"),
        b"Thumbs.db" => return Some("Thumbs.db"),
        b"desktop.ini" => return Some("desktop.ini"),
        _ => {}
    }
    if name.starts_with(b"#") && name.ends_with(b"#") && name.len() > 1 {
        return Some("#*#");
    }
    for (suffix, rule) in [
        (b"~".as_slice(), "*~"),
        (b".tmp".as_slice(), "*.tmp"),
        (b".temp".as_slice(), "*.temp"),
        (b".swp".as_slice(), "*.swp"),
    ] {
        if name.ends_with(suffix) {
            return Some(rule);
        }
    }
    (name.starts_with(b".") && !with_dotfiles).then_some("dotfile")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_and_hidden_files_are_left_out() {
        let check = |name: &str, expect: Option<&str>| {
            assert_eq!(rule_against(name.as_bytes(), false), expect, "{name}");
        };
        check("index.html", None);
        check(".well-known", None);
        check(".git", Some("dotfile"));
        check(".htaccess", Some("dotfile"));
        check(".DS_Store", Some(".DS_Store"));
        check("Thumbs.db", Some("Thumbs.db"));
        check("a.html~", Some("*~"));
        check("#a.html#", Some("#*#"));
        check("#", None);
        check("x.tmp", Some("*.tmp"));
        check(".a.swp", Some("*.swp"));
        check("package-lock.json", None);
        check("changes.log", None);
    }

    #[test]
    fn dotfiles_may_be_asked_for() {
        assert_eq!(rule_against(b".htaccess", true), None);
        assert_eq!(rule_against(b".DS_Store", true), Some(".DS_Store"));
    }
}
