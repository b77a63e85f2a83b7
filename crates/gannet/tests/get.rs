//! `gannet get`: with gannet itself, and with misbehaving servers.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use rustix::fs::{CWD, FileType, Mode};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use gannet_testkit::content::pattern;
use gannet_testkit::tls::{Authority, KeyKind};
use gannet_testkit::{Ended, Folder, FreePort, Gannet, command, gannet_in, run};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ServerConfig, ServerConnection};

/// A length that is not a multiple of any block size.
const LEN: usize = 3_000_017;

fn site() -> (Folder, Gannet) {
    let folder = Folder::new();
    folder.write("site/file.bin", pattern(LEN, 7));
    let server = Gannet::serve(folder.join("site"), &["--log", "off"]);
    (folder, server)
}

fn url(server: &Gannet) -> String {
    format!("http://{}/file.bin", server.address())
}

fn downloaded(folder: &Folder, name: &str) -> Vec<u8> {
    fs::read(folder.join(name)).expect("the download is complete")
}

#[test]
fn measuring_counts_every_byte_of_every_connection() {
    let (folder, server) = site();
    for flags in [&["-j"][..], &["-j", "-2"]] {
        let (url, count) = (url(&server), 3);
        let arguments = ["get"].iter().chain(flags).copied();
        let arguments = arguments.chain(["-c", "3", url.as_str()]);
        let ended = gannet_in(&folder, arguments).success();
        let text = ended.text();
        assert!(
            text.contains(&format!("{{\"bytes\": {}, ", LEN * count)),
            "{text}"
        );
        assert_eq!(text.matches("\"protocol\": ").count(), count, "{text}");
        let protocol = if flags.len() == 1 {
            "HTTP/1.1"
        } else {
            "HTTP/2"
        };
        assert_eq!(text.matches(protocol).count(), count, "{text}");
    }
}

#[test]
fn a_file_arrives_whole_in_one_part_and_in_several() {
    let (folder, server) = site();
    for (connections, version) in [
        ("1", None),
        ("4", None),
        ("1", Some("-2")),
        ("5", Some("-2")),
    ] {
        let url = url(&server);
        let arguments = ["get", "-q", "-c", connections, &url, "-o", "copy"];
        gannet_in(
            &folder,
            arguments.into_iter().chain(version).collect::<Vec<_>>(),
        )
        .success();
        assert!(
            downloaded(&folder, "copy") == pattern(LEN, 7),
            "{connections} {version:?}"
        );
        assert!(!folder.join("copy.part").exists() && !folder.join("copy.part.tag").exists());
        fs::remove_file(folder.join("copy")).expect("ours");
    }
}

/// The first half differs from the server's: if it is kept, only the rest was fetched, including
/// the last byte of the half, which is requested again so that something is always missing.
#[test]
fn a_download_goes_on_where_it_stopped_unless_the_file_has_changed() {
    let (folder, server) = site();
    let response = gannet_testkit::client::ask(&server, "GET", "/file.bin", &["Range: bytes=0-0"]);
    let tag = response.tag().to_owned();
    let half = vec![b'x'; LEN / 2];
    for (tag, kept) in [(tag.as_str(), true), ("\"another\"", false)] {
        folder.write("copy.part", &half);
        folder.write("copy.part.tag", tag);
        let url = url(&server);
        gannet_in(&folder, ["get", "-C", &url, "-o", "copy"]).success();
        let got = downloaded(&folder, "copy");
        assert_eq!(got.len(), LEN, "{tag}");
        let last = half.len() - 1;
        assert!(got[last..] == pattern(LEN, 7)[last..], "{tag}");
        assert_eq!(got[..last] == half[..last], kept, "{tag}");
    }
}

