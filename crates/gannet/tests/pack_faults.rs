//! Failures while packing: an existing archive is kept, and no other file is left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use gannet_testkit::{Folder, command, command_of_nobody, gannet_in, run};

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("site/index.html", "front page ".repeat(300));
    folder.write("site/film.mp4", vec![7; 3 << 20]);
    folder
}

fn names(folder: &Folder) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder.path())
        .expect("readable")
        .map(|item| {
            item.expect("readable")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

/// The existing file, which begins like an archive.
const BEFORE: &[u8] = b"\x89gannet\r\n\x1a\n\0the archive before";

#[test]
fn a_full_disk_leaves_the_archive_that_was_there() {
    let folder = site();
    folder.write("site.gannet", BEFORE);
    // No file may grow beyond 1 MiB: to a program, this is like a full disk.
    let gannet = command();
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -f 1024; exec \"$0\" pack site --fast -q"])
        .arg(gannet.get_program())
        .current_dir(folder.path());
    let ended = run(&mut limited);
    let target = folder.join("site.gannet").canonicalize().expect("there");
    let expect = format!(
        "gannet: cannot write '{}': file too large (EFBIG)\n\
         help: the file system or a limit (ulimit -f) does not allow files of this length\n",
        target.display()
    );
    ended.failure(1, &expect);
    assert_eq!(names(&folder), ["site", "site.gannet"]);
    let before = fs::read(folder.join("site.gannet")).expect("there");
    assert_eq!(before, BEFORE);
}

/// What has no room is named by its folder: the name of a draft says nothing.
#[test]
fn a_full_disk_is_told_in_terms_of_the_store() {
    let folder = site();
    folder.write("small/index.html", "front page");
    gannet_in(&folder, ["pack", "site", "--fast", "-q", "-o", "a.gannet"]).success();
    // The last is written when the archive is complete.
    for (blocks, site) in [("1024", "site"), ("1024", "a.gannet"), ("4", "small")] {
        let gannet = command();
        let script = format!("ulimit -f {blocks}; exec \"$0\" publish {site} store -q");
        let mut limited = Command::new("sh");
        limited
            .args(["-c", &script])
            .arg(gannet.get_program())
            .current_dir(folder.path());
        let ended = run(&mut limited);
        let expect = "gannet: cannot write 'store/releases': file too large (EFBIG)\n";
        assert!(ended.err.starts_with(expect), "{ended:?}");
        assert_eq!(ended.status, Some(1));
    }
}

/// Complete files are kept, since the directory is the user's; the truncated one is removed.
#[test]
fn a_full_disk_leaves_no_cut_file_when_unpacking() {
    let folder = site();
    gannet_in(
        &folder,
        ["pack", "site", "--fast", "-q", "-o", "site.gannet"],
    )
    .success();
    let mut tar = Command::new("tar");
    tar.args(["cf", "site.tar", "-C", "site", "index.html", "film.mp4"])
        .current_dir(folder.path());
    run(&mut tar).success();
    let gannet = command();
    for archive in ["site.gannet", "site.tar"] {
        let mut limited = Command::new("sh");
        limited
            .args(["-c", "ulimit -f 1024; exec \"$0\" extract \"$1\" -o out"])
            .arg(gannet.get_program())
            .arg(archive)
            .current_dir(folder.path());
        let ended = run(&mut limited);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        let cause = "cannot write 'out/film.mp4': file too large (EFBIG)";
        assert!(ended.err.contains(cause), "{ended:?}");
        assert!(!folder.join("out/film.mp4").exists(), "{archive}");
        match archive {
            "site.tar" => assert!(!folder.join("out").exists(), "it was made in vain"),
            _ => fs::remove_dir_all(folder.join("out")).expect("it was made"),
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = site();
    let path = folder.write("site/secret.html", "secret");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("set");
    let anybody = fs::Permissions::from_mode(0o777);
    fs::set_permissions(folder.path(), anybody).expect("set");
    let mut pack = command_of_nobody();
    pack.current_dir(folder.path())
        .args(["pack", "site", "--fast", "-q"]);
    run(&mut pack).failure(
        1,
        "gannet: cannot read 'site/secret.html': permission denied (EACCES)\n\
         help: make it readable, or exclude it; a site is packed completely or not at all\n",
    );
    assert_eq!(names(&folder), ["site"]);
}

#[test]
fn a_signal_leaves_nothing_behind() {
    let folder = Folder::new();
    // Compressing it takes far longer than the test waits.
    let mut state = 1u64;
    let text: String = (0..4_000_000)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            format!("{:x} ", state >> 40)
        })
        .collect();
    folder.write("site/long.txt", text);
    folder.write("site.gannet", BEFORE);
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15)] {
        let mut packing = command()
            .args(["pack", "site", "--best", "-q"])
            .current_dir(folder.path())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        // Signals are handled from the moment the temporary file exists.
        while names(&folder).len() < 3 {
            assert!(packing.try_wait().expect("a child").is_none(), "too fast");
            std::thread::yield_now();
        }
        kill_process(Pid::from_child(&packing), signal).expect("it runs");
        let status = packing.wait().expect("a child");
        assert_eq!(status.signal(), Some(number));
        assert_eq!(names(&folder), ["site", "site.gannet"]);
    }
    let before = fs::read(folder.join("site.gannet")).expect("there");
    assert_eq!(before, BEFORE);
}
