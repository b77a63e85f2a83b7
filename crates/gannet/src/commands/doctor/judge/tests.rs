use gannet_io::fixed::Fixed;
use gannet_server::config::{EngineChoice, SandboxChoice};
use gannet_server::tls::kernel::Choice;

use super::super::facts::{
    Address, AddressState, CertificateFiles, Certificates, Clock, ConfiguredFacts, Facts,
    FileSystem, Kernel, Lack, Limits, Memory, Network, Process, Site,
};
use super::*;
use crate::commands::serve::Budget;

fn lack(why: &str) -> Lack {
    Lack {
        why: why.into(),
        help: Some(format!("mend {why}")),
    }
}

fn site(magic: u64, folds_case: bool, is_live: bool) -> Site {
    Site {
        name: "/srv/www (directory)".into(),
        is_live,
        state: Ok(FileSystem {
            magic,
            folds_case,
            lacks_verity: false,
            fixed: None,
        }),
    }
}

fn address(text: &str, state: AddressState) -> Address {
    Address {
        name: format!("TCP {text}"),
        tcp: text.parse().ok(),
        state,
    }
}

/// A machine that has everything, with a configuration that needs all of it.
fn sound() -> Facts {
    Facts {
        wishes: ConfiguredFacts {
            http3: true,
            ..ConfiguredFacts::default()
        },
        refusals: Vec::new(),
        kernel: Kernel {
            release: "6.18.44-generic".into(),
            machine: "x86_64".into(),
            files: Ok(()),
            lookups: Ok(()),
            ring: Ok((vec!["multishot accept", "provided buffers"], Vec::new())),
            kernel_tls: Ok(true),
            landlock: Ok(7),
            seccomp: Ok(()),
        },
        limits: Limits {
            descriptors: [Some(1024), Some(1 << 20)],
            locked_memory: Some(8 << 20),
            start: Ok(()),
        },
        network: Network {
            backlog: Some(4096),
            buffers: [Some(4 << 20); 2],
            congestion: Some(("cubic".into(), "reno cubic bbr".into())),
        },
        addresses: vec![address("0.0.0.0:443", AddressState::Free)],
        sites: vec![site(0xef53, false, true)],
        certificates: Some(Certificates::Named(CertificateFiles {
            each: vec![("example.org".into(), 60, "a date".into())],
            ..CertificateFiles::default()
        })),
        clock: Clock {
            now: 1_800_000_000,
            written: Some(1_790_000_000),
            is_synchronised: Some(true),
        },
        memory: Memory {
            available: Some(4 << 30),
            least: 32 << 20,
            budget: Budget {
                caches: 256 << 20,
                kept: 320 << 20,
                encoders: Some(64 << 20),
                left: Some(4 << 30),
                fitting: None,
            },
        },
        process: Process {
            worker_folders: vec!["/srv/www".into()],
            ..Process::default()
        },
        unit: None,
    }
}

/// With this change there is exactly one finding that is not ok: of this level and subject, with this
/// part in its text, and with help.
fn check(change: impl FnOnce(&mut Facts), level: Level, subject: &str, part: &str) {
    let mut facts = sound();
    change(&mut facts);
    let found = judge(&facts);
    let others: Vec<_> = found.iter().filter(|it| it.level != Level::Ok).collect();
    let [one] = others[..] else {
        panic!("'{part}' is not the only one: {others:#?}");
    };
    assert_eq!((one.level, one.subject), (level, subject), "{one:?}");
    assert!(one.text.contains(part), "{one:?}");
}

/// With this change everything is ok, and a text has this part.
fn check_ok(change: impl FnOnce(&mut Facts), part: &str) {
    let mut facts = sound();
    change(&mut facts);
    let found = judge(&facts);
    assert!(found.iter().all(|it| it.level == Level::Ok), "{found:#?}");
    assert!(
        found.iter().any(|it| it.text.contains(part)),
        "{part}: {found:#?}"
    );
}

