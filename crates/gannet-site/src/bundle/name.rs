//! Names of images, as registries spell them: the grammar of the distribution project's `reference`.

use std::fmt;

use super::BundleError;

/// The most that a registry takes.
const NAME_LEN_MAX: usize = 255;
const TAG_LEN_MAX: usize = 128;

/// `[HOST/]PATH:TAG`.
pub(super) struct ImageName {
    name: String,
    pub(super) tag: String,
}

impl ImageName {
    /// Takes `NAME` or `NAME:TAG`.
    ///
    /// # Errors
    /// [`BundleError::Name`].
    pub(super) fn parse(typed: &str) -> Result<Self, BundleError> {
        let refuse = |why| Err(BundleError::Name(typed.to_owned(), why));
        let last = typed.rfind('/').map_or(0, |at| at + 1);
        let (name, tag) = match typed[last..].find(':') {
            Some(at) => (&typed[..last + at], &typed[last + at + 1..]),
            None => (typed, "latest"),
        };
        if name.len() > NAME_LEN_MAX || tag.len() > TAG_LEN_MAX {
            return refuse("it is too long");
        }
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let is_tag = tag.bytes().all(|it| is_word(it) || b".-".contains(&it))
            && tag.bytes().next().is_some_and(is_word);
        if !is_tag {
            return refuse("a tag has letters, digits, '_', '.' and '-'");
        }
        let (host, path) = match name.split_once('/') {
            Some((host, path)) if is_host(host) => (Some(host), path),
            _ => (None, name),
        };
        let is_host_name =
            |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'-' | b':' | b'[' | b']');
        if !host.is_none_or(|host| host.bytes().all(is_host_name)) {
            return refuse("that is not the name of a registry");
        }
        if !path.split('/').all(is_component) {
            return refuse(
                "a name has lower-case letters and digits, with '.', '_' or '-' between",
            );
        }
        Ok(Self {
            name: name.to_owned(),
            tag: tag.to_owned(),
        })
    }

    /// With a registry: Docker's own where none is named.
    pub(super) fn complete(&self) -> String {
        match self.name.split_once('/') {
            Some((host, _)) if is_host(host) => self.to_string(),
            Some(_) => format!("docker.io/{self}"),
            None => format!("docker.io/library/{self}"),
        }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.tag)
    }
}

/// Whether the part before the first slash names a registry.
fn is_host(part: &str) -> bool {
    part.contains(['.', ':']) || part == "localhost"
}

fn is_component(part: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [part.bytes().next(), part.bytes().next_back()];
    ends.iter().all(|it| it.is_some_and(is_plain))
        && part
            .bytes()
            .all(|it| is_plain(it) || matches!(it, b'.' | b'_' | b'-'))
        // Between two others, there is one dot, one or two underlines, or any number of dashes.
        && !["..", "___", "._", "_.", "-.", ".-", "_-", "-_"]
            .iter()
            .any(|it| part.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_registries() {
        for (typed, shown, complete) in [
            ("site", "site:latest", "docker.io/library/site:latest"),
            ("me/site:1", "me/site:1", "docker.io/me/site:1"),
            (
                "localhost:5000/a/b__c:V1.2-3",
                "localhost:5000/a/b__c:V1.2-3",
                "localhost:5000/a/b__c:V1.2-3",
            ),
            (
                "r.example/a--b",
                "r.example/a--b:latest",
                "r.example/a--b:latest",
            ),
        ] {
            let name = ImageName::parse(typed).expect(typed);
            assert_eq!(
                (name.to_string(), name.complete()),
                (shown.into(), complete.into())
            );
        }
        let long = "a".repeat(256);
        for wrong in [
            "",
            ":1",
            "Site",
            "a/",
            "/a",
            "a//b",
            "a..b",
            "a_-b",
            "-a",
            "a:",
            "a:b:c",
            "a:-1",
            "a b",
            "ä",
            "a:ä",
            "r.example/",
            "r.e x/a",
            "a@sha256:00",
            &long,
        ] {
            assert!(ImageName::parse(wrong).is_err(), "{wrong}");
        }
    }
}
