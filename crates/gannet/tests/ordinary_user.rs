//! A user without rights starts a server on every supported kernel: what a process may not read about
//! itself once it is confined, it does not need.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use gannet_testkit::client::{get, metrics};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::process::of_threads;
use gannet_testkit::{
    Folder, Gannet, command_of_nobody, gannet_in, left_out, of_nobody, program, seccomp,
};
use rustix::fs::{XattrFlags, setxattr};

/// Commands of that user: on this kernel, and on one that is older than Linux 6.4.
fn commands() -> Vec<Command> {
    let older = seccomp::before_6_4(&[]).map(of_nobody);
    [Some(command_of_nobody()), older]
        .into_iter()
        .flatten()
        .collect()
}

/// Starts a server with these arguments, and asks it for the front page.
fn serves(command: &mut Command, arguments: &[&str]) -> Gannet {
    let server = Gannet::start(command.args(["serve", "--port", "0"]).args(arguments));
    let page = get(&server, "/");
    assert_eq!(page.status, 200);
    assert!(page.text().contains("hello"), "{page:?}");
    server
}

#[test]
fn a_folder_is_served() {
    let site = Folder::site();
    let path = site.path().to_str().unwrap();
    on_both_engines(|engine| {
        for limit in [&[][..], &["--max-memory", "128M"]] {
            for mut command in commands() {
                let arguments = [&["--engine", engine.name(), path], limit].concat();
                let server = serves(&mut command, &arguments);
                assert_eq!(of_threads(server.pid(), "NoNewPrivs"), ["1"]);
                server.stop().success();
            }
        }
    });
}

/// The facts about the process are read by the thread that answers, which is confined as well.
#[test]
fn an_archive_is_served_and_the_metrics_are_read() {
    let site = Folder::site();
    gannet_in(&site, ["pack", ".", "-o", "site.gannet"]).success();
    let archive = site.join("site.gannet");
    on_both_engines(|engine| {
        for mut command in commands() {
            let arguments = ["--metrics", "127.0.0.1:0", "--engine", engine.name()];
            let arguments = [&arguments[..], &[archive.to_str().unwrap()]].concat();
            let server = serves(&mut command, &arguments);
            for _ in 0..2 {
                let answer = metrics(&server);
                let text = answer.text();
                for name in [
                    "process_cpu_seconds_total",
                    "process_start_time_seconds",
                    "process_resident_memory_bytes",
                ] {
                    let line = text.lines().find_map(|line| line.strip_prefix(name));
                    let value: f64 = line.expect(name).trim().parse().expect("a number");
                    assert!(value > 0.0, "{name} {value}");
                }
            }
            server.stop().success();
        }
    });
}

/// Such a process may not be traced from its first instruction on.
#[test]
fn a_program_with_a_capability_serves() {
    /// `cap_net_bind_service=ep`, as setcap(8) writes it (`struct vfs_cap_data`, the second form).
    const NET_BIND_SERVICE: [u32; 5] = [0x0200_0001, 1 << 10, 0, 0, 0];
    let site = Folder::site();
    let copy = site.join("gannet");
    // By another process: a descriptor that could write to it would get into those that other tests start,
    // and the kernel would not execute it.
    let copied = Command::new("cp").arg(program()).arg(&copy).status();
    assert!(copied.unwrap().success());
    fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
    let value = NET_BIND_SERVICE.map(u32::to_le_bytes).concat();
    if let Err(error) = setxattr(&copy, "security.capability", &value, XattrFlags::empty()) {
        return left_out("file capabilities", error);
    }
    let mut command = Command::new(&copy);
    command.current_dir("/");
    let path = site.path().to_str().unwrap();
    let server = serves(&mut of_nobody(command), &[path]);
    server.stop().success();
}

/// Each turn of a worker reads the clock.
#[test]
fn the_clock_is_read_without_a_system_call() {
    const NAME: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = fs::read_to_string(NAME).unwrap_or_default();
    if !["tsc", "kvm-clock", "arch_sys_counter"].contains(&source.trim()) {
        return left_out("a clock that programs read", source);
    }
    let site = Folder::site();
    let path = site.path().to_str().unwrap();
    on_both_engines(|engine| {
        let Some(command) = seccomp::before_6_4(&[seccomp::CLOCK_GETTIME]) else {
            return;
        };
        let arguments = ["--engine", engine.name(), path];
        let server = serves(&mut of_nobody(command), &arguments);
        server.stop().success();
    });
}