/// Likewise, with the state of an interrupted download in parts.
#[test]
fn a_download_in_parts_goes_on_where_each_of_them_stopped() {
    let (folder, server) = site();
    let response = gannet_testkit::client::ask(&server, "GET", "/file.bin", &["Range: bytes=0-0"]);
    let tag = response.tag().to_owned();
    for connections in ["1", "2", "5"] {
        folder.write("copy.part", vec![b'x'; LEN / 2]);
        let state = format!(
            "{tag}\n0 1000000 1000000\n1000000 1000000 5\n2000000 {} 0\n",
            LEN - 2_000_000
        );
        folder.write("copy.part.tag", state);
        let url = url(&server);
        let arguments = ["get", "-C", "-c", connections, &url, "-o", "copy"];
        gannet_in(&folder, arguments).success();
        let (got, expect) = (downloaded(&folder, "copy"), pattern(LEN, 7));
        assert_eq!(got.len(), LEN);
        assert!(got[..1_000_005].iter().all(|&b| b == b'x'), "{connections}");
        assert!(got[1_000_005..] == expect[1_000_005..], "{connections}");
        assert!(!folder.join("copy.part.tag").exists());
    }
}

/// The existing file is complete, or longer than the server's.
#[test]
fn a_download_of_which_nothing_is_missing_ends_well() {
    let (folder, server) = site();
    let response = gannet_testkit::client::ask(&server, "GET", "/file.bin", &["Range: bytes=0-0"]);
    for len in [LEN, LEN + 10] {
        let mut there = pattern(LEN, 7);
        there.resize(len, 0);
        folder.write("copy.part", there);
        folder.write("copy.part.tag", response.tag());
        let url = url(&server);
        gannet_in(&folder, ["get", "-C", &url, "-o", "copy"]).success();
        assert!(downloaded(&folder, "copy") == pattern(LEN, 7), "{len}");
    }
}

/// A server that stops: received bytes are kept, the message names the next step, and that step
/// works.
#[test]
fn what_stops_in_the_middle_goes_on() {
    let folder = Folder::new();
    let get = |answer: &'static [u8]| {
        let (address, server) = answer_once(answer);
        let url = format!("http://{address}/");
        let ended = gannet_in(&folder, ["get", "-C", &url, "-o", "copy"]);
        server.join().expect("the server does not panic");
        ended
    };
    let head = b"HTTP/1.1 200 OK\r\netag: \"a\"\r\ncontent-length: 11\r\n\r\nHello";
    let ended = get(head);
    assert_eq!(ended.status, Some(1));
    let expect = "closed 6 bytes before the end\nhelp: --continue resumes from there\n";
    assert!(ended.err.ends_with(expect), "{}", ended.err);
    let rest = b"HTTP/1.1 206 Partial\r\netag: \"a\"\r\ncontent-length: 7\r\n\
        content-range: bytes 4-10/11\r\n\r\no World";
    get(rest).success();
    assert_eq!(downloaded(&folder, "copy"), b"Hello World");
}

/// A device must not be replaced by a file; a link must stay a link.
#[test]
fn only_files_are_replaced() {
    let (folder, server) = site();
    let socket = folder.join("socket");
    let _listener = UnixListener::bind(&socket).expect("a folder of ours");
    let ended = gannet_in(&folder, ["get", &url(&server), "-o", "socket"]);
    let refused = "cannot write 'socket': it is not a file\nhelp: name a regular file\n";
    ended.failure_with(1, refused);
    let kind = fs::metadata(&socket).expect("still there").file_type();
    assert!(kind.is_socket() && !folder.join("socket.part").exists());
    let ended = gannet_in(&folder, ["get", &url(&server), "-o", "/dev/null"]).success();
    assert!(ended.out.is_empty(), "{ended:?}");
    let kind = fs::metadata("/dev/null").expect("still there").file_type();
    assert!(kind.is_char_device());
    let ended = gannet_in(&folder, ["get", &url(&server), "-o", "/dev/full"]);
    ended.failure_with(
        1,
        "cannot write '/dev/full': no space left on device (ENOSPC)",
    );
    let fifo = folder.join("fifo");
    rustix::fs::mkfifoat(CWD, &fifo, Mode::RWXU).expect("a folder of ours");
    let reader = thread::spawn(move || fs::read(&fifo).expect("its end"));
    gannet_in(&folder, ["get", &url(&server), "-o", "fifo"]).success();
    assert!(reader.join().expect("read") == pattern(LEN, 7));
    folder.write("real", "old");
    std::os::unix::fs::symlink("real", folder.join("link")).expect("a folder of ours");
    gannet_in(&folder, ["get", &url(&server), "-o", "link"]).success();
    assert!(downloaded(&folder, "real") == pattern(LEN, 7));
    assert!(folder.join("link").is_symlink());
}

