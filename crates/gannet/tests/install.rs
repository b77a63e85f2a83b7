//! `gannet install` below another root: what is written, kept and removed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use gannet_testkit::{Ended, Folder, command, command_of_nobody, program, run};

const SERVICE: &str = "usr/lib/systemd/system/gannet.service";
const ORDERER: &str = "usr/lib/systemd/system/gannet-acme.service";
const SOCKET: &str = "usr/lib/systemd/system/gannet.socket";
const CONFIGURATION: &str = "etc/gannet/gannet.toml";
const USER: &str = "usr/lib/sysusers.d/gannet.conf";
const PAGE: &str = "usr/share/man/man1/gannet.1";
const ROTATION: &str = "etc/logrotate.d/gannet";

/// A root with the program in its place, as a package's.
fn root() -> Folder {
    let root = Folder::new();
    let bin = root.join("usr/bin");
    fs::create_dir_all(&bin).expect("made");
    let place = bin.join("gannet");
    if fs::hard_link(program(), &place).is_err() {
        // By another process: a descriptor that could write to it would get into those that other tests
        // start, and the kernel would not execute it.
        let copied = Command::new("cp").arg(program()).arg(&place).status();
        assert!(copied.expect("started").success());
    }
    root
}

/// Runs the installed program's `install` with these flags.
fn install(root: &Folder, flags: &[&str]) -> Ended {
    let mut installed = Command::new(root.join("usr/bin/gannet"));
    installed.current_dir("/").arg("install").args(flags);
    run(installed.arg("--root").arg(root.path()))
}

/// The files but the program, relative to the root, sorted.
fn files(root: &Folder) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("readable") {
            let path = entry.expect("readable").path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path.strip_prefix(root.path()).expect("below").to_owned()),
            }
        }
    }
    files.retain(|path| path != Path::new("usr/bin/gannet"));
    files.sort();
    files
}

fn paths(names: &[&str]) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    paths.sort();
    paths
}

#[test]
fn what_is_installed_is_kept_the_second_time_and_removed_again() {
    let root = root();
    let first = install(&root, &[]).success();
    for line in [
        "write   /usr/lib/systemd/system/gannet.service\n",
        "write   /usr/lib/systemd/system/gannet-acme.service\n",
        "write   /etc/gannet/gannet.toml\n",
        "make    /srv/www/\n",
    ] {
        assert!(first.text().contains(line), "{line}: {}", first.text());
    }
    assert_eq!(
        files(&root),
        paths(&[SERVICE, ORDERER, CONFIGURATION, USER, PAGE, ROTATION])
    );
    assert!(root.join("srv/www").is_dir());
    let service = fs::read_to_string(root.join(SERVICE)).expect("written");
    let start = "\nExecStart=/usr/bin/gannet serve --config /etc/gannet/gannet.toml\n";
    assert!(
        service.contains(start) && service.contains("\nUser=gannet\n"),
        "{service}"
    );
    let orderer = fs::read_to_string(root.join(ORDERER)).expect("written");
    let start = "\nExecStart=/usr/bin/gannet acme --dir /var/lib/gannet/acme $OPTIONS $HOSTS\n";
    assert!(
        orderer.contains(start) && orderer.contains("\nUser=gannet\n"),
        "{orderer}"
    );

    let second = install(&root, &[]).success();
    assert!(!second.text().contains("write "), "{}", second.text());
    assert_eq!(second.text().matches("it is as it should be").count(), 6);

    let removed = install(&root, &["--remove"]).success();
    assert!(removed.text().contains("keep    /srv/www: the site\n"));
    assert_eq!(files(&root), paths(&[]));
    assert!(!root.join("etc/gannet").exists() && root.join("srv/www").is_dir());
    assert!(!root.join("var/log/gannet").exists());
    let nothing = install(&root, &["--remove"]).success();
    assert_eq!(nothing.text(), "keep    /srv/www: the site\n");
}

#[test]
fn a_dry_run_prints_every_text_and_does_nothing() {
    let root = root();
    let dry = install(&root, &["--dry-run", "--socket"]).success();
    assert_eq!(files(&root), paths(&[]));
    assert!(!root.join("srv").exists());
    install(&root, &["--socket"]).success();
    for path in [
        SERVICE,
        ORDERER,
        SOCKET,
        CONFIGURATION,
        USER,
        PAGE,
        ROTATION,
    ] {
        let text = fs::read_to_string(root.join(path)).expect("written");
        for line in text.lines() {
            assert!(
                dry.text()
                    .contains(&format!("    {line}").trim_end().to_owned()),
                "{line}"
            );
        }
    }
    let before = files(&root);
    let dry = install(&root, &["--remove", "--dry-run"]).success();
    assert!(
        dry.text()
            .contains("remove  /usr/lib/systemd/system/gannet.socket\n")
    );
    assert_eq!(files(&root), before);
    install(&root, &["--remove"]).success();
    assert_eq!(files(&root), paths(&[]));
}

