//! Converts errors of the libraries to failures of the program.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use gannet_archive::signature::SignatureError;
use gannet_archive::{ArchiveError, Rule};
use gannet_get::{GetError, Remedy};
use gannet_io::cause::FileError;
use gannet_site::archive::{OPEN_ARCHIVE, SiteError};
use gannet_site::bundle::BundleError;
use gannet_site::check::Help;
use gannet_site::import::ImportError;
use gannet_site::offline::WhyNot;
use gannet_site::pack::sidecars::WRITE_COPY;
use gannet_site::pack::{KEEP, PASSWORD_VARIABLE, PackError, READ, READ_KEY, WRITE};
use gannet_store::StoreError;

use crate::messages::{Exit, Failure, next_step, printable};

impl From<SiteError> for Failure {
    fn from(error: SiteError) -> Self {
        if let SiteError::Output(error) = error {
            // A closed pipe is not a failure.
            return Self::from_output(error);
        }
        Self {
            message: error.to_string(),
            help: site_help(&error),
            exit: Exit::Failed,
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self {
            message: printable(&error.to_string()),
            help: error.help(),
            exit: Exit::Failed,
        }
    }
}

impl From<BundleError> for Failure {
    fn from(error: BundleError) -> Self {
        match error {
            BundleError::Archive(error) => error.into(),
            error => Self {
                message: printable(&error.to_string()),
                help: error.help().map(Into::into),
                exit: match error {
                    BundleError::Name(..) => Exit::Usage,
                    _ => Exit::Failed,
                },
            },
        }
    }
}

impl From<PackError> for Failure {
    fn from(error: PackError) -> Self {
        Self {
            message: error.to_string(),
            help: pack_help(&error),
            exit: match error {
                PackError::Types(_) => Exit::Usage,
                _ => Exit::Failed,
            },
        }
    }
}

impl From<GetError> for Failure {
    fn from(error: GetError) -> Self {
        match error {
            GetError::Certificates(_) => Self::usage(error.to_string())
                .help("name a file of certificates (PEM) with --cacert FILE"),
            GetError::Output(error) => Self::from_output(error),
            GetError::Failed {
                doing,
                object,
                cause,
                help,
                remedies,
            } => {
                let remedies = remedies.into_iter().map(|it| of_remedy(it).to_owned());
                let steps = help.into_iter().chain(remedies);
                Self {
                    help: steps.reduce(|help, remedy| format!("{help}; {remedy}")),
                    ..Self::new(doing, object, cause)
                }
            }
        }
    }
}

/// The flag for a remedy.
fn of_remedy(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::AcceptAny => "if you know whose it is, accept any with --insecure",
        Remedy::TrustAuthority => {
            "name its authority with --cacert FILE, or accept any with --insecure"
        }
        Remedy::OtherVersion => "try without --http3",
        Remedy::Resume => "--continue resumes from there",
        Remedy::FetchAll => "or omit --continue to fetch all of it",
    }
}

/// What serves a path which is not served.
pub(super) fn of_why_not(why: WhyNot) -> Option<&'static str> {
    match why {
        WhyNot::Dotfile | WhyNot::Dangling => None,
        WhyNot::Loop => Some("remove it, or let it lead to a file"),
        WhyNot::Escapes => Some(
            "--follow-links DIR lets links lead into DIR; or have a bind mount there, or copy the files",
        ),
        WhyNot::CompressedOnly => Some("--compressed-only serves it"),
        WhyNot::ZstdOnly => Some("pack --compressed-only decompresses it"),
    }
}

/// The next step after a finding, in terms of the command line.
pub(super) fn of_finding(help: &Help) -> Option<Cow<'_, str>> {
    let words = match help {
        Help::Text(text) => text,
        Help::Listing => "a folder without an index page is served only with --listing",
        Help::Unserved(why) => of_why_not(*why)?,
        Help::Below { prefix, path } => {
            return Some(Cow::Owned(format!(
                "there is '{path}': if the site is for https://HOST{prefix}, check it with \
                 '--origin https://HOST{prefix}'"
            )));
        }
        Help::Encoding => {
            "convert it to UTF-8, or let it be sent without charset: '--type SUFFIX=TYPE', or \
             Content-Type in _headers"
        }
    };
    Some(words.into())
}