#[test]
fn a_content_is_written_to_standard_output_alone_and_in_order() {
    let (folder, server) = site();
    let url = url(&server);
    for version in [None, Some("-2")] {
        let arguments = ["get", &url, "-o", "-"].into_iter().chain(version);
        let ended = gannet_in(&folder, arguments).success();
        assert!(ended.out == pattern(LEN, 7), "{version:?}");
    }
    assert!(!folder.join("-").exists() && !folder.join("-.part").exists());
    for further in [&["-c", "2"][..], &["--continue"], &["--json"], &[&url]] {
        let arguments = [&["get", &url, "-o", "-"], further].concat();
        let ended = gannet_in(&folder, arguments);
        assert_eq!(ended.status, Some(2), "{further:?}: {}", ended.err);
        assert!(
            ended.out.is_empty() && ended.err.contains("help: "),
            "{ended:?}"
        );
    }
    let ended = gannet_in(&folder, ["get", &format!("{url}.none"), "-o", "-"]);
    assert_eq!(
        (ended.status, ended.out.len()),
        (Some(1), 0),
        "{}",
        ended.err
    );
}

/// A shell's `>> log`: what is open is written where it is, and not replaced.
#[test]
fn what_is_open_already_is_written_where_it_is() {
    let (folder, server) = site();
    folder.write("log", "before\n");
    std::os::unix::fs::symlink("/dev/stdout", folder.join("link")).expect("a folder of ours");
    let paths = ["/dev/stdout", "/dev/fd/1", "/proc/thread-self/fd/1"];
    let paths = paths.into_iter().map(Into::into);
    for path in paths.chain([folder.join("link"), folder.join("log")]) {
        let mut log = fs::OpenOptions::new()
            .write(true)
            .open(folder.join("log"))
            .expect("written");
        log.seek(SeekFrom::End(0)).expect("a file");
        let before = fs::read(folder.join("log")).expect("written");
        let mut command = command();
        command.args(["get", &url(&server), "-o"]).arg(&path);
        let shared = log.try_clone().expect("descriptors are left");
        let status = command.stdout(shared).status().expect("the binary starts");
        assert!(status.success(), "{path:?}");
        // It has moved on for those who share it.
        log.write_all(b"after\n").expect("written");
        let expect = [&before, &pattern(LEN, 7), &b"after\n"[..]].concat();
        assert!(downloaded(&folder, "log") == expect, "{path:?}");
    }
    assert!(!folder.join("log.part").exists());
    let ended = gannet_in(&folder, ["get", &url(&server), "-o", "/dev/fd/99"]);
    ended.failure_with(1, "cannot write '/dev/fd/99': bad file descriptor (EBADF)");
}

/// Its writes may be of a mounted file system, and are not complete when they return. This one has no driver.
#[test]
fn a_block_device_is_refused() {
    let (folder, server) = site();
    let (path, kind) = (folder.join("disk"), FileType::BlockDevice);
    let made = rustix::fs::mknodat(CWD, &path, kind, Mode::RWXU, rustix::fs::makedev(240, 0));
    if let Err(errno) = made {
        gannet_testkit::left_out("device files", errno);
        return;
    }
    let ended = gannet_in(&folder, ["get", &url(&server), "-o", "disk"]);
    ended.failure(
        1,
        "gannet: cannot write 'disk': it is a block device\n\
         help: pipe the content: 'gannet get URL -o - | dd of=DEVICE bs=1M conv=fsync'\n",
    );
}