#[test]
fn what_someone_changed_is_neither_replaced_nor_removed() {
    let root = root();
    root.write(CONFIGURATION, "path = '/srv/other'\n");
    let first = install(&root, &[]).success();
    let kept = "keep    /etc/gannet/gannet.toml: it has other content\n";
    assert!(first.text().contains(kept), "{}", first.text());
    root.write(SERVICE, "[Service]\nExecStart=/bin/true\n");
    let second = install(&root, &[]).success();
    assert!(
        second
            .text()
            .contains("gannet.service: it has other content\n")
    );
    root.write("srv/www/index.html", "the site");

    let removed = install(&root, &["--remove"]).success();
    assert!(
        removed
            .text()
            .contains("gannet.toml: it has other content\n")
    );
    assert!(
        removed
            .text()
            .contains("gannet.service: it has other content\n")
    );
    let left = [CONFIGURATION, SERVICE, USER, "srv/www/index.html"];
    assert_eq!(files(&root), paths(&left));
    let text = fs::read_to_string(root.join(CONFIGURATION)).expect("kept");
    assert_eq!(text, "path = '/srv/other'\n");
}

#[test]
fn an_enabled_service_is_not_removed() {
    let root = root();
    install(&root, &[]).success();
    let wants = root.join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants).expect("made");
    for (unit, path) in [
        ("gannet.service", SERVICE),
        ("gannet-acme.service", ORDERER),
    ] {
        let link = wants.join(unit);
        symlink(format!("/{path}"), &link).expect("made");
        install(&root, &["--remove"]).failure(
            1,
            &format!(
                "gannet: cannot remove '{unit}': it is enabled\n\
                 help: systemctl disable --now {unit}\n"
            ),
        );
        assert!(root.join(path).exists());
        fs::remove_file(link).expect("there");
    }
}

#[test]
fn only_root_installs_into_the_system() {
    let mut nobody = command_of_nobody();
    run(nobody.arg("install")).failure(
        1,
        "gannet: only root can install a service\n\
         help: use sudo; --dry-run prints what would be done\n",
    );
    run(command().args(["install", "--remove", "--socket", "--dry-run"])).failure(
        2,
        "gannet: --socket makes no sense with --remove\n\
         help: leave it out: both forms are removed\n",
    );
}

/// The service has to read what is installed, whatever files of the administrator are for.
#[test]
fn the_service_can_read_what_an_administrator_with_a_strict_umask_installs() {
    let root = root();
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 077; exec \"$@\"", "sh"]);
    shell.arg(root.join("usr/bin/gannet")).arg("install");
    run(shell.arg("--root").arg(root.path())).success();
    for (path, expect) in [
        ("etc/gannet", 0o755),
        (CONFIGURATION, 0o644),
        (SERVICE, 0o644),
        ("srv/www", 0o755),
    ] {
        let mode = fs::metadata(root.join(path))
            .expect("made")
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(mode, expect, "{path}");
    }
}

/// The user of a unit that was changed, and stays, stays as well.
#[test]
fn a_changed_unit_keeps_its_user() {
    let root = root();
    install(&root, &[]).success();
    fs::write(root.join(SERVICE), "[Service]\nUser=gannet\n").expect("written");
    let removed = install(&root, &["--remove"]).success();
    let expect = "gannet.conf: a unit that stays may name the user\n";
    assert!(removed.text().contains(expect), "{}", removed.text());
    assert_eq!(files(&root), paths(&[SERVICE, USER]));
}

/// A unit with another line, under the checksum that a version with that line would have written.
fn of_another_version(unit: &str) -> String {
    let (line, text) = unit.split_once('\n').expect("lines");
    let text = text.replace("\nTimeoutStopSec=40\n", "\nTimeoutStopSec=50\n");
    let checksum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let (before, after) = line.split_once(", checksum ").expect("a checksum");
    let advice = after.get(16..).expect("an advice");
    format!("{before}, checksum {checksum:016x}{advice}\n{text}")
}

/// What another version has written is replaced, and removed; what someone has edited is neither.
#[test]
fn a_unit_of_another_version_is_replaced_and_an_edited_one_is_kept() {
    let root = root();
    install(&root, &[]).success();
    let service = root.join(SERVICE);
    let own = fs::read_to_string(&service).expect("written");
    let other = of_another_version(&own);
    fs::write(&service, &other).expect("ours");
    let updated = install(&root, &[]).success();
    let expect = "replace /usr/lib/systemd/system/gannet.service\n";
    assert!(updated.text().contains(expect), "{}", updated.text());
    assert_eq!(fs::read_to_string(&service).expect("written"), own);
    assert_eq!(
        files(&root),
        paths(&[SERVICE, ORDERER, CONFIGURATION, USER, PAGE, ROTATION])
    );

    let edited = own.replace("WatchdogSec=30", "WatchdogSec=60");
    fs::write(&service, &edited).expect("ours");
    let kept = install(&root, &[]).success();
    let expect = "keep    /usr/lib/systemd/system/gannet.service: it has other content\n";
    assert!(kept.text().contains(expect), "{}", kept.text());
    assert_eq!(fs::read_to_string(&service).expect("kept"), edited);

    fs::write(&service, &other).expect("ours");
    install(&root, &["--remove"]).success();
    assert_eq!(files(&root), paths(&[]));
}

/// Where systemd binds the addresses, an update leaves that as it is.
#[test]
fn an_update_keeps_the_form_of_the_service() {
    let root = root();
    install(&root, &[]).success();
    let changed = install(&root, &["--socket"]).success();
    let expect = "replace /usr/lib/systemd/system/gannet.service\n";
    assert!(changed.text().contains(expect), "{}", changed.text());
    let service = || fs::read_to_string(root.join(SERVICE)).expect("written");
    let with_socket = service();
    assert!(with_socket.contains("\nRequires=gannet.socket\n"));
    let again = install(&root, &[]).success();
    assert!(!again.text().contains("replace "), "{}", again.text());
    assert_eq!(service(), with_socket);
}
