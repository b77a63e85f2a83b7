//! Flags of `gannet serve` for memory, limits, engine and output.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use gannet_server::config::{EngineChoice, SandboxChoice};
use gannet_server::tls::limits::{ENCRYPTED_RECORDS_MAX, ENCRYPTED_RECORDS_MIN};
use gannet_server::{Template, TemplateFault};

use crate::command_line::flag::{FILE, Flag, Group, Value, one, one_of};
use crate::command_line::nearest::nearest;
use crate::command_line::settings::{LogChoice, Settings};
use crate::command_line::values::{choice, colour, number, path, switch, text};
use crate::quantities::{parse_duration_ms, parse_size};

/// Parses a timeout in milliseconds. Zero is rejected: it would expire at once, while other servers
/// take it for no limit.
fn timeout(values: &[OsString]) -> Result<u64, String> {
    match parse_duration_ms(text(values)?)? {
        0 => Err("not a time of at least 1ms; it cannot be disabled".into()),
        ms => Ok(ms),
    }
}

/// Parses a format of log lines.
fn log_format(text: &str) -> Result<Arc<Template>, String> {
    let template = text.parse::<Template>();
    template.map(Arc::new).map_err(|error| match &error.fault {
        TemplateFault::Unknown(name) => match nearest(name, Template::variables()) {
            Some(meant) => format!("{error} (did you mean '${meant}'?)"),
            None => {
                let known: Vec<_> = Template::variables().collect();
                format!("{error} (there are: {})", known.join(", "))
            }
        },
        _ => error.to_string(),
    })
}

/// Parses the part of answers that is logged.
fn sample(text: &str) -> Result<u32, String> {
    let part = text.strip_prefix("1/").and_then(|it| it.parse().ok());
    part.filter(|it| (1..=1_000_000).contains(it))
        .ok_or_else(|| "not 1/N with N from 1 to 1000000".into())
}

/// The longest `--delay`, milliseconds: a TLS handshake takes two of them, and its default timeout
/// is 15 s.
const DELAY_MAX_MS: u64 = 5_000;