#[test]
fn what_cannot_be_written_to_a_stream_is_an_error() {
    let (folder, server) = site();
    let fifo = folder.join("fifo");
    rustix::fs::mkfifoat(CWD, &fifo, Mode::RWXU).expect("a folder of ours");
    let reader = thread::spawn(move || {
        let mut open = fs::File::open(&fifo).expect("there");
        open.read_exact(&mut [0; 100]).expect("it begins");
    });
    let ended = gannet_in(&folder, ["get", &url(&server), "-o", "fifo"]);
    reader.join().expect("read");
    ended.failure(1, "gannet: cannot write 'fifo': broken pipe (EPIPE)\n");
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let mut command = command();
    command.args(["get", &url(&server), "-o", "-"]);
    command.stdout(full.expect("a device of Linux"));
    let ended = command.output().expect("the binary starts");
    let expect = "gannet: cannot write to 'standard output': no space left on device (ENOSPC)\n";
    let err = String::from_utf8_lossy(&ended.stderr);
    assert!(err.starts_with(expect), "{err}");
    assert_eq!(ended.status.code(), Some(1));
    let url = url(&server);
    for flags in [&["-c", "4"][..], &["--json"]] {
        let arguments = [&["get", &url, "-o", "/dev/null"], flags].concat();
        gannet_in(&folder, arguments).failure_with(2, "without --output it measures");
    }
}

/// A reader of the first bytes only, such as `head`, ends the download silently.
#[test]
fn a_reader_of_standard_output_may_go_away() {
    let (_folder, server) = site();
    let mut command = command();
    command.args(["get", &url(&server), "-o", "-"]);
    command.stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let mut first = [0; 100];
    let mut out = child.stdout.take().expect("piped");
    out.read_exact(&mut first).expect("it begins");
    assert_eq!(first, pattern(LEN, 7)[..100]);
    drop(out);
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(
        (ended.status.code(), ended.stderr.as_slice()),
        (Some(0), &b""[..])
    );
}

/// HTTP/2 frames: content shorter than announced is an error.
#[test]
fn a_short_stream_is_an_error() {
    // SETTINGS; HEADERS with ":status: 200" and "content-length: 6"; DATA with END_STREAM.
    let answer = b"\0\0\0\x04\0\0\0\0\0\0\0\x05\x01\x04\0\0\0\x01\x88\x0f\x0d\x016\
        \0\0\x05\0\x01\0\0\0\x01Hello";
    for (answer, expect) in [
        (&answer[..], "received 5 bytes (expected 6)"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "it does not speak HTTP/2 here",
        ),
    ] {
        let (address, server) = answer_once(answer);
        let url = format!("http://{address}/");
        let ended = run(command().args(["get", "-2", &url]));
        server.join().expect("the server does not panic");
        assert_eq!(ended.status, Some(1), "{}", ended.err);
        assert!(ended.err.contains(expect), "{}", ended.err);
    }
}

#[test]
fn what_is_not_there_is_an_error_and_no_file() {
    let (folder, server) = site();
    let missing = format!("http://{}/missing", server.address());
    let expect = format!(
        "gannet: cannot download '{missing}': the server answers 404 (expected the content)\n\
         help: nothing is at this URL: check its path\n"
    );
    gannet_in(&folder, ["get", &missing]).failure(1, &expect);
    gannet_in(&folder, ["get", &missing, "-o", "copy"]).failure(1, &expect);
    assert!(!folder.join("copy").exists());
    let nobody = FreePort::new();
    let ended = gannet_in(&folder, ["get", &format!("http://{}/", nobody.address())]);
    assert_eq!(ended.status, Some(1));
    assert!(
        ended.err.contains("help: nothing listens there"),
        "{}",
        ended.err
    );
}

