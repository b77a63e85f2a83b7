//! The kernel, limits, memory, the process and the clock.

use gannet_server::config::{EngineChoice, SandboxChoice};
use gannet_server::tls::kernel::Choice;

use super::super::facts::{Clock, Facts, Lack, Limits, Memory};
use super::super::finding::{Finding, Level};
use crate::commands::serve::FOLDER_OF_ITS_OWN;
use crate::commands::serve::start_lines::NAME_BY_NAME;
use crate::quantities::{lasting, size};

/// The oldest kernel with every operation of the ring.
const RING: (u32, u32) = (6, 1);

pub(super) fn kernel(facts: &Facts) -> Vec<Finding> {
    let (kernel, wishes) = (&facts.kernel, &facts.wishes);
    let name = format!("Linux {}, {}", kernel.release, kernel.machine);
    let mut all = vec![match &kernel.files {
        Err(lack) => Finding::lacking(Level::Bad, "kernel", lack),
        Ok(()) if version(&kernel.release).is_some_and(|it| it < RING) => {
            Finding::note("kernel", format!("{name}: io_uring is used from 6.1 on"))
                .help("update the kernel; gannet runs on epoll meanwhile")
        }
        Ok(()) => Finding::ok("kernel", name),
    }];
    if let Err(lack) = &kernel.lookups {
        let mut note = Finding::lacking(Level::Note, "lookups", lack);
        note.text = format!("{NAME_BY_NAME}: {}", note.text);
        all.push(note);
    }
    all.push(match (&kernel.ring, wishes.engine) {
        (_, EngineChoice::Epoll) => Finding::ok("io_uring", "not used: --engine epoll"),
        (Ok((in_use, missing)), _) => {
            let without = match missing.is_empty() {
                true => String::new(),
                false => format!("; without {}", missing.join(", ")),
            };
            Finding::ok("io_uring", format!("{}{without}", in_use.join(", ")))
        }
        (Err(lack), EngineChoice::Uring) => Finding::lacking(Level::Bad, "io_uring", lack),
        (Err(lack), EngineChoice::Auto) => Finding::lacking(Level::Note, "io_uring", lack),
    });
    all.push(kernel_tls(facts));
    let part = |subject, state: Result<String, &Lack>| match (state, wishes.sandbox) {
        (_, SandboxChoice::Off) => Finding::ok(subject, "not used: --sandbox off"),
        (Ok(text), _) => Finding::ok(subject, text),
        (Err(lack), SandboxChoice::Require) => Finding::lacking(Level::Bad, subject, lack),
        (Err(lack), SandboxChoice::Auto) => Finding::lacking(Level::Note, subject, lack),
    };
    let landlock = kernel.landlock.as_ref();
    all.push(part(
        "landlock",
        landlock.map(|version| format!("version {version}")),
    ));
    let seccomp = kernel.seccomp.as_ref();
    all.push(part("seccomp", seccomp.map(|()| "filters work".into())));
    all
}

fn kernel_tls(facts: &Facts) -> Finding {
    let subject = "kernel TLS";
    match (&facts.kernel.kernel_tls, facts.wishes.kernel_tls) {
        (_, Choice::Off) => Finding::ok(subject, "not used: --ktls off"),
        (Ok(true), _) => Finding::ok(subject, "available, keys can be replaced"),
        (Ok(false), _) => Finding::ok(
            subject,
            "available; a connection ends when its key is used up (Linux 6.14 replaces keys)",
        ),
        (Err(lack), _) if facts.certificates.is_none() => {
            Finding::ok(subject, format!("{}; not needed without HTTPS", lack.why))
        }
        (Err(lack), Choice::On) => Finding::lacking(Level::Bad, subject, lack),
        (Err(lack), Choice::Auto) => Finding::lacking(Level::Note, subject, lack),
    }
}

/// Major and minor number of `6.18.44-generic`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

pub(super) fn limits(limits: &Limits) -> Vec<Finding> {
    /// Below this, a busy site sheds idle connections.
    const FEW: u64 = 16_384;
    let subject = "descriptors";
    if let Err(lack) = &limits.start {
        return vec![Finding::lacking(Level::Bad, "limits", lack)];
    }
    let shown = |limit: Option<u64>| limit.map_or("unlimited".into(), |it| it.to_string());
    let [soft, hard] = limits.descriptors;
    let raised = match soft == hard {
        true => "",
        false => " (raised at the start)",
    };
    let text = format!(
        "soft limit {}{raised}, hard limit {}",
        shown(soft),
        shown(hard)
    );
    let descriptors = match hard {
        Some(hard) if hard < FEW => {
            Finding::note(subject, format!("{text}: each client takes one or two"))
                .help("set LimitNOFILE=1048576 in the unit, or raise 'ulimit -Hn'")
        }
        _ => Finding::ok(subject, text),
    };
    let locked = limits.locked_memory.map_or("unlimited".into(), size);
    vec![descriptors, Finding::ok("locked memory", locked)]
}

