//! Runs the program: everything but the answers of a running server.

#[path = "cli/archives.rs"]
mod archives;
#[path = "cli/terminal.rs"]
mod terminal;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use gannet_testkit::{Folder, Gannet, Signal, command, gannet, gannet_in, run, same};

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
    // Commands and flags are equivalent.
    same(gannet(["version"]).success().text(), version);
    same(gannet(["help"]).success().text(), short.text());
    let pack = gannet(["pack", "--help"]).success();
    same(gannet(["help", "pack"]).success().text(), pack.text());
    gannet(["help", "pakc"]).failure(
        2,
        "gannet: 'pakc' is not a command\nhelp: did you mean 'gannet help pack'?\n",
    );
}

/// The short help of a command refers to all its flags, and that help needs no arguments.
#[test]
fn every_flag_of_a_command_can_be_found() {
    for (command, flag) in [("pack", "--compress-type"), ("serve", "--send-rate-min")] {
        let short = gannet([command, "--help"]).success();
        let way = "      --help-all               every flag";
        assert!(short.text().contains(way), "{}", short.text());
        assert!(!short.text().contains(flag), "it is not a common one");
        let all = gannet([command, "--help-all"]).success();
        assert!(all.text().contains(flag), "{}", all.text());
    }
    let pack = gannet(["pack", "--help-all"]).success();
    assert!(
        !pack.text().contains("--send-rate-min"),
        "flags of others are not its own"
    );
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
        "gannet: cannot use '--log jsno': not one of auto, pretty, combined, vcombined, json, off (did you \
         mean 'json'?)\nhelp: see 'gannet --help-all'\n",
    );
    check(
        &["completions", "ksh"],
        "gannet: no completions are made for ksh\n\
         help: they are made for bash, elvish, fish, powershell, zsh\n",
    );
    check(
        &["check", "-f", "xml", "."],
        "gannet: cannot use '--format xml': not one of text, json, github\n\
         help: see 'gannet check --help'\n",
    );
    check(
        &["verify", "a.gannet", "b.gannet"],
        "gannet: unexpected argument 'b.gannet'\nhelp: see 'gannet verify --help'\n",
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
fn root_and_home_are_served_only_by_name() {
    let home = Folder::site();
    let run = |folder: &std::path::Path, arguments: &[&str]| {
        let mut command = command();
        command.env("HOME", home.path()).current_dir(folder);
        gannet_testkit::run(
            command
                .args(["serve", "--check-config", "--port", "0"])
                .args(arguments),
        )
    };
    let refused = |path: &str, what: &str| {
        format!(
            "gannet: no path given, and the current directory '{path}' is {what}\n\
             help: name what to serve: 'gannet PATH'; to serve this directory, 'gannet .'\n"
        )
    };
    let real = home.path().canonicalize().expect("it is there");
    let expect = refused(&real.to_string_lossy(), "a home directory");
    run(home.path(), &[]).failure(2, &expect);
    run(home.path(), &["."]).success();
    run(&home.join("docs"), &[]).success();
    run(std::path::Path::new("/"), &[]).failure(2, &refused("/", "the root of the file system"));
}

#[test]
fn a_port_or_an_address_is_no_path() {
    let folder = Folder::site();
    for (word, help) in [
        ("9000", "for the port, write '--port 9000'"),
        ("0.0.0.0:80", "for the address, write '--listen 0.0.0.0:80'"),
        (":80", "for the address, write '--listen :80'"),
    ] {
        let expect = format!(
            "gannet: cannot serve '{word}': no such file or directory (ENOENT)\nhelp: {help}\n"
        );
        gannet_in(&folder, [word]).failure(1, &expect);
        let expect = format!("gannet: more than one path\nhelp: {help}\n");
        gannet_in(&folder, [".", word]).failure(2, &expect);
        gannet_in(&folder, [word, "."]).failure(2, &expect);
        let expect = format!("gannet: unexpected argument '.'\nhelp: {help}\n");
        gannet_in(&folder, ["serve", word, "."]).failure(2, &expect);
    }
    let ended = gannet_in(&folder, ["dev", "9000"]);
    assert!(
        ended
            .err
            .ends_with("help: for the port, write '--port 9000'\n")
    );
    // What follows a flag is its value.
    let ended = gannet_in(&folder, ["--port", "9000", ".", "site"]);
    assert!(ended.err.ends_with("help: see 'gannet --help'\n"));
    // A folder may have such a name.
    folder.write("9000/index.html", "year");
    gannet_in(&folder, ["serve", "--check-config", "--port", "0", "9000"]).success();
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
        "path = '.'\nport = 0\nno-listing = true\n[header]\nX-A = 'b'\n",
    );
    let good = gannet_in(&folder, ["--config", "good.toml", "--check-config"]).success();
    same(good.text(), "the configuration is valid\n");
    for (more, named) in [
        (&[][..], "client and scheme: "),
        (&["--trust-host"], "client, scheme and host: "),
    ] {
        let everybody = [".", "--trust", "0.0.0.0/0", "--check-config"];
        let trusting = gannet_in(&folder, [&everybody, more].concat()).success();
        let note = format!("note     every peer is trusted, and can name any {named}");
        assert!(trusting.text().starts_with(&note), "{trusting:?}");
    }
    let check = |content: &str, err: &str| {
        folder.write("bad.toml", content);
        gannet_in(&folder, ["--config", "bad.toml", "--check-config"]).failure(2, err);
        // Also without `--check-config`: an invalid configuration never starts a server.
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
        "gannet: cannot use 'bad.toml': line 2: cache-memory: not a size: write bytes, or a number \
         with K, M, G or T\nhelp: 'gannet --help-all' lists the values of each key\n",
    );
    gannet_in(&folder, ["-c", "none.toml", "."]).failure(
        2,
        "gannet: cannot read configuration 'none.toml': no such file or directory (ENOENT)\n\
         help: check the path\n",
    );
    folder.write("bytes.toml", [0xFF]);
    gannet_in(&folder, ["-c", "bytes.toml", "."]).failure_with(2, "not UTF-8");
    // What the system refuses may be there soon: service managers do not start again after status 2.
    symlink("loop.toml", folder.join("loop.toml")).expect("a link");
    gannet_in(&folder, ["-c", "loop.toml", "."]).failure_with(1, "(ELOOP)");
}