/// Converts a failure to unpack a foreign archive.
pub(super) fn of_import(archive: &Path, error: &ImportError) -> Failure {
    Failure {
        help: error.help().map(Into::into),
        ..Failure::new("extract", archive.display(), error)
    }
}

/// The next step after an error of a site or an archive, in terms of the command line.
fn site_help(error: &SiteError) -> Option<String> {
    match error {
        SiteError::Signature(_, error) => Some(signature_help(error).into()),
        SiteError::NotFound {
            archive,
            redirect: None,
            ..
        } => Some(format!(
            "'gannet ls {}' lists its contents",
            archive.display()
        )),
        SiteError::Io(FileError {
            doing: OPEN_ARCHIVE,
            path,
            error,
        }) if error.kind() == io::ErrorKind::IsADirectory => Some(format!(
            "a folder is no archive: 'gannet pack {} -o site.gannet' makes one of it",
            printable(&path.to_string_lossy())
        )),
        error => error.help(),
    }
}

/// The next step after a signature was rejected.
pub(super) fn signature_help(error: &SignatureError) -> &'static str {
    match error {
        SignatureError::NoArchive => "pack the directory: 'gannet pack DIR --sign KEY'",
        SignatureError::Missing | SignatureError::Malformed => {
            "sign it when it is packed: 'gannet pack --sign KEY'"
        }
        SignatureError::OtherKey => "is this the right release, and the right public key?",
        SignatureError::Wrong | SignatureError::BuildId | SignatureError::Body(_) => {
            "it was changed after it was signed; download it again"
        }
        SignatureError::Key => "give the second line of a .pub file, or the file's name",
    }
}

/// The next step after an error of packing, in terms of the command line.
fn pack_help(error: &PackError) -> Option<String> {
    match error {
        PackError::Io(FileError { doing, error, .. }) => io_help(doing, error).map(str::to_string),
        PackError::NotADirectory(_) => {
            Some("name the folder that holds the site: 'gannet pack DIR -o site.gannet'".into())
        }
        PackError::Empty(_) => {
            Some("is this the folder that the site's generator writes to?".into())
        }
        PackError::NoHosts(_) => {
            Some("make one such as 'example.org', or leave --hosts out".into())
        }
        PackError::TooManyHosts(_) => {
            Some("make several archives, and serve each by --site".into())
        }
        PackError::Changed(_) => Some("pack again when nothing is writing to the site".into()),
        PackError::Pattern(..) => {
            Some("patterns have the syntax of .gitignore, such as '*.map' or '/drafts/'".into())
        }
        PackError::Previous(error @ SiteError::Open(..)) => error.help(),
        PackError::Previous(_) => Some("omit --previous if there is no earlier release".into()),
        PackError::NoTime(_) => {
            Some("set SOURCE_DATE_EPOCH to the time of the release, or omit --carry".into())
        }
        PackError::Key(..) => Some(format!(
            "'gannet keygen NAME' makes a key pair, as 'minisign -G' does; a key's password is \
             taken from {}",
            PASSWORD_VARIABLE
        )),
        PackError::LeadsOut(..) => Some(
            "copy what it leads to into the site, leave the link out with --exclude, or pack what such links \
             lead to with --follow-links, if all authors of the site may read this machine's files"
                .into(),
        ),
        PackError::OtherUsers(path, _) => {
            Some(format!("give '{path}' a rule with the same 'Basic-Auth'"))
        }
        PackError::HostLeadsOut(_) => Some(
            "make it a folder, remove it, or pack what such links lead to with --follow-links, if all authors of \
             the sites may read this machine's files"
                .into(),
        ),
        PackError::PatternsLeadOut(_) => Some(
            "make it a file of the site, or remove it; --follow-links reads it, if all authors of the site may read \
             this machine's files"
                .into(),
        ),
        PackError::Types(_) => Some("write it as SUFFIX=TYPE/SUBTYPE".into()),
        PackError::Archive(
            _,
            ArchiveError::Record {
                rule: Rule::Limit, ..
            },
        ) => Some("a path, a type or a field is too long".into()),
        PackError::Rules(_) => {
            Some("fix them, or pack both files as they are with --no-rules".into())
        }
        PackError::NoFile(path, _) if path.ends_with(".gannetignore") => {
            Some("make it a file, or remove it".into())
        }
        PackError::NoFile(..) => Some(
            "make it a file, remove it, or leave it out with --exclude; --no-rules packs without \
             rules"
                .into(),
        ),
        PackError::Archive(..) => {
            Some("this is a bug in gannet: please report the site that led to it".into())
        }
    }
}