#[test]
fn mistakes_on_the_command_line_are_named() {
    let folder = Folder::new();
    for (arguments, expect) in [
        (&["ftp://h/"][..], "the scheme is 'ftp'"),
        (&["http://h/", "-c", "0"], "not a number from 1 to 1024"),
        (
            &["http://h/", "http://i/", "-o", "x"],
            "--output takes one URL",
        ),
        (&["http://h/", "-C"], "--continue needs --output FILE"),
        (
            &["https://h/", "-A", "none.pem"],
            "certificates: 'none.pem'",
        ),
    ] {
        let ended = gannet_in(&folder, ["get"].iter().chain(arguments));
        assert_eq!(ended.status, Some(2), "{arguments:?}");
        assert!(ended.err.contains(expect), "{arguments:?}: {}", ended.err);
    }
}

/// Sends `answer` on one connection, whatever the request.
fn answer_once(answer: &'static [u8]) -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is available");
    let address = listener.local_addr().expect("bound");
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client comes");
        let (mut request, mut chunk) = (Vec::new(), [0; 1024]);
        // This also ends at the preface of HTTP/2.
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            let count = stream.read(&mut chunk).expect("a request");
            request.extend_from_slice(&chunk[..count]);
        }
        // The client may already have closed the connection.
        let _ = stream.write_all(answer);
    });
    (address, server)
}

fn get_of(answer: &'static [u8], output: &str) -> (Folder, Ended) {
    let (folder, (address, server)) = (Folder::new(), answer_once(answer));
    let url = format!("http://{address}/");
    let ended = gannet_in(&folder, ["get", &url, "-o", output]);
    server.join().expect("the server does not panic");
    (folder, ended)
}

#[test]
fn a_wrong_digest_or_a_short_content_leaves_no_file() {
    for (answer, expect) in [
        (
            &b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nrepr-digest: sha-256=:AAAA:\r\n\r\nHello"[..],
            "the sha-256 digest is GF+NsyJx/iX1Yab8k4suJkMG7DBO2lGAB9F2SCY4GWk= (expected AAAA)",
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nHello",
            "closed 1 bytes before the end",
        ),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nHello\r\n",
            "closed before the last chunk",
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 5\r\n\r\nHello",
            "the content is coded",
        ),
        (b"SSH-2.0-x\r\n\r\n", "the response starts with 'SSH-2.0-x'"),
    ] {
        let (folder, ended) = get_of(answer, "copy");
        assert_eq!(ended.status, Some(1), "{expect}");
        assert!(ended.err.contains(expect), "{}", ended.err);
        assert!(!folder.join("copy").exists(), "{expect}");
    }
}

#[test]
fn a_right_digest_and_chunks_are_taken() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\
           repr-digest: sha-256=:GF+NsyJx/iX1Yab8k4suJkMG7DBO2lGAB9F2SCY4GWk=:\r\n\r\nHello"[..],
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nHe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nHello",
    ] {
        let (folder, ended) = get_of(answer, "copy");
        ended.success();
        assert_eq!(downloaded(&folder, "copy"), b"Hello");
    }
}

/// Without a length, the end of TLS ends the content; anyone could end TCP.
#[test]
fn a_content_that_tls_does_not_end_is_cut_off() {
    let authority = Authority::new();
    let pem = authority.issued(KeyKind::P256, &["127.0.0.1"]).pem();
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).expect("issued");
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).expect("issued");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("its own")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they belong together");
    let config = Arc::new(config);
    for closes in [true, false] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is available");
        let url = format!("https://{}/", listener.local_addr().expect("bound"));
        let mut tls = ServerConnection::new(config.clone()).expect("a good configuration");
        let server = thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("the client comes");
            let mut stream = rustls::Stream::new(&mut tls, &mut socket);
            let (mut request, mut chunk) = (Vec::new(), [0; 1024]);
            while !request.ends_with(b"\r\n\r\n") {
                let count = stream.read(&mut chunk).expect("a request");
                request.extend_from_slice(&chunk[..count]);
            }
            let answer = b"HTTP/1.1 200 OK\r\n\r\nHello";
            stream.write_all(answer).expect("the client reads");
            if closes {
                tls.send_close_notify();
            }
            while tls.wants_write() {
                tls.write_tls(&mut socket).expect("the client reads");
            }
        });
        let ended = run(command().args(["get", "-k", &url]));
        server.join().expect("the server does not panic");
        assert_eq!(ended.status, Some(i32::from(!closes)), "{}", ended.err);
        assert_eq!(ended.err.contains("was cut off"), !closes, "{}", ended.err);
    }
}

