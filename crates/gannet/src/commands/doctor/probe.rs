//! Looks at the machine: the only part of doctor that does.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use gannet_io::cause::cause;
use gannet_io::driver::{Errno, Network as _};
use gannet_io::fixed::{Fixed, lacks_feature};
use gannet_io::options::EngineOptions;
use gannet_io::sandbox::Kernel as Confining;
use gannet_io::uring::Uring;
use gannet_io::{clock, ktls, lookups, probe, user};
use gannet_server::config::{Content, ListenAddress, SandboxChoice};
use gannet_server::tls::certificates::now_unix;
use gannet_server::tls::watch::CertificateSource;
use gannet_server::{Denied, however_long, machine_memory, worker_folders};
use gannet_store::Store;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, getrlimit};

use super::facts::{
    Address, AddressState, CertificateFiles, Certificates, Clock, ConfiguredFacts, Facts,
    FileSystem, Kernel, Lack, Limits, Memory, Network, Process, Site,
};
use super::unit;
use crate::command_line::layers::Origins;
use crate::command_line::settings::Settings;
use crate::commands::serve::outlook::{Outlook, Prospect};
use crate::commands::serve::{tls, trusts_every_peer};
use crate::messages::{Failure, printable};

/// Gathers all facts.
pub(super) fn look(settings: &Settings, origins: &Origins) -> Facts {
    let outlook = Outlook::new(settings, origins);
    let is_live = |content: &Content| !matches!(content, Content::Archive(_) | Content::Store(_));
    let contents = outlook.contents.iter().map(|it| &it.content);
    let has_directories = contents.clone().any(is_live);
    Facts {
        wishes: ConfiguredFacts {
            engine: settings.server.engine,
            sandbox: settings.server.sandbox,
            kernel_tls: settings.tls.kernel,
            http3: outlook.addresses.iter().any(|one| one.is_udp),
            passwords: !settings.server.passwords.paths.is_empty(),
            trusts_every_peer: trusts_every_peer(settings),
        },
        refusals: outlook.refusals.into_iter().map(lack_of).collect(),
        kernel: kernel(settings, has_directories),
        limits: Limits {
            descriptors: {
                let limit = getrlimit(Resource::Nofile);
                [limit.current, limit.maximum]
            },
            locked_memory: getrlimit(Resource::Memlock).current,
            start: outlook.limits.map_err(lack_of),
        },
        network: network(),
        addresses: outlook.addresses.into_iter().map(address).collect(),
        sites: contents
            .map(|content| site(content, is_live(content)))
            .collect(),
        certificates: certificates(settings, outlook.certificates.as_ref()),
        clock: Clock {
            now: now_unix(),
            written: written(),
            is_synchronised: clock::is_synchronised(),
        },
        memory: Memory {
            available: machine_memory(),
            least: outlook.memory,
            budget: outlook.budget,
        },
        process: Process {
            is_root: user::is_root(),
            user: settings.user.clone(),
            worker_folders: match settings.server.sandbox {
                SandboxChoice::Off => Vec::new(),
                SandboxChoice::Auto | SandboxChoice::Require => {
                    let folders = worker_folders(&outlook.contents);
                    let words = folders.iter().map(|it| it.display().to_string());
                    words.collect()
                }
            },
            within_reach: outlook.within_reach,
            denied: outlook.denied.iter().map(denied).collect(),
            container: container(),
        },
        unit: unit::forbidden(Path::new("/")),
    }
}

fn lack_of(failure: Failure) -> Lack {
    Lack {
        why: failure.message,
        help: failure.help,
    }
}

fn denied(denied: &Denied) -> Lack {
    Lack {
        why: denied.to_string(),
        help: Some(denied.help().into()),
    }
}

