//! The program from outside: everything that needs no running server.

mod support;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use support::{Folder, command, gannet, gannet_in, run, same};

const SEE: &str = "help: see 'gannet --help'\n";

#[test]
fn help_comes_on_standard_output_short_and_long() {
    let short = gannet(["--help"]).success();
    same(gannet(["-h"]).success().text(), short.text());
    assert!(short.text().lines().count() <= 24, "one screen");
    assert!(short.text().contains("--listen ADDR:PORT"));
    let long = gannet(["--help-all"]).success();
    assert!(long.text().contains("[GANNET_HEAD_TIMEOUT; head-timeout]"));
    assert!(
        gannet(["pack", "--help"])
            .success()
            .text()
            .starts_with("usage: gannet pack")
    );
    let version = concat!("gannet ", env!("CARGO_PKG_VERSION"), "\n");
    same(gannet(["--version"]).success().text(), version);
}

#[test]
fn a_typo_names_what_was_probably_meant() {
    let folder = Folder::new();
    let check = |arguments: &[&str], err: &str| {
        let ended = gannet_in(&folder, arguments).failure(2, err);
        same(ended.text(), "");
    };
    check(
        &["--lisetn", ":80"],
        "gannet: unknown flag '--lisetn'\nhelp: did you mean '--listen'?\n",
    );
    check(&["--zzz"], &format!("gannet: unknown flag '--zzz'\n{SEE}"));
    check(&["."; 2], &format!("gannet: more than one path\n{SEE}"));
    check(
        &["pakc", "site", "-o", "x"],
        "gannet: more than one path\nhelp: did you mean the command 'gannet pack'?\n",
    );
    check(
        &["--log", "jsno", "."],
        "gannet: cannot use '--log jsno': not one of auto, pretty, combined, json, off (did you \
         mean 'json'?)\nhelp: see 'gannet --help-all'\n",
    );
    check(
        &["completions", "bahs"],
        "gannet: unknown shell 'bahs'\nhelp: did you mean 'bash'?\n",
    );
}

#[test]
fn a_mistyped_command_alone_is_a_path_that_does_not_exist() {
    let folder = Folder::new();
    gannet_in(&folder, ["inspekt"]).failure(
        1,
        "gannet: cannot serve 'inspekt': no such file or directory (ENOENT)\n\
         help: did you mean the command 'gannet inspect'?\n",
    );
    gannet_in(&folder, ["sub/site"]).failure(
        1,
        "gannet: cannot serve 'sub/site': no such file or directory (ENOENT)\n\
         help: check the path\n",
    );
}

#[test]
fn without_path_and_terminal_nothing_is_served() {
    gannet_in(&Folder::site(), [] as [&str; 0]).failure(
        2,
        "gannet: no path given, and no terminal to ask\n\
         help: name what to serve: 'gannet PATH'; for the current directory 'gannet .'\n",
    );
}

#[test]
fn only_directories_and_regular_files_are_served() {
    gannet(["/dev/null"]).failure(
        1,
        "gannet: cannot serve '/dev/null': not a regular file or directory\n\
         help: give a directory, a file or an archive\n",
    );
}

#[test]
fn a_damaged_archive_is_refused_and_not_served_as_a_file() {
    let folder = Folder::new();
    let check = |name: &str, content: &[u8]| {
        folder.write(name, content);
        let ended = gannet_in(&folder, ["--port", "0", name]);
        assert_eq!(ended.status, Some(1), "{name}");
        let start = format!("gannet: cannot open archive '{name}': ");
        assert!(ended.err.starts_with(&start), "{}", ended.err);
    };
    check("empty.gannet", b"");
    check("zip.gannet", &b"PK\x03\x04".repeat(2000));
    check(
        "renamed.bin",
        &[b"\x89gannet\r\n\x1a\n\0".as_slice(), &[0xff; 9000]].concat(),
    );
}

#[test]
fn configuration_is_checked_with_file_and_line() {
    let folder = Folder::new();
    folder.write(
        "good.toml",
        "port = 9000\nspa = true\n[header]\nX-A = 'b'\n",
    );
    let good = gannet_in(&folder, ["--config", "good.toml", "--check-config"]).success();
    same(good.text(), "the configuration is valid\n");
    let check = |content: &str, err: &str| {
        folder.write("bad.toml", content);
        gannet_in(&folder, ["--config", "bad.toml", "--check-config"]).failure(2, err);
        // Without the flag, too: a wrong configuration never starts a server.
        gannet_in(&folder, ["--config", "bad.toml", "."]).failure(2, err);
    };
    let bad = "gannet: cannot read configuration 'bad.toml'";
    check(
        "\nlog = 'off'\nlgo-file = 'x'\n",
        &format!("{bad}: line 3: unknown key 'lgo-file'\nhelp: did you mean 'log-file'?\n"),
    );
    check(
        "spa = 1\n",
        &format!("{bad}: line 1: 'spa' takes true or false\n"),
    );
    check(
        "# size\ncache-memory = 'much'\n",
        "gannet: cannot use 'bad.toml': line 2: cache-memory: not a size: write bytes, or a \
         number with K, M, G or T\n",
    );
    gannet_in(&folder, ["-c", "none.toml", "."]).failure(
        2,
        "gannet: cannot read configuration 'none.toml': no such file or directory (ENOENT)\n",
    );
}