/// A development certificate is trusted through its authority, or if the user accepts any
/// certificate; otherwise not.
#[test]
fn https_believes_who_it_is_told_to() {
    let folder = Folder::new();
    folder.write("site/file.bin", pattern(LEN, 7));
    folder.write("site/_redirects", "/plain http://127.0.0.1:9/ 302\n");
    let with_home = |folder: &Folder| {
        let mut command = command();
        command
            .env("XDG_DATA_HOME", folder.path())
            .env("HOME", folder.path());
        command.current_dir(folder.path());
        command
    };
    let mut serve = with_home(&folder);
    serve
        .args(["--port", "0", "--tls", "--log", "off"])
        .arg(folder.join("site"));
    let server = Gannet::start(&mut serve);
    let authority = run(with_home(&folder).arg("cert")).success();
    folder.write("authority.pem", &authority.out);
    let url = format!("https://localhost:{}/file.bin", server.address().port());
    let get = |flags: &[&str]| run(with_home(&folder).args(["get", &url]).args(flags));
    for flags in [&["-A", "authority.pem"][..], &["-k", "-c", "3"]] {
        let output = ["-o", "copy"];
        get(&[flags, &output].concat()).success();
        assert!(downloaded(&folder, "copy") == pattern(LEN, 7), "{flags:?}");
        let ended = get(&[flags, &["-j"]].concat()).success();
        assert!(
            ended.text().contains("\"protocol\": \"HTTP/1.1\""),
            "{}",
            ended.text()
        );
    }
    let plain = format!("https://localhost:{}/plain", server.address().port());
    let ended = run(with_home(&folder).args(["get", "-k", &plain]));
    let expect = "redirected from https to http://127.0.0.1:9/, which is not followed";
    assert!(ended.err.contains(expect), "{}", ended.err);
    folder.write("nobody.pem", pem_of_another());
    let ended = get(&["-A", "nobody.pem"]);
    assert_eq!(ended.status, Some(1), "{}", ended.err);
    assert!(!Path::new(&folder.join("nobody.bin")).exists());
}

/// Old certificates have no names to compare, and a server may not speak TLS at all.
#[test]
fn a_server_that_cannot_be_believed_is_told_about() {
    let folder = Folder::site();
    let openssl = |arguments: &[&str]| {
        run(Command::new("openssl")
            .args(arguments)
            .current_dir(folder.path()));
    };
    let key = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ];
    let files = [
        "-keyout",
        "key.pem",
        "-out",
        "request.pem",
        "-subj",
        "/CN=localhost",
    ];
    openssl(&[&["req", "-new"][..], &key, &files].concat());
    let sign = ["x509", "-req", "-in", "request.pem", "-signkey", "key.pem"];
    openssl(&[&sign[..], &["-out", "v1.pem", "-days", "9"]].concat());
    let text = fs::read(folder.join("v1.pem")).expect("openssl has made it");
    let certificate = CertificateDer::from_pem_slice(&text).expect("it is PEM");
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).expect("it is PEM");
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).expect("usable");
    let resolver = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = listener.local_addr().expect("bound").port();
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("it comes");
        let mut tls = ServerConnection::new(Arc::new(config)).expect("sound");
        // The client aborts the handshake.
        while tls.is_handshaking() && tls.complete_io(&mut socket).is_ok() {}
    });
    let url = format!("https://localhost:{port}/");
    let ended = gannet_in(&folder, ["get", &url, "-A", "v1.pem"]);
    server.join().expect("the server does not panic");
    ended.failure(
        1,
        &format!(
            "gannet: cannot download '{url}': the server's certificate is X.509 version 1, which has no host names (expected 3)\n\
             help: if you know whose it is, accept any with --insecure\n"
        ),
    );
    let plain = Gannet::serve(folder.path(), &[]);
    let url = format!("https://{}/", plain.address());
    gannet_in(&folder, ["get", "-k", &url]).failure(
        1,
        &format!(
            "gannet: cannot download '{url}': the server does not speak TLS there\n\
             help: use http:// there, or name the port of HTTPS\n"
        ),
    );
}