fn io_help(doing: &str, error: &io::Error) -> Option<&'static str> {
    use io::ErrorKind as Kind;
    Some(match (doing, error.kind()) {
        (READ_KEY, Kind::NotFound) => {
            "check the path; 'gannet keygen NAME' makes a key pair, and NAME.key signs"
        }
        (READ_KEY, Kind::PermissionDenied) => "sign as a user who may read the key",
        (READ_KEY, Kind::InvalidInput | Kind::IsADirectory) => {
            "name the file of a secret key, such as release.key"
        }
        (KEEP, _) => "name an existing directory with --cache DIR, or one that can be created",
        (WRITE, Kind::PermissionDenied | Kind::ReadOnlyFilesystem) => {
            "name a file in a writable folder with -o: the archive is built beside it and then \
             renamed"
        }
        (WRITE, Kind::NotFound) => "make the folder first, or name another file with -o",
        (WRITE, Kind::IsADirectory) => "name a file in it: -o DIR/site.gannet",
        (WRITE, Kind::InvalidInput) => "name another file with -o: the archive would replace it",
        (WRITE_COPY, Kind::StorageFull | Kind::QuotaExceeded) => {
            "the copies need up to half as much space as the files; those made so far are complete"
        }
        (WRITE_COPY, Kind::PermissionDenied | Kind::ReadOnlyFilesystem) => {
            "copies are written beside their files, by a user who may write there"
        }
        (_, Kind::StorageFull | Kind::QuotaExceeded) => {
            "the archive needs about as much space as the site and its compressed copies"
        }
        (READ, Kind::PermissionDenied) => {
            "make it readable, or exclude it; a site is packed completely or not at all"
        }
        (READ, Kind::NotFound) => "check its path; or it was removed meanwhile: try again",
        _ => return next_step(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_a_site_from_being_packed_has_a_next_step_in_terms_of_the_command_line() {
        let check = |error: PackError, expect: &str| {
            let help = Failure::from(error).help.unwrap_or_default();
            assert!(help.contains(expect), "{help:?}");
        };
        let denied = |doing| {
            PackError::Io(FileError {
                doing,
                path: "x".into(),
                error: io::ErrorKind::PermissionDenied.into(),
            })
        };
        check(denied(WRITE), "writable folder with -o");
        check(denied(KEEP), "--cache DIR");
        check(denied(READ_KEY), "may read the key");
        check(denied(READ), "exclude it");
        check(denied("open"), "check its permissions");
        check(PackError::Pattern("'['".into(), "?".into()), ".gitignore");
        check(PackError::Key("x".into(), "?".into()), "gannet keygen");
        check(PackError::NoHosts("x".into()), "--hosts");
        let open = io::ErrorKind::NotFound.into();
        let previous = SiteError::Io(FileError {
            doing: "open archive",
            path: "x".into(),
            error: open,
        });
        check(PackError::Previous(previous), "--previous");
        let types = Failure::from(PackError::Types("x".into()));
        assert_eq!(types.exit, Exit::Usage);
    }
}