fn kernel(settings: &Settings, has_directories: bool) -> Kernel {
    let name = rustix::system::uname();
    let ring = Uring::new(Vec::new(), &EngineOptions::default()).map(|ring| ring.report());
    let tls = match ktls::probe() {
        Err(error) => Err(Lack {
            why: format!("it could not be tried: {}", cause(&error)),
            help: None,
        }),
        Ok(support) => match support.unavailable() {
            Some(why) => Err(Lack {
                why: why.to_string(),
                help: why.help.map(Into::into),
            }),
            None => Ok(support.can_update_keys),
        },
    };
    // With --sandbox off nothing is tried: a service manager may kill a process that asks for it.
    let confining = match settings.server.sandbox {
        SandboxChoice::Off => Confining {
            landlock: Err(Errno::NOSYS),
            seccomp: Err(Errno::NOSYS),
            has_free_rings: false,
        },
        SandboxChoice::Auto | SandboxChoice::Require => Confining::look(),
    };
    let lack = |errno: Errno, help: &str| Lack {
        why: format!("not available: {}", cause(&errno.into())),
        help: Some(help.to_owned()),
    };
    Kernel {
        release: name.release().to_string_lossy().into_owned(),
        machine: name.machine().to_string_lossy().into_owned(),
        files: probe::check_files().map_err(unavailable),
        lookups: match lookups::without_kernel().filter(|_| has_directories) {
            Some(why) => Err(unavailable(why.clone())),
            None => Ok(()),
        },
        ring: ring
            .map(|report| {
                let missing = report.missing.into_iter().map(|(name, _)| name);
                (report.in_use, missing.collect())
            })
            .map_err(unavailable),
        kernel_tls: tls,
        landlock: confining.landlock.map_err(|errno| {
            lack(
                errno,
                "use Linux 5.13 or newer with 'landlock' in lsm=, and a container profile that \
                 allows its three calls",
            )
        }),
        seccomp: confining.seccomp.map_err(|errno| {
            lack(
                errno,
                "use a kernel with CONFIG_SECCOMP_FILTER, on x86-64 or aarch64",
            )
        }),
    }
}

fn unavailable(why: probe::Unavailable) -> Lack {
    Lack {
        why: why.to_string(),
        help: why.help,
    }
}

fn network() -> Network {
    let text = |name: &str| {
        let text = fs::read_to_string(Path::new("/proc/sys/net").join(name)).ok()?;
        Some(text.trim().to_owned())
    };
    let number = |name: &str| text(name)?.parse().ok();
    Network {
        backlog: number("core/somaxconn"),
        buffers: [number("core/rmem_max"), number("core/wmem_max")],
        congestion: text("ipv4/tcp_congestion_control")
            .zip(text("ipv4/tcp_available_congestion_control")),
    }
}

fn address(prospect: Prospect) -> Address {
    let Prospect {
        address,
        is_udp,
        refused,
        owner,
        lacks_ipv6,
        moves,
        is_in_use: _,
    } = prospect;
    let tcp = match &address {
        ListenAddress::Tcp(tcp) => Some(*tcp),
        ListenAddress::Unix(_) => None,
    };
    Address {
        name: match (tcp, is_udp) {
            (None, _) => address.to_string(),
            (Some(_), false) => format!("TCP {address}"),
            (Some(_), true) => format!("UDP {address}"),
        },
        tcp: tcp.filter(|_| !is_udp),
        state: match (refused, owner) {
            (None, _) => AddressState::Free,
            (Some(_), _) if lacks_ipv6 => AddressState::WithoutIpv6,
            (Some(_), Some((name, pid))) if name == "gannet" => {
                AddressState::Ours(format!("gannet, process {pid}"))
            }
            (Some(failure), _) if moves => AddressState::Moves(lack_of(failure)),
            (Some(failure), _) => AddressState::Refused(lack_of(failure)),
        },
    }
}