/// A partial file that cannot be resumed is fetched again, with a message before the transfer.
#[test]
fn a_part_without_its_tag_is_begun_anew_with_a_word() {
    let (folder, server) = site();
    let url = url(&server);
    for (tag, why) in [
        (None, "is missing"),
        (Some("x"), "does not record what it holds"),
    ] {
        folder.write("copy.part", "what is left");
        if let Some(tag) = tag {
            folder.write("copy.part.tag", tag);
        }
        let ended = gannet_in(&folder, ["get", "-q", "-C", &url, "-o", "copy"]);
        assert_eq!(ended.status, Some(0), "{ended:?}");
        let expect = format!(
            "gannet: cannot resume 'copy.part', since 'copy.part.tag' {why}: starting over\n"
        );
        assert_eq!(ended.err, expect);
        assert!(downloaded(&folder, "copy") == pattern(LEN, 7));
        fs::remove_file(folder.join("copy")).expect("ours");
    }
    // Without --continue there is no message.
    folder.write("copy.part", "what is left");
    gannet_in(&folder, ["get", "-q", &url, "-o", "copy"]).success();
}

/// The certificate of another gannet's authority, which has signed nothing here.
fn pem_of_another() -> Vec<u8> {
    let folder = Folder::new();
    let mut command = command();
    command
        .env("XDG_DATA_HOME", folder.path())
        .env("HOME", folder.path());
    run(command.arg("cert")).success().out
}

/// Complete files are kept; partial files of other tools are resumed if their dates prove what they
/// are.
#[test]
fn what_is_there_is_left_or_gone_on_with_if_that_can_be_proved() {
    let (folder, server) = site();
    let source = fs::File::options()
        .write(true)
        .open(folder.join("site/file.bin"));
    // A date is proof only after its second has passed.
    let yesterday = std::time::SystemTime::now() - std::time::Duration::from_secs(86_400);
    source.expect("ours").set_modified(yesterday).expect("ours");
    let url = url(&server);
    gannet_in(&folder, ["get", "-q", &url, "-o", "copy"]).success();
    let get = || gannet_in(&folder, ["get", "-C", &url, "-o", "copy"]);
    let whole = "copy: already complete, nothing was downloaded\n";
    assert_eq!(get().success().text(), whole);
    // The date proves that it is the beginning, as `curl -R` leaves it.
    let date = fs::metadata(folder.join("copy"))
        .expect("there")
        .modified()
        .expect("kept");
    let begun = |content: &[u8], dated: bool| {
        let file = fs::File::create(folder.join("copy")).expect("writable");
        (&file).write_all(content).expect("room on the disk");
        if dated {
            file.set_modified(date).expect("ours");
        }
    };
    let mut half = vec![b'x'; LEN / 2];
    begun(&half, true);
    get().success();
    let got = downloaded(&folder, "copy");
    assert_eq!(got.len(), LEN);
    assert!(
        got[..LEN / 2 - 1].iter().all(|byte| *byte == b'x'),
        "only the rest was fetched"
    );
    // Without the date the file is not touched.
    half[0] = b'y';
    begun(&half, false);
    let ended = get();
    assert_eq!(ended.status, Some(1));
    let expect = format!(
        "gannet: cannot continue 'copy': nothing proves that it is the beginning of {url}\n"
    );
    assert!(ended.err.starts_with(&expect), "{}", ended.err);
    assert!(
        ended
            .err
            .contains("help: if you know that it is, say so: touch -d '"),
        "{}",
        ended.err
    );
    assert!(downloaded(&folder, "copy") == half);
    // A longer file is a different one.
    begun(&vec![b'x'; LEN + 1], true);
    let ended = get();
    assert_eq!(ended.status, Some(1));
    assert!(
        ended.err.contains("it is longer than the content of"),
        "{}",
        ended.err
    );
}