#[test]
fn a_sound_machine_has_nothing_to_mend() {
    check_ok(|_| {}, "Linux 6.18.44-generic, x86_64");
    assert!(judge(&sound()).iter().all(|it| it.help.is_none()));
}

#[test]
fn what_the_configuration_requires_is_bad_and_what_it_prefers_a_note() {
    let ring = |engine| {
        move |facts: &mut Facts| {
            facts.kernel.ring = Err(lack("ENOSYS"));
            facts.wishes.engine = engine;
        }
    };
    check(ring(EngineChoice::Auto), Level::Note, "io_uring", "ENOSYS");
    check(ring(EngineChoice::Uring), Level::Bad, "io_uring", "ENOSYS");
    check_ok(ring(EngineChoice::Epoll), "--engine epoll");

    let landlock = |sandbox| {
        move |facts: &mut Facts| {
            facts.kernel.landlock = Err(lack("none"));
            facts.wishes.sandbox = sandbox;
        }
    };
    check(
        landlock(SandboxChoice::Auto),
        Level::Note,
        "landlock",
        "none",
    );
    check(
        landlock(SandboxChoice::Require),
        Level::Bad,
        "landlock",
        "none",
    );
    check_ok(landlock(SandboxChoice::Off), "--sandbox off");
    let seccomp = |facts: &mut Facts| facts.kernel.seccomp = Err(lack("none"));
    check(seccomp, Level::Note, "seccomp", "none");

    let tls = |choice| {
        move |facts: &mut Facts| {
            facts.kernel.kernel_tls = Err(lack("no module"));
            facts.wishes.kernel_tls = choice;
        }
    };
    check(tls(Choice::Auto), Level::Note, "kernel TLS", "no module");
    check(tls(Choice::On), Level::Bad, "kernel TLS", "no module");
    check_ok(tls(Choice::Off), "--ktls off");
    let without_https = |facts: &mut Facts| {
        facts.kernel.kernel_tls = Err(lack("no module"));
        facts.certificates = None;
    };
    check_ok(without_https, "not needed without HTTPS");
}

#[test]
fn kernels_and_limits() {
    let old = |facts: &mut Facts| facts.kernel.release = "5.15.0-91".into();
    check(old, Level::Note, "kernel", "from 6.1 on");
    check_ok(|facts| facts.kernel.release = "6.1.0".into(), "Linux 6.1.0");
    check_ok(
        |facts| facts.kernel.release = "custom".into(),
        "Linux custom",
    );
    let calls = |facts: &mut Facts| facts.kernel.files = Err(lack("preadv2"));
    check(calls, Level::Bad, "kernel", "preadv2");
    let walk = |facts: &mut Facts| facts.kernel.lookups = Err(lack("openat2"));
    check(walk, Level::Note, "lookups", "slower: openat2");
    let unit = |facts: &mut Facts| facts.unit = Some(lack("the unit"));
    check(unit, Level::Note, "unit", "the unit");
    let few = |facts: &mut Facts| facts.limits.descriptors = [Some(1024), Some(4096)];
    check(few, Level::Note, "descriptors", "hard limit 4096");
    check_ok(
        |facts| facts.limits.descriptors = [None; 2],
        "hard limit unlimited",
    );
    let too_few = |facts: &mut Facts| facts.limits.start = Err(lack("ulimit -n 10"));
    check(too_few, Level::Bad, "limits", "ulimit -n 10");
    let memory = |bytes: u64| {
        move |facts: &mut Facts| {
            facts.memory.available = Some(bytes);
            facts.memory.budget.left = Some(bytes.saturating_sub(32 << 20));
        }
    };
    check(memory(16 << 20), Level::Bad, "memory", "16.0 MiB available");
    check(
        memory(300 << 20),
        Level::Note,
        "memory",
        "up to 256.0 MiB for caches",
    );
    check(
        |facts| facts.memory.budget.encoders = Some(1 << 20),
        Level::Note,
        "memory",
        "too little besides to compress text",
    );
    check_ok(|facts| facts.memory.budget.encoders = None, "synchronised");
    check_ok(memory(352 << 20), "352.0 MiB available");
    // Caches that would fit, or else fewer workers.
    for (fitting, help) in [
        (Some(100 << 20), "set --cache-memory 100MiB, or give"),
        (None, "start fewer --workers, or give"),
    ] {
        let mut facts = sound();
        memory(300 << 20)(&mut facts);
        facts.memory.budget.fitting = fitting;
        let found = judge(&facts);
        let of_memory = found.iter().find(|it| it.subject == "memory");
        let text = of_memory.and_then(|it| it.help.as_deref()).expect("help");
        assert!(text.starts_with(help), "{text}");
    }
    check_ok(|facts| facts.memory.available = None, "synchronised");
}