#[test]
fn the_environment_is_read_and_its_mistakes_are_told() {
    let folder = Folder::site();
    let check = |variables: &[(&str, &str)], status: i32, err: &str| {
        let variables = variables.iter().copied();
        run(command()
            .current_dir(folder.path())
            .env("GANNET_PATH", ".")
            .envs(variables)
            .arg("--check-config"))
        .failure(status, err);
    };
    check(&[("GANNET_PORT", "0")], 0, "");
    check(
        &[("GANNET_GRACE", "soon")],
        2,
        "gannet: cannot use 'GANNET_GRACE=soon': not a duration: write a number with ms, s, m, \
         h or d\nhelp: correct the variable, or unset it\n",
    );
    check(
        &[("GANNET_HAED_TIMEOUT", "1s")],
        0,
        "gannet: unknown environment variable 'GANNET_HAED_TIMEOUT' is ignored\n\
         help: did you mean 'GANNET_HEAD_TIMEOUT'?\n",
    );
    // Variables that Kubernetes sets beside a service named gannet.
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
        "gannet: cannot read configuration 'none.toml': no such file or directory (ENOENT)\n\
         help: check the path\n",
    );
}

#[test]
fn a_folder_called_as_a_command_is_served_by_its_path() {
    let folder = Folder::new();
    folder.write("pack/index.html", "x");
    gannet_in(&folder, ["--check-config", "./pack"]).success();
    gannet_in(&folder, ["serve", "--check-config", "pack"]).success();
    gannet_in(&folder, ["pack", "--port", "80"]).failure(
        2,
        "gannet: unknown flag '--port'\n\
         help: to serve the folder of this name, write 'gannet ./pack'\n",
    );
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
fn what_keeps_a_server_from_starting_is_told() {
    let folder = Folder::site();
    gannet_in(&folder, ["-p0", "--log-file", "none/log", "."]).failure(
        1,
        "gannet: cannot open log file 'none/log': no such file or directory (ENOENT)\n\
         help: check the directory and its permissions\n",
    );
    let socket = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = socket.local_addr().expect("bound").to_string();
    gannet_in(&folder, ["-p0", "--metrics", &address, "."]).failure(
        1,
        &format!(
            "gannet: cannot answer metrics on '{address}': address already in use (EADDRINUSE) (used \
             by {}, process {})\n\
             help: choose another port with --metrics ADDR:PORT\n",
            comm(),
            std::process::id()
        ),
    );
}

#[test]
fn the_manual_page_is_roff_and_names_its_sections() {
    let page = gannet(["help", "--man"]).success();
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
        .expect("bash is installed");
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
        "gannet: cannot write to 'standard output': no space left on device (ENOSPC)\n\
         help: free some space there, or choose another place\n",
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_reference_of_the_manual_is_what_the_program_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/reference.md");
    let committed = fs::read_to_string(path).expect("the manual has a reference");
    same(gannet(["reference"]).success().text(), &committed);
}

#[test]
fn a_server_tells_what_and_where_and_ends_with_status_0() {
    let site = Folder::site();
    for engine in ["auto", "epoll"] {
        let server = Gannet::serve(site.path(), &["--engine", engine]);
        let lines = server.start_lines();
        same(&lines[0], concat!("gannet ", env!("CARGO_PKG_VERSION")));
        same(
            &lines[1],
            &format!("serving  {} (directory)", site.path().display()),
        );
        assert_ne!(server.address().port(), 0);
        TcpStream::connect(server.address()).expect("it listens where it says");
        assert!(
            lines.iter().any(|line| line.starts_with("engine   ")),
            "{lines:#?}"
        );
        assert!(engine == "auto" || lines.iter().any(|line| line.contains("epoll, ")));
        let ended = server.stop().success();
        same(ended.text(), "");
    }
}

#[test]
fn an_archive_and_a_file_are_told_as_such() {
    let folder = Folder::new();
    let archive = archives::packed(&folder);
    let server = Gannet::serve(&archive, &[]);
    let line = &server.start_lines()[1];
    let start = format!("serving  {} (archive: 7 files, ", archive.display());
    assert!(
        line.starts_with(&start) && line.contains("build "),
        "{line}"
    );
    let file = folder.write("one.txt", "x");
    let server = Gannet::serve(&file, &[]);
    same(
        &server.start_lines()[1],
        &format!("serving  {} (one file)", file.display()),
    );
}

#[test]
fn a_busy_default_port_moves_and_says_so() {
    // Busy, whether this test or another process holds it.
    let _busy = TcpListener::bind("127.0.0.1:8080");
    let site = Folder::site();
    let server = Gannet::start(command().arg(site.path()));
    let port = server.address().port();
    assert!((8081..8100).contains(&port), "{port}");
    let note = format!("; using {port}");
    let lines = server.start_lines();
    let is_note =
        |line: &String| line.starts_with("note     port 8080 is busy") && line.ends_with(&note);
    assert!(lines.iter().any(is_note), "{lines:#?}");
}

#[test]
fn a_unix_socket_is_there_while_it_is_served() {
    let folder = Folder::site();
    let socket = folder.join("socket");
    let address = format!("unix:{}", socket.display());
    let server = Gannet::start(command().args(["--listen", &address]).arg(folder.path()));
    assert_eq!(server.urls(), std::slice::from_ref(&address));
    std::os::unix::net::UnixStream::connect(&socket).expect("it listens where it says");
    gannet(["--listen", &address, "/"]).failure(
        1,
        &format!(
            "gannet: cannot listen on '{address}': address already in use (EADDRINUSE)\n\
             help: stop the server that uses it, or remove the file if it is not a socket\n"
        ),
    );
    server.stop().success();
    assert!(!socket.exists());
}

#[test]
fn a_summary_comes_on_standard_error_when_asked_for() {
    let site = Folder::site();
    let mut server = Gannet::serve(site.path(), &["--quiet=false"]);
    server.signal(Signal::USR1);
    let line = server.next_error_line().expect("a summary");
    assert!(line.starts_with("engine: "), "{line}");
    let line = server.next_error_line().expect("more of it");
    assert!(line.starts_with("sandbox: "), "{line}");
    let line = server.next_error_line().expect("more of it");
    assert!(line.starts_with("connections: "), "{line}");
    assert_eq!(server.stop().status, Some(0));
}