/// The flags, in the order in which they are described.
pub(super) const FLAGS: &[Flag<Settings>] = &[
    Flag {
        name: "dummy",
        short: None,
        value: Value::Switch,
        group: Group::Measuring,
        default: "false",
        brief: "answer everything with 'hello world!', to measure the engine alone",
        details: "No file is opened or looked up.",
        is_common: false,
        apply: |settings, values| {
            settings.server.content.dummy = switch(values)?.then_some("hello world!\n");
            Ok(())
        },
    },
    Flag {
        name: "dummy-empty",
        short: None,
        value: Value::Switch,
        group: Group::Measuring,
        default: "false",
        brief: "answer everything with an empty body, to measure the engine alone",
        details: "",
        is_common: false,
        apply: |settings, values| {
            if switch(values)? {
                settings.server.content.dummy = Some("");
            }
            Ok(())
        },
    },
    Flag {
        name: "delay",
        short: None,
        value: one("TIME"),
        group: Group::Measuring,
        default: "0",
        brief: "simulate network latency: delay everything received by this much",
        details: "At most 5s. Delays every round trip, including those of TLS handshakes and \
            HTTP/2 windows, without holding up other connections. Timeouts keep running.",
        is_common: false,
        apply: |settings, values| {
            let delay_ms = parse_duration_ms(text(values)?)?;
            if delay_ms > DELAY_MAX_MS {
                return Err(format!(
                    "{delay_ms} ms is too long: at most {DELAY_MAX_MS} ms"
                ));
            }
            settings.server.limits.delay_ms = delay_ms;
            Ok(())
        },
    },
    Flag {
        name: "tls-key-records",
        short: None,
        value: one("N"),
        group: Group::Measuring,
        default: "8388608",
        brief: "records encrypted with one key of a connection",
        details: "256 to 8388608; a record holds up to 16 KiB. Then the key is updated (TLS 1.3). \
            Where it cannot be, in TLS 1.2 and with kernel TLS before Linux 6.14, the connection \
            closes after the current answer, and at twice as many records in the middle of it. The \
            default is half of what AES-GCM allows.",
        is_common: false,
        apply: |settings, values| {
            const RANGE: &str = "from 256 to 8388608";
            let count: u64 = number(values, RANGE)?;
            if !(ENCRYPTED_RECORDS_MIN..=ENCRYPTED_RECORDS_MAX).contains(&count) {
                return Err(format!("not a whole number {RANGE}"));
            }
            settings.tls.key_records_max = count;
            Ok(())
        },
    },
    Flag {
        name: "max-memory",
        short: None,
        value: one("SIZE"),
        group: Group::Memory,
        default: "0",
        brief: "memory limit of the process; 0: no limit",
        details: "Limits its data (RLIMIT_DATA): the page cache does not count. At the limit \
            connections are shed, idle ones first.",
        is_common: false,
        apply: |settings, values| {
            settings.max_memory = parse_size(text(values)?)?;
            Ok(())
        },
    },
    Flag {
        name: "max-descriptors",
        short: None,
        value: one("N"),
        group: Group::Limits,
        default: "0",
        brief: "limit of open descriptors; 0: as many as allowed",
        details: "Connections and open files count. At the limit idle connections are shed.",
        is_common: false,
        apply: |settings, values| {
            settings.max_descriptors = number(values, "from 0 to 18446744073709551615")?;
            Ok(())
        },
    },
    Flag {
        name: "cache-memory",
        short: None,
        value: one("SIZE"),
        group: Group::Memory,
        default: "auto",
        brief: "memory limit for copies of files and archives; 0 keeps none",
        details: "For all workers together: files of a directory, archives (in at most half of \
            it; with auto only those of up to 256 MiB), and bodies of other archives. auto is an \
            eighth of the memory available at the start, or of the limit of the container or \
            unit, from 256 MiB to 1 GiB. Sizes take K, M, G (powers of 1024) or KB, MB, GB.",
        is_common: false,
        apply: |settings, values| {
            let content = &mut settings.server.content;
            content.cache_memory = match text(values)? {
                "auto" => None,
                size => Some(parse_size(size)?),
            };
            content.copies_long_archives = content.cache_memory.is_some();
            Ok(())
        },
    },
    Flag {
        name: "head-timeout",
        short: None,
        value: one("TIME"),
        group: Group::Limits,
        default: "15s",
        brief: "from the first byte of a request until its head is complete",
        details: "Also from accepting a connection until its first request. Times take ms, s, m \
            or h; a bare number is seconds.",
        is_common: false,
        apply: |settings, values| {
            settings.server.limits.head_timeout_ms = timeout(values)?;
            Ok(())
        },
    },
    Flag {
        name: "idle-timeout",
        short: None,
        value: one("TIME"),
        group: Group::Limits,
        default: "75s",
        brief: "how long a connection may wait for its next request",
        details: "",
        is_common: false,
        apply: |settings, values| {
            settings.server.limits.idle_timeout_ms = timeout(values)?;
            Ok(())
        },
    },
    Flag {
        name: "progress-timeout",
        short: None,
        value: one("TIME"),
        group: Group::Limits,
        default: "60s",
        brief: "how long a client may stall without receiving any of a response",
        details: "",
        is_common: false,
        apply: |settings, values| {
            settings.server.limits.progress_timeout_ms = timeout(values)?;
            Ok(())
        },
    },
    Flag {
        name: "send-rate-min",
        short: None,
        value: one("SIZE"),
        group: Group::Limits,
        default: "500",
        brief: "minimum rate at which a client must receive, in bytes per second; 0 turns it off",
        details: "Averaged over an answer, once it has taken longer than --progress-timeout.",
        is_common: false,
        apply: |settings, values| {
            settings.server.limits.send_rate_min = parse_size(text(values)?)?;
            Ok(())
        },
    },
    Flag {
        name: "max-connections",
        short: None,
        value: one("N"),
        group: Group::Limits,
        default: "0",
        brief: "limit of concurrent connections; 0: as many as descriptors allow",
        details: "Further clients are accepted as others disconnect. At start gannet raises the \
            soft limit of descriptors to the hard one (ulimit -Hn).",
        is_common: false,
        apply: |settings, values| {
            settings.server.limits.connections_max = number(values, "from 0 to 4294967295")?;
            Ok(())
        },
    },
    Flag {
        name: "grace",
        short: None,
        value: one("TIME"),
        group: Group::Limits,
        default: "30s",
        brief: "how long running answers may take after SIGTERM or Ctrl-C",
        details: "A second signal ends gannet at once.",
        is_common: false,
        apply: |settings, values| {
            settings.server.limits.grace_ms = parse_duration_ms(text(values)?)?;
            Ok(())
        },
    },
    Flag {
        name: "engine",
        short: None,
        value: one_of("ENGINE", &["auto", "io_uring", "epoll"]),
        group: Group::Engine,
        default: "auto",
        brief: "how to talk to the kernel: auto, io_uring or epoll",
        details: "auto uses io_uring where the kernel allows it, else epoll, and the first lines \
            say why. io_uring is an error where the kernel does not allow it.",
        is_common: false,
        apply: |settings, values| {
            settings.server.engine = choice(
                values,
                &[
                    ("auto", EngineChoice::Auto),
                    ("io_uring", EngineChoice::Uring),
                    ("epoll", EngineChoice::Epoll),
                ],
            )?;
            Ok(())
        },
    },
    Flag {
        name: "workers",
        short: None,
        value: one("N"),
        group: Group::Engine,
        default: "0",
        brief: "worker threads; 0: one per core",
        details: "Counts the cores that this process may use.",
        is_common: true,
        apply: |settings, values| {
            let count: u16 = number(values, "from 0 to 1024")?;
            // Each worker is a thread with a ring and listeners: a larger number is a typing
            // mistake.
            if count > 1024 {
                return Err("not a whole number from 0 to 1024".into());
            }
            settings.server.workers = usize::from(count);
            Ok(())
        },
    },
    Flag {
        name: "sandbox",
        short: None,
        value: one_of("WHEN", &["auto", "require", "off"]),
        group: Group::Engine,
        default: "auto",
        brief: "confine threads: auto, require or off",
        details: "Once it serves, the server can open only what it serves or reads again, write \
            only below its log's folder, start no program and connect to nothing (Landlock, \
            seccomp, restrictions of io_uring). auto goes without what the kernel lacks, and the \
            first lines say so; require is an error then.",
        is_common: false,
        apply: |settings, values| {
            settings.server.sandbox = choice(
                values,
                &[
                    ("auto", SandboxChoice::Auto),
                    ("require", SandboxChoice::Require),
                    ("off", SandboxChoice::Off),
                ],
            )?;
            Ok(())
        },
    },
    Flag {
        name: "user",
        short: None,
        value: one("NAME[:GROUP]"),
        group: Group::Engine,
        default: "",
        brief: "become this user once addresses are bound and keys are read",
        details: "Only root can. With a group, the process is in that one alone, otherwise in all \
            of the user's. Certificates, rules and content are read again, and the log reopened, \
            with the user's rights.",
        is_common: false,
        apply: |settings, values| {
            let named = text(values)?;
            let mut parts = named.split(':');
            let is_named = parts.by_ref().take(2).all(|part| !part.is_empty());
            if !is_named || parts.next().is_some() {
                return Err("not NAME or NAME:GROUP".into());
            }
            settings.user = Some(named.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "log",
        short: None,
        value: one_of(
            "FORMAT",
            &["auto", "pretty", "combined", "vcombined", "json", "off"],
        ),
        group: Group::Output,
        default: "auto",
        brief: "log: pretty, (v)combined, json, off or own",
        details: "One line per request. auto is pretty on a terminal and off otherwise; combined \
            is the format that log analysers know, vcombined has host and port in front. A \
            format of your own has variables of nginx: '$remote_addr \"$request\" $status \
            $request_time'; ${status} before a letter. They are remote_addr, remote_port, \
            remote_user, time_local, time_iso8601, msec, request, request_method, request_uri, \
            uri, args, host, scheme, server_protocol, status, body_bytes_sent, request_length, \
            request_time (seconds), request_completion, rejected, http_host, http_referer, \
            http_user_agent, http_x_forwarded_for, http_traceparent, http_x_request_id, \
            ssl_protocol, ssl_cipher, ssl_client_verify, ssl_client_s_dn, ssl_client_serial, \
            ssl_client_fingerprint.",
        is_common: true,
        apply: |settings, values| {
            let typed = text(values)?;
            if typed.contains('$') {
                settings.log = LogChoice::Own(log_format(typed)?);
                return Ok(());
            }
            settings.log = choice(
                values,
                &[
                    ("auto", LogChoice::Auto),
                    ("pretty", LogChoice::Pretty),
                    ("combined", LogChoice::Combined),
                    ("vcombined", LogChoice::Vcombined),
                    ("json", LogChoice::Json),
                    ("off", LogChoice::Off),
                ],
            )?;
            Ok(())
        },
    },
    Flag {
        name: "log.mask",
        short: None,
        value: Value::Switch,
        group: Group::Keys,
        default: "false",
        brief: "log networks instead of addresses of clients",
        details: "The last 8 bits of an IPv4 address and the last 80 of an IPv6 address are \
            zero; ports, users and the names of certificates are left out. Messages on standard \
            error are masked, too.",
        is_common: false,
        apply: |settings, values| {
            settings.server.log_lines.is_masked = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "log.sample",
        short: None,
        value: one("1/N"),
        group: Group::Keys,
        default: "1/1",
        brief: "log one answer in N, and every one with 500 and more",
        details: "Each worker takes its own sample, evenly, for N up to 1000000.",
        is_common: false,
        apply: |settings, values| {
            settings.server.log_lines.one_in = sample(text(values)?)?;
            Ok(())
        },
    },
    Flag {
        name: "log-file",
        short: None,
        value: FILE,
        group: Group::Output,
        default: "",
        brief: "log requests here instead of standard output; reopened by SIGHUP",
        details: "With --log auto it is written in the combined format. May also be a FIFO with \
            a reader, or a device such as /dev/null or /dev/stderr.",
        is_common: false,
        apply: |settings, values| {
            settings.server.log_file = Some(path(values)?);
            Ok(())
        },
    },
    Flag {
        name: "report",
        short: None,
        value: one("TIME"),
        group: Group::Output,
        default: "",
        brief: "print a line about the traffic at this interval, on standard error",
        details: "Requests and bytes in a second, connections, the median and the 99th \
            percentile of durations, cache hits, and errors: answers with 500 and more, and \
            those that were cut short. At least 1s.",
        is_common: false,
        apply: |settings, values| {
            let ms = parse_duration_ms(text(values)?)?;
            if ms < 1_000 {
                return Err("not a time of at least 1s".into());
            }
            settings.server.report_every = Some(Duration::from_millis(ms));
            Ok(())
        },
    },
    Flag {
        name: "quiet",
        short: Some('q'),
        value: Value::Switch,
        group: Group::Output,
        default: "false",
        brief: "print errors only, no lines at start and stop",
        details: "What a signal requests is printed all the same, to standard error.",
        is_common: true,
        apply: |settings, values| {
            settings.quiet = switch(values)?;
            Ok(())
        },
    },
    Flag {
        name: "color",
        short: None,
        value: one_of("WHEN", &["auto", "always", "never"]),
        group: Group::Output,
        default: "auto",
        brief: "colours in the output: auto, always or never",
        details: "auto means on a terminal, unless NO_COLOR is set or TERM is dumb.",
        is_common: false,
        apply: |settings, values| {
            settings.colour = colour(values)?;
            Ok(())
        },
    },
];