/// Keys beside a site are for no worker.
#[test]
fn what_workers_could_open() {
    check_ok(|_| {}, "confined workers open files below /srv/www");
    let key = |facts: &mut Facts| facts.process.within_reach = vec!["'/srv/www/key.pem'".into()];
    check(key, Level::Note, "sandbox", "/srv/www/key.pem");
}

#[test]
fn networks_and_addresses() {
    let backlog = |facts: &mut Facts| facts.network.backlog = Some(128);
    check(backlog, Level::Note, "backlog", "somaxconn is 128");
    let buffers = |facts: &mut Facts| facts.network.buffers = [Some(212_992), None];
    check(buffers, Level::Note, "UDP buffers", "rmem_max is 208.0 KiB");
    let trust = |facts: &mut Facts| facts.wishes.trusts_every_peer = Some("every peer is trusted");
    check(trust, Level::Note, "trust", "every peer is trusted");
    let without_http3 = |facts: &mut Facts| {
        facts.network.buffers = [Some(212_992), None];
        facts.wishes.http3 = false;
    };
    check_ok(without_http3, "cubic (available: reno cubic bbr)");

    let state = |state| move |facts: &mut Facts| facts.addresses[0].state = state;
    let refused = || AddressState::Refused(lack("in use by nginx, process 812"));
    check(
        state(refused()),
        Level::Bad,
        "address",
        "nginx, process 812",
    );
    let moves = AddressState::Moves(lack("in use by nginx, process 812"));
    check(state(moves), Level::Note, "address", "the next free port");
    let ours = AddressState::Ours("gannet, process 7".into());
    check(state(ours), Level::Note, "address", "gannet, process 7");
    check(
        state(AddressState::WithoutIpv6),
        Level::Note,
        "address",
        "no IPv6",
    );

    let inside = |facts: &mut Facts| {
        facts.process.container = Some("Docker");
        facts.addresses = vec![address("127.0.0.1:8080", AddressState::Free)];
    };
    check(
        inside,
        Level::Note,
        "container",
        "cannot be reached from outside",
    );
    check_ok(|facts| facts.process.container = Some("Podman"), "Podman");
    let root = |facts: &mut Facts| facts.process.is_root = true;
    check(root, Level::Note, "user", "as root");
    let becomes = |facts: &mut Facts| {
        facts.process.is_root = true;
        facts.process.user = Some("www".into());
    };
    check_ok(becomes, "root, then www");
}