pub(super) fn memory(memory: &Memory) -> Option<Finding> {
    let subject = "memory";
    let available = memory.available?;
    let (least, budget) = (memory.least, &memory.budget);
    let text = format!(
        "{} available, {} for a start, up to {} for caches",
        size(available),
        size(least),
        size(budget.caches)
    );
    let left = budget.left.unwrap_or(u64::MAX);
    Some(match available {
        _ if available < least => Finding::bad(subject, text)
            .help("give the container or the unit more memory, or start fewer --workers"),
        _ if left < budget.kept => Finding::note(subject, text).help(format!(
            "{}, or give it more memory: slow clients may hold half as much as the caches besides, 2 MiB of \
             each worker at least, and the kernel kills what exceeds it",
            match budget.fitting {
                Some(bytes) => format!("set --cache-memory {}MiB", bytes >> 20),
                None => "start fewer --workers".to_owned(),
            }
        )),
        _ if budget.hardly_codes() => Finding::note(
            subject,
            format!("{text}, too little besides to compress text while it is served"),
        )
        .help(
            "lower --cache-memory, start fewer --workers, give it more memory, or run 'gannet compress' on \
             the site",
        ),
        _ => Finding::ok(subject, text),
    })
}

pub(super) fn process(facts: &Facts) -> Vec<Finding> {
    let process = &facts.process;
    let mut all = Vec::new();
    all.push(match (process.is_root, &process.user) {
        (true, None) => Finding::note("user", "the server would run as root")
            .help("add --user NAME, or User= in the unit"),
        (true, Some(name)) => Finding::ok("user", format!("root, then {name}")),
        (false, _) => Finding::ok("user", "not root"),
    });
    let note = |lack| Finding::lacking(Level::Note, "user", lack);
    all.extend(process.denied.iter().map(note));
    all.extend(reach(facts));
    let Some(container) = process.container else {
        return all;
    };
    let mut tcp = facts.addresses.iter().filter_map(|one| one.tcp).peekable();
    let is_hidden = tcp.peek().is_some() && tcp.all(|address| address.ip().is_loopback());
    all.push(match is_hidden {
        true => {
            let text = format!("{container}: loopback cannot be reached from outside");
            Finding::note("container", text).help("add --expose, or --listen 0.0.0.0:PORT")
        }
        false => Finding::ok("container", container),
    });
    all
}

/// What confined workers can open besides what they serve.
fn reach(facts: &Facts) -> Vec<Finding> {
    let (folders, reached) = (&facts.process.worker_folders, &facts.process.within_reach);
    if folders.is_empty() {
        return Vec::new();
    }
    let note = |what: &String| Finding::note("sandbox", what.clone()).help(FOLDER_OF_ITS_OWN);
    match reached.is_empty() {
        true => {
            let text = format!("confined workers open files below {}", folders.join(", "));
            vec![Finding::ok("sandbox", text)]
        }
        false => reached.iter().map(note).collect(),
    }
}

pub(super) fn clock(clock: &Clock, has_https: bool) -> Finding {
    const DAY: i64 = 86_400;
    let subject = "clock";
    let mend = "start a time service: 'systemctl enable --now systemd-timesyncd', or chrony";
    match (clock.written, clock.is_synchronised) {
        (Some(written), _) if clock.now < written - DAY => {
            let behind = lasting((written - clock.now).unsigned_abs());
            let text = format!(
                "the clock is {behind} behind this program's own file: certificates and dates of \
                 answers will be wrong"
            );
            Finding::bad(subject, text).help(mend)
        }
        (_, Some(false)) => {
            let dependent = match has_https {
                true => "certificates depend on it",
                false => "dates in answers and logs depend on it",
            };
            Finding::note(subject, format!("not synchronised: {dependent}")).help(mend)
        }
        (_, Some(true)) => Finding::ok(subject, "synchronised"),
        (_, None) => Finding::ok(
            subject,
            "later than this program; it is unknown whether it is synchronised",
        ),
    }
}