fn site(content: &Content, is_live: bool) -> Site {
    let path = content.clone().into_path();
    let kind = match content {
        Content::Directory(_) | Content::HostFolder(_) => "directory",
        Content::File(_) => "file",
        Content::Archive(_) => "archive",
        Content::Store(_) => "store",
        Content::Many(_) => "folder of hosts",
    };
    let look = || {
        rustix::fs::statfs(&path).map(|system| FileSystem {
            // The type of the field differs between processors.
            magic: system.f_type as u64,
            folds_case: folds_case(&path),
            fixed: fixed(content, &path, is_live),
            lacks_verity: matches!(content, Content::Store(_))
                && release_in_force(&path).is_some_and(|it| lacks_feature(&it)),
        })
    };
    let system = however_long(&path, look);
    Site {
        name: format!("{} ({kind})", path.display()),
        is_live,
        state: system
            .map_err(|error| lack_of(Failure::of_system("look at", path.display(), &error.into()))),
    }
}

/// Why what is served cannot be changed: the archive, that of the release in force, or all files of a folder.
fn fixed(content: &Content, path: &Path, is_live: bool) -> Option<Fixed> {
    let file = match content {
        Content::Store(_) => release_in_force(path)?,
        _ => path.to_owned(),
    };
    let file = rustix::fs::open(&file, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    Fixed::of(file).filter(|fixed| !is_live || *fixed == Fixed::FileSystem)
}

fn release_in_force(store: &Path) -> Option<PathBuf> {
    let store = Store::open(store, None).ok()?;
    Some(store.release_path(store.pointer().ok()?.release))
}

/// Whether an entry of the directory, or else its own name, is found in the other case, too.
fn folds_case(path: &Path) -> bool {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let entries = fs::read_dir(&path)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let mut candidates = entries.map(|entry| entry.path()).chain([path.clone()]);
    let other_case = |path: &PathBuf| {
        let name = path.file_name()?.as_bytes();
        let flipped: Vec<u8> = name
            .iter()
            .map(|letter| match letter.is_ascii_lowercase() {
                true => letter.to_ascii_uppercase(),
                false => letter.to_ascii_lowercase(),
            })
            .collect();
        (flipped != name).then(|| path.with_file_name(OsStr::from_bytes(&flipped)))
    };
    let Some((first, other)) = candidates.find_map(|path| {
        let other = other_case(&path)?;
        Some((path, other))
    }) else {
        return false;
    };
    let number = |path: &Path| {
        let metadata = fs::symlink_metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    number(&first).is_some() && number(&first) == number(&other)
}

fn certificates(settings: &Settings, source: Option<&CertificateSource>) -> Option<Certificates> {
    let source = source?;
    if tls::is_for_development(&settings.tls) {
        return Some(Certificates::Development);
    }
    let opened = match source.open() {
        Ok(opened) => opened,
        Err(error) => {
            return Some(Certificates::Unusable(Lack {
                why: error.to_string(),
                help: error.help(),
            }));
        }
    };
    let now = now_unix();
    let set = opened.store.current();
    let named = set.facts().map(|facts| {
        let names = match facts.names.is_empty() {
            true => facts.subject.clone(),
            false => facts.names.join(", "),
        };
        (names, facts.not_after - now, facts.validity.1.clone())
    });
    let warnings = opened.warnings.iter().map(|warning| Lack {
        why: warning.to_string(),
        help: Some(warning.help()),
    });
    Some(Certificates::Named(CertificateFiles {
        each: named.collect(),
        warnings: warnings.collect(),
        asked: set.asked().map(|it| printable(&it.to_string()).to_string()),
    }))
}

/// When the program's file was written.
fn written() -> Option<i64> {
    let file = std::env::current_exe().ok()?;
    let time: SystemTime = fs::metadata(file).ok()?.modified().ok()?;
    let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
    i64::try_from(seconds).ok()
}

/// The kind of container that this is, by what its makers leave in it.
fn container() -> Option<&'static str> {
    let is = |path: &str| Path::new(path).exists();
    let has = |name: &str| std::env::var_os(name).is_some();
    if has("KUBERNETES_SERVICE_HOST") {
        return Some("Kubernetes");
    }
    if is("/.dockerenv") {
        return Some("Docker");
    }
    match is("/run/.containerenv") {
        true => Some("Podman"),
        false => has("container").then_some("container"),
    }
}