#[test]
fn content_certificates_and_the_clock() {
    let on =
        |magic, is_live| move |facts: &mut Facts| facts.sites = vec![site(magic, false, is_live)];
    check(on(0x6969, true), Level::Note, "content", "on NFS");
    check(on(0x6573_5546, true), Level::Note, "content", "on FUSE");
    check_ok(on(0x6969, false), "on NFS");
    check_ok(on(0x0102_1994, true), "gone after a restart");
    check_ok(on(0x1234, true), "on type 0x1234");
    let is_lent = "sent without copying where the client's progress is known";
    check_ok(on(0xef53, false), is_lent);
    let fixed = |facts: &mut Facts| {
        let mut site = site(0xef53, false, false);
        if let Ok(system) = &mut site.state {
            system.fixed = Some(Fixed::Verity);
        }
        facts.sites = vec![site];
    };
    check_ok(
        fixed,
        "on ext4, fixed by fs-verity: sent without copying to every client",
    );
    let lacking = |facts: &mut Facts| {
        let mut site = site(0xef53, false, false);
        if let Ok(system) = &mut site.state {
            system.lacks_verity = true;
        }
        facts.sites = vec![site];
    };
    check_ok(lacking, is_lent);
    let mut facts = sound();
    lacking(&mut facts);
    let helps: Vec<_> = judge(&facts).into_iter().filter_map(|it| it.help).collect();
    assert!(
        matches!(&helps[..], [only] if only.starts_with("'tune2fs -O verity DEVICE'")),
        "{helps:?}"
    );
    let folds = |passwords| {
        move |facts: &mut Facts| {
            facts.sites = vec![site(0x4d44, true, true)];
            facts.wishes.passwords = passwords;
        }
    };
    check(
        folds(false),
        Level::Note,
        "content",
        "'/About' answers as '/about'",
    );
    check(folds(true), Level::Bad, "content", "passwords");
    let gone = |facts: &mut Facts| facts.sites[0].state = Err(lack("no such folder"));
    check(gone, Level::Bad, "content", "no such folder");
    let refused = |facts: &mut Facts| facts.refusals = vec![lack("--spa twice")];
    check(refused, Level::Bad, "configuration", "--spa twice");

    let unusable = |facts: &mut Facts| {
        facts.certificates = Some(Certificates::Unusable(lack("not a PEM file")));
    };
    check(unusable, Level::Bad, "certificate", "not a PEM file");
    let expired = |facts: &mut Facts| {
        facts.certificates = Some(Certificates::Named(CertificateFiles {
            each: vec![("a.test".into(), -1, "yesterday".into())],
            ..CertificateFiles::default()
        }));
    };
    check(
        expired,
        Level::Bad,
        "certificate",
        "a.test: expired on yesterday",
    );
    let today = |facts: &mut Facts| {
        facts.certificates = Some(Certificates::Named(CertificateFiles {
            each: vec![("a.test".into(), 7200, "today".into())],
            ..CertificateFiles::default()
        }));
    };
    check_ok(today, "a.test: 2 hours left, until today");
    let soon = |facts: &mut Facts| {
        facts.certificates = Some(Certificates::Named(CertificateFiles {
            warnings: vec![lack("in 3 days")],
            ..CertificateFiles::default()
        }));
    };
    check(soon, Level::Note, "certificate", "in 3 days");
    let asked = |facts: &mut Facts| {
        facts.certificates = Some(Certificates::Named(CertificateFiles {
            asked: Some("clients may show a certificate of: CN=staff".into()),
            ..CertificateFiles::default()
        }));
    };
    check_ok(asked, "clients may show a certificate of: CN=staff");
    check_ok(
        |facts| facts.certificates = Some(Certificates::Development),
        "for development",
    );

    let behind = |facts: &mut Facts| facts.clock.now = 1_700_000_000;
    check(behind, Level::Bad, "clock", "1041 days behind");
    let free = |facts: &mut Facts| facts.clock.is_synchronised = Some(false);
    check(free, Level::Note, "clock", "certificates depend on it");
    let clear =
        |facts: &mut Facts| (facts.certificates, facts.clock.is_synchronised) = (None, Some(false));
    check(
        clear,
        Level::Note,
        "clock",
        "dates in answers and logs depend",
    );
    check_ok(|facts| facts.clock.is_synchronised = None, "it is unknown");
}