#[test]
fn the_environment_is_read_and_its_mistakes_are_told() {
    let folder = Folder::site();
    let check = |variables: &[(&str, &str)], status: i32, err: &str| {
        let variables = variables.iter().copied();
        run(command()
            .current_dir(folder.path())
            .envs(variables)
            .arg("--check-config"))
        .failure(status, err);
    };
    check(&[("GANNET_PORT", "9000"), ("GANNET_PATH", ".")], 0, "");
    check(
        &[("GANNET_GRACE", "soon")],
        2,
        "gannet: cannot use 'GANNET_GRACE=soon': not a duration: write a number with ms, s, m or \
         h\n",
    );
    check(
        &[("GANNET_HAED_TIMEOUT", "1s")],
        0,
        "gannet: unknown environment variable 'GANNET_HAED_TIMEOUT' is ignored\n\
         help: did you mean 'GANNET_HEAD_TIMEOUT'?\n",
    );
    // What Kubernetes sets beside a service that is called gannet.
    check(
        &[
            ("GANNET_PORT", "tcp://10.0.0.1:8080"),
            ("GANNET_SERVICE_HOST", "10.0.0.1"),
            ("GANNET_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
        ],
        0,
        "",
    );
    check(
        &[("GANNET_CONFIG", "none.toml")],
        2,
        "gannet: cannot read configuration 'none.toml': no such file or directory (ENOENT)\n",
    );
}

#[test]
fn a_folder_called_as_a_command_is_served_by_its_path() {
    let folder = Folder::new();
    folder.write("pack/index.html", "x");
    gannet_in(&folder, ["--check-config", "./pack"]).success();
    gannet_in(&folder, ["serve", "--check-config", "pack"]).success();
    gannet_in(&folder, ["--check-config", "pack"]).failure(
        2,
        "gannet: arguments before the command 'pack'\n\
         help: write them after it: 'gannet pack ...'; a path is './pack'\n",
    );
}

#[test]
fn contradicting_addresses_are_a_mistake() {
    gannet(["--check-config", "--port", "80", "--listen", ":81", "/"]).failure(
        2,
        "gannet: --port and --listen contradict each other\n\
         help: name every address with --listen ADDR:PORT, or none\n",
    );
}

#[test]
fn a_given_port_that_is_busy_is_an_error_that_names_its_owner() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = socket.local_addr().expect("bound").port().to_string();
    let ended = gannet(["--port", &port, "/"]);
    let start = format!("gannet: cannot listen on '127.0.0.1:{port}': ");
    assert!(ended.err.starts_with(&start), "{}", ended.err);
    let owner = format!(
        "(EADDRINUSE) (used by {}, process {})\n",
        comm(),
        std::process::id()
    );
    assert!(ended.err.contains(&owner), "{} lacks {owner}", ended.err);
    assert!(
        ended
            .err
            .contains("\nhelp: stop what uses it, or choose another port")
    );
    assert_eq!(ended.status, Some(1));
}

fn comm() -> String {
    fs::read_to_string("/proc/self/comm")
        .expect("Linux has it")
        .trim_end()
        .to_owned()
}

#[test]
fn the_manual_page_is_roff_and_names_its_sections() {
    let page = gannet(["man"]).success();
    for section in [
        ".TH GANNET 1",
        ".SH SYNOPSIS",
        ".SH OPTIONS",
        ".SH COMMANDS",
        ".SH SIGNALS",
    ] {
        assert!(page.text().contains(section), "{section}");
    }
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = gannet(["completions", shell]).success();
        assert!(script.text().contains("listen"), "{shell}");
        assert!(script.text().contains("verify"), "{shell}");
        assert!(
            !script.text().contains("reference"),
            "{shell}: a hidden command is offered"
        );
    }
    let folder = Folder::new();
    let script = folder.write("bash", gannet(["completions", "bash"]).success().out);
    let checked = Command::new("bash")
        .arg("-n")
        .arg(script)
        .output()
        .expect("bash is there");
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stderr)
    );
}

#[test]
fn a_closed_pipe_is_success_and_a_full_disk_is_not() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = command()
        .arg("--help-all")
        .stdout(writer)
        .stderr(Stdio::piped())
        .output();
    let output = output.expect("the binary starts");
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), b"".as_slice())
    );

    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("Linux has it");
    let output = command()
        .arg("--help-all")
        .stdout(full)
        .stderr(Stdio::piped())
        .output();
    let output = output.expect("the binary starts");
    same(
        &String::from_utf8_lossy(&output.stderr),
        "gannet: cannot write to 'standard output': no space left on device (ENOSPC)\n",
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_reference_of_the_manual_is_what_the_program_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/reference.md");
    let committed = fs::read_to_string(path).expect("the manual has a reference");
    same(gannet(["reference"]).success().text(), &committed);
}
