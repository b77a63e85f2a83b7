//! `gannet dev`: what browsers get, what they are told, and who is told nothing.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use gannet_testkit::client::{Client, Response};
use gannet_testkit::process::{until, until_gone};
use gannet_testkit::{DEADLINE, Folder, Gannet, command, gannet};
use rustix::process::Signal;

fn dev(folder: &Folder, flags: &[&str]) -> Gannet {
    let mut command = command();
    command.args(["dev", "--port", "0"]).args(flags);
    Gannet::start(command.arg(folder.path()))
}

/// A request as browsers on this machine send it.
fn request(client: &mut Client, method: &str, target: &str, lines: &[&str]) -> Response {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    client.send(format!(
        "{method} {target} HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n"
    ));
    client.response_to(method)
}

fn get(server: &Gannet, target: &str) -> Response {
    request(&mut Client::new(server), "GET", target, &[])
}

fn text(answer: &Response) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// The script's element in a page, and the page without it.
fn script(answer: &Response) -> (String, String) {
    let page = text(answer);
    let start = page
        .find("<script src=\"/.gannet/dev.js?at=")
        .expect("a script");
    let end = start + page[start..].find("</script>").expect("an end") + "</script>".len();
    (
        page[start..end].to_owned(),
        [&page[..start], &page[end..]].concat(),
    )
}

/// The mark of a page.
fn mark(answer: &Response) -> String {
    let (script, _) = script(answer);
    let rest = script.split("?at=").nth(1).expect("a mark");
    rest.split('"').next().expect("an end").to_owned()
}

/// A window that hears about changes.
struct Window(BufReader<TcpStream>);

impl Window {
    fn open(server: &Gannet, mark: &str) -> Self {
        let stream = TcpStream::connect(server.address()).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let head = format!("GET /.gannet/events?at={mark} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        (&mut &stream)
            .write_all(head.as_bytes())
            .expect("it takes it");
        let mut window = Self(BufReader::new(stream));
        assert_eq!(window.line(), "HTTP/1.1 200 OK");
        while !window.line().is_empty() {}
        window
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line in time");
        line.trim_end().to_owned()
    }

    /// The next message, but for those without news.
    fn hear(&mut self) -> String {
        loop {
            if let Some(told) = self.line().strip_prefix("data: ") {
                return told.to_owned();
            }
        }
    }

    /// Hears until a message has this.
    fn hear_of(&mut self, what: &str) -> String {
        loop {
            let told = self.hear();
            if told.contains(what) {
                return told;
            }
        }
    }
}

#[test]
fn pages_get_the_script_and_nothing_is_kept() {
    let site = Folder::site();
    site.write("plain/data.json", "{}");
    site.write("film.mp4", "0123456789");
    let server = dev(&site, &[]);
    let mut client = Client::new(&server);
    let page = request(&mut client, "GET", "/", &[]).expect(200);
    let (script_element, rest) = script(&page);
    assert_eq!(
        rest,
        fs::read_to_string(site.join("index.html")).expect("the page")
    );
    assert!(
        text(&page).starts_with("<!doctype html><script "),
        "{script_element}"
    );
    assert_eq!(page.field("cache-control"), Some("no-store"));
    for name in ["etag", "last-modified", "accept-ranges"] {
        assert_eq!(page.field(name), None, "{name}");
    }
    // On the same connection.
    let style = request(&mut client, "GET", "/assets/app.css", &[]).expect(200);
    assert_eq!(
        style.body,
        fs::read(site.join("assets/app.css")).expect("the style")
    );
    assert_eq!(style.field("cache-control"), Some("no-store"));
    let tag = style.field("etag").expect("a tag").to_owned();
    let condition = format!("if-none-match: {tag}");
    let again = request(
        &mut client,
        "GET",
        "/assets/app.css",
        &[&condition, "accept-encoding: br"],
    );
    assert_eq!(again.expect(200).body, style.body);
    let part = request(&mut client, "GET", "/film.mp4", &["range: bytes=2-4"]);
    assert_eq!(part.expect(206).body, b"234");
    let lines = ["range: bytes=2-4", "accept: text/html,*/*"];
    script(&request(&mut client, "GET", "/", &lines).expect(200));
    let head = request(&mut client, "HEAD", "/", &[]).expect(200);
    let len = head.content_length().expect("a length");
    assert!(
        len > page.body.len() as u64 - 9 && head.body.is_empty(),
        "{len}"
    );
    let head = request(&mut client, "HEAD", "/film.mp4", &["range: bytes=2-4"]);
    assert_eq!(head.expect(200).content_length(), Some(10));
    // What a script of a page fetches.
    let lines = ["sec-fetch-mode: cors", "sec-fetch-site: same-origin"];
    let fetched = request(&mut client, "GET", "/", &lines).expect(200);
    assert_eq!(text(&fetched), rest);
    let lines = ["sec-fetch-mode: navigate", "sec-fetch-site: same-origin"];
    script(&request(&mut client, "GET", "/", &lines).expect(200));
    let mut old = Client::new(&server);
    old.send("GET /film.mp4 HTTP/1.0\r\n\r\n");
    assert_eq!(old.response().expect(200).body, b"0123456789");
    request(&mut client, "POST", "/", &["content-length: 0"]).expect(405);
    let own = request(&mut client, "GET", "/.gannet/dev.js", &[]).expect(200);
    assert!(text(&own).contains("EventSource"));
    script(&request(&mut client, "GET", "/.gannet/none", &[]).expect(404));
    // Pages of the server: their policy allows the script alone.
    for (target, status) in [("/plain/", 200), ("/docs", 301)] {
        let page = request(&mut client, "GET", target, &[]).expect(status);
        let Some(policy) = page.field("content-security-policy") else {
            assert_ne!(target, "/plain/", "a page of the server");
            continue;
        };
        let (element, _) = script(&page);
        let nonce = element.split("nonce=\"").nth(1).expect("a nonce");
        let nonce = nonce.split('"').next().expect("an end");
        assert!(policy.contains(&format!(" 'nonce-{nonce}'")), "{policy}");
        assert!(policy.contains("connect-src 'self'"), "{policy}");
    }
}

#[test]
fn windows_are_told_what_changed_and_get_what_is_new() {
    let site = Folder::site();
    let server = dev(&site, &[]);
    let first = mark(&get(&server, "/"));
    let mut window = Window::open(&server, &first);
    assert!(
        window
            .hear()
            .contains("\"change\":\"nothing\",\"problems\":[]")
    );
    site.write("assets/app.css", "body { margin: 1px }");
    assert!(window.hear().contains("\"change\":\"styles\""));
    assert_eq!(
        text(&get(&server, "/assets/app.css")),
        "body { margin: 1px }"
    );
    // Several times in a row: nothing of before is cached.
    for number in 0..5 {
        let page = format!("<!doctype html><p>{number}");
        site.write("new.tmp", &page);
        fs::rename(site.join("new.tmp"), site.join("about.html")).expect("renamed");
        while !script(&get(&server, "/about"))
            .1
            .ends_with(&number.to_string())
        {
            window.hear_of("\"change\":\"page\"");
        }
    }
    // A window that was away.
    Window::open(&server, &first).hear_of("\"change\":\"page\"");
    let mut late = Window::open(&server, &first);
    assert!(late.hear().contains("\"change\":\"page\""));
    let ended = server.stop();
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let out = ended.text();
    assert!(
        out.contains("changed  assets/app.css; styles reloaded in 1 window\n"),
        "{out}"
    );
    assert!(out.contains("changed  about.html"), "{out}");
}

#[test]
fn rules_that_cannot_be_used_are_shown_until_they_are_mended() {
    let site = Folder::site();
    site.write("_redirects", "/old /about 999\n");
    let mut server = dev(&site, &[]);
    let line = server.next_error_line().expect("a message");
    assert!(
        line.starts_with("gannet: cannot use the rules of "),
        "{line}"
    );
    let mut window = Window::open(&server, &mark(&get(&server, "/")));
    let told = window.hear();
    assert!(
        told.contains("_redirects:1:") && told.contains("999"),
        "{told}"
    );
    get(&server, "/old").expect(404);
    site.write("_redirects", "/old /about 301\n");
    window.hear_of("\"change\":\"page\",\"problems\":[]");
    assert_eq!(
        get(&server, "/old").expect(301).field("location"),
        Some("/about")
    );
    site.write("_headers", "/*\n  Bad Name: 1\n");
    assert!(window.hear_of("_headers:2:").contains("problems\":[{"));
    get(&server, "/").expect(200);
}

#[test]
fn other_sites_get_nothing() {
    let site = Folder::site();
    let server = dev(&site, &[]);
    let request = |target: &str, lines: &str| {
        let mut client = Client::new(&server);
        client.send(format!("GET {target} HTTP/1.1\r\n{lines}\r\n\r\n"));
        client.response()
    };
    for (lines, is_told) in [
        ("host: localhost", true),
        (
            "host: app.localhost:8080\r\nsec-fetch-site: same-origin",
            true,
        ),
        ("host: [::1]:8080\r\nsec-fetch-site: none", true),
        // A name that another site leads here.
        ("host: example.org", false),
        ("host: localhost.example.org", false),
    ] {
        let status = if is_told { 200 } else { 421 };
        let page = request("/", lines).expect(status);
        assert_eq!(text(&page).contains("/.gannet/"), is_told, "{lines}");
        let is_refusal = text(&page).starts_with("gannet dev answers under");
        assert_eq!(is_refusal, !is_told, "{lines}");
        let own = request("/.gannet/dev.js", lines).expect(status);
        assert_eq!(text(&own).contains("EventSource"), is_told, "{lines}");
    }
    // A page of another site asks.
    for site in ["cross-site", "same-site"] {
        let lines = format!("host: localhost\r\nsec-fetch-site: {site}");
        request("/.gannet/dev.js", &lines).expect(404);
        request("/.gannet/events", &lines).expect(404);
    }
    // A browser that does not say which site asks names the origin.
    let lines = "host: localhost\r\norigin: http://example.org";
    request("/.gannet/events", lines).expect(404);
    request("/.gannet/events", "host: localhost\r\norigin: null").expect(404);
    let lines = "host: localhost\r\norigin: http://localhost";
    request("/.gannet/dev.js", lines).expect(200);
    request("/.gannet/events", "host: example.org").expect(421);
    let mut client = Client::new(&server);
    client.send(
        "HEAD / HTTP/1.1\r\nhost: example.org\r\n\r\nGET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    );
    client.response_to("HEAD").expect(421);
    client.response().expect(200);
}

#[test]
fn others_on_the_network_get_what_the_author_gets_if_asked_for() {
    let site = Folder::site();
    let server = dev(&site, &["--expose"]);
    let lines = server.start_lines();
    let note = "note     others on the network get everything, also messages of builds and rules";
    assert!(lines.iter().any(|it| it == note), "{lines:?}");
    let urls = lines.iter().filter_map(|it| it.split_once("http://"));
    let mut authorities = urls.map(|(_, rest)| rest.trim_end_matches('/').to_owned());
    let Some(authority) = authorities.find(|it| !it.starts_with("127.")) else {
        gannet_testkit::left_out("a network card", "no address but that of this machine");
        return;
    };
    let ask = |host: &str, target: &str| {
        let stream = TcpStream::connect(&authority).expect("it listens there");
        let head = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        (&stream).write_all(head.as_bytes()).expect("it takes it");
        let mut answer = String::new();
        (&stream).read_to_string(&mut answer).expect("an answer");
        answer
    };
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    for host in [&authority, &name, &format!("{name}.local")] {
        let page = ask(host, "/");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{host}: {page}");
        assert!(page.contains("/.gannet/dev.js?at="), "{host}: {page}");
        assert!(
            ask(host, "/.gannet/dev.js").contains("EventSource"),
            "{host}"
        );
    }
    for target in ["/", "/.gannet/dev.js", "/.gannet/events"] {
        let answer = ask("example.org", target);
        assert!(answer.starts_with("HTTP/1.1 421 "), "{target}: {answer}");
    }
}

#[test]
fn no_folder_for_temporary_files_is_needed() {
    let site = Folder::site();
    let mut command = command();
    command.args(["dev", "--port", "0"]).arg(site.path());
    let server = Gannet::start(command.env("TMPDIR", "/nowhere"));
    script(&get(&server, "/").expect(200));
}

/// A page is sent in several parts; its length is that of all.
#[test]
fn long_pages_get_the_script_up_to_a_limit() {
    let site = Folder::new();
    let page = format!("<!doctype html><p>{}", "long ".repeat(1_600_000));
    site.write("index.html", &page);
    site.write("longer.html", page.repeat(2));
    let server = dev(&site, &[]);
    let (_, rest) = script(&get(&server, "/").expect(200));
    assert!(rest == page, "{} of {} bytes", rest.len(), page.len());
    let longer = get(&server, "/longer").expect(200);
    assert!(text(&longer) == page.repeat(2));
}

#[test]
fn a_build_runs_at_changes_of_its_sources() {
    let folder = Folder::new();
    folder.write("src/page.txt", "one");
    // It writes among its sources, but where it need not, and into the folder that is served.
    let script = "echo building; mkdir -p out; cat src/page.txt > out/index.html; \
        grep -q bad src/page.txt && { echo 'line 7: it is bad' >&2; exit 3; }; true";
    let mut command = command();
    command.args(["dev", "out", "--port", "0", "--build", script]);
    let mut server = Gannet::start(command.current_dir(folder.path()));
    assert!(server.start_lines().iter().any(|it| it == "building"));
    let page = get(&server, "/").expect(200);
    assert_eq!(script_free(&page), "one");
    let mut window = Window::open(&server, &mark(&page));
    folder.write("src/page.txt", "two");
    window.hear_of("\"change\":\"page\",\"problems\":[]");
    assert_eq!(script_free(&get(&server, "/")), "two");
    folder.write("src/page.txt", "bad");
    let told = window.hear_of("The build failed (exit status 3)");
    assert!(told.contains("line 7: it is bad"), "{told}");
    folder.write("src/page.txt", "three");
    window.hear_of("\"problems\":[]");
    while script_free(&get(&server, "/")) != "three" {
        window.hear();
    }
    // What the builds wrote started none.
    server.signal(Signal::INT);
    let mut builds = 1;
    while let Some(line) = server.next_line() {
        builds += usize::from(line == "building");
    }
    assert!(
        (4..=7).contains(&builds),
        "{builds}: writes and their times are two changes at most"
    );
}

/// As generators do: all files are removed first, and written anew.
#[test]
fn a_build_that_changes_a_style_alone_leaves_the_page() {
    let folder = Folder::new();
    folder.write("src/site.css", "a {}");
    let script = "rm -rf out; sleep 0.2; mkdir -p out/css; echo '<!doctype html><p>' > out/index.html; \
        echo map > out/css/site.css.map; cp src/site.css out/css; gzip -kn out/css/site.css; echo done";
    let mut command = command();
    command.args([
        "dev", "out", "--port", "0", "--watch", "src", "--build", script,
    ]);
    let mut server = Gannet::start(command.current_dir(folder.path()));
    let mut window = Window::open(&server, &mark(&get(&server, "/")));
    window.hear_of("\"change\":\"nothing\"");
    // A save that changes nothing builds nothing.
    folder.write("src/site.css", "a {}");
    folder.write("src/site.css", "b {}");
    assert!(window.hear().contains("\"change\":\"styles\""));
    assert_eq!(text(&get(&server, "/css/site.css")), "b {}");
    // A build that changes nothing loads nothing.
    folder.write("src/other.txt", "");
    while server.next_line().expect("lines of a build") != "done" {}
    folder.write("src/site.css", "c {}");
    assert!(window.hear().contains("\"change\":\"styles\""));
    let ended = server.stop();
    let out = ended.text();
    let expect = "changed  css/site.css and 1 more; styles reloaded in 1 window\n";
    assert!(out.contains(expect), "{out}");
    assert!(!out.contains("; reloaded"), "{out}");
}

fn script_free(page: &Response) -> String {
    script(page).1
}

#[test]
fn a_build_that_starts_itself_is_stopped() {
    let folder = Folder::new();
    folder.write("out/index.html", "page");
    folder.write("counter", "");
    let mut command = command();
    let script = "echo building; echo x >> counter";
    command.args(["dev", "out", "--port", "0", "--build", script]);
    let mut server = Gannet::start(command.current_dir(folder.path()));
    folder.write("source", "changed");
    let line = server.next_error_line().expect("a message");
    let expect = "gannet: not built again, although 'counter' changed during the build: ";
    assert!(line.starts_with(expect), "{line}");
}

#[test]
fn a_change_during_a_build_is_told_and_built_when_that_ends() {
    let folder = Folder::new();
    folder.write("src/page.txt", "one");
    folder.write("go", "");
    let script = "mkdir -p out; cat src/page.txt > out/index.html; echo started; \
        until test -e go; do sleep 0.05; done";
    let mut command = command();
    let watched = [
        "dev", "out", "--port", "0", "--watch", "src", "--build", script,
    ];
    command.args(watched);
    let mut server = Gannet::start(command.current_dir(folder.path()));
    let wait_for = |server: &mut Gannet, expect: &str| {
        while server.next_line().expect(expect) != expect {}
    };
    assert!(server.start_lines().iter().any(|it| it == "started"));
    fs::remove_file(folder.join("go")).expect("it is there");
    folder.write("src/page.txt", "two");
    wait_for(&mut server, "started");
    folder.write("src/page.txt", "three");
    let expect = "changed  page.txt; built again when the build that is running ends";
    wait_for(&mut server, expect);
    folder.write("go", "");
    wait_for(&mut server, "started");
    until("it is served", || {
        script_free(&get(&server, "/")) == "three"
    });
}

#[test]
fn a_change_during_the_first_build_is_built_when_that_ends() {
    let folder = Folder::new();
    folder.write("src/page.txt", "one");
    // As an author does meanwhile.
    let script = "mkdir -p out; cat src/page.txt > out/index.html; printf two > src/page.txt";
    let mut command = command();
    command.args(["dev", "out", "--port", "0", "--build", script]);
    let server = Gannet::start(command.current_dir(folder.path()));
    until("it is served", || script_free(&get(&server, "/")) == "two");
}

#[test]
fn the_end_is_the_end_of_the_build() {
    for signal in [Signal::INT, Signal::QUIT] {
        the_end_by(signal);
    }
}

/// A server whose build runs, and has written the ID of a process to `pid`, which is returned.
fn building(folder: &Folder, script: &str) -> (Child, String) {
    let mut command = command();
    command.args(["dev", "out", "--port", "0", "--build", script]);
    command
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let server = command.spawn().expect("it starts");
    until("the build runs", || folder.join("pid").exists());
    let pid = fs::read_to_string(folder.join("pid")).expect("a number");
    (server, pid)
}

fn the_end_by(signal: Signal) {
    let folder = Folder::new();
    let script = "sleep 1000 & echo $! > pid.tmp; mv pid.tmp pid; wait";
    let (mut server, pid) = building(&folder, script);
    let id = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(id, signal).expect("it runs");
    assert_eq!(server.wait().expect("it ends").code(), Some(0));
    until_gone(&pid);
}

#[test]
fn a_link_to_the_folder_is_followed_when_it_changes() {
    let folder = Folder::new();
    folder.write("1/index.html", "one");
    folder.write("2/index.html", "two");
    std::os::unix::fs::symlink("1", folder.join("site")).expect("a link");
    let mut command = command();
    command.args(["dev", "site", "--port", "0"]);
    let server = Gannet::start(command.current_dir(folder.path()));
    let page = get(&server, "/");
    assert_eq!(script_free(&page), "one");
    let mut window = Window::open(&server, &mark(&page));
    std::os::unix::fs::symlink("2", folder.join("new")).expect("a link");
    fs::rename(folder.join("new"), folder.join("site")).expect("renamed");
    window.hear_of("\"change\":\"page\"");
    assert_eq!(script_free(&get(&server, "/")), "two");
}

#[test]
fn links_lead_out_of_the_site_only_where_a_flag_lets_them() {
    let (site, shared) = (Folder::site(), Folder::new());
    let file = shared.write("photo.txt", "shared");
    std::os::unix::fs::symlink(&file, site.join("photo.txt")).expect("a link");
    get(&dev(&site, &[]), "/photo.txt").expect(404);
    let shared = shared.path().to_str().expect("UTF-8");
    let server = dev(&site, &["--follow-links", shared]);
    assert_eq!(text(&get(&server, "/photo.txt").expect(200)), "shared");
    let site = site.path().to_str().expect("UTF-8");
    let refused = gannet(["dev", site, "--follow-links", "/none"]);
    assert_eq!(refused.status, Some(2), "{}", refused.err);
    assert!(refused.err.contains("'/none'"), "{}", refused.err);
}

#[test]
fn the_second_signal_ends_a_build_that_does_not_want_to() {
    let folder = Folder::new();
    let script = "trap '' TERM; echo $$ > pid.tmp; mv pid.tmp pid; sleep 1000; sleep 1000";
    let (mut server, pid) = building(&folder, script);
    let id = rustix::process::Pid::from_child(&server);
    until("it ends", || {
        rustix::process::kill_process(id, Signal::INT).expect("it is not reaped");
        server.try_wait().expect("a child").is_some()
    });
    until_gone(&pid);
}

#[test]
fn what_cannot_work_is_refused() {
    let site = Folder::site();
    let path = site.path().to_str().expect("UTF-8");
    gannet(["dev", path, "--watch", "src"]).failure(
        2,
        "gannet: --watch has no effect without --build\n\
         help: the folder that is served is watched anyway\n",
    );
    let run = |flags: &[&str]| {
        let mut command = command();
        command.args(["dev", "--port", "0"]).args(flags);
        gannet_testkit::run(command.current_dir(path))
    };
    run(&["--build", "true"]).failure(
        2,
        "gannet: cannot watch '.': it is served: what the build writes there would start the build \
         again\nhelp: name the folders with the sources with --watch DIR\n",
    );
    run(&["index.html"]).failure(
        1,
        "gannet: cannot serve 'index.html': not a directory\n\
         help: name the folder to work at: 'gannet dev DIR'\n",
    );
    let ended = run(&["none", "--build", "exit 1"]);
    assert!(
        ended.err.contains("the build failed, and did not make it"),
        "{ended:?}"
    );
    run(&["--port", "http"]).failure(
        2,
        "gannet: cannot use '--port http': not a number from 0 to 65535\n\
         help: see 'gannet dev --help'\n",
    );
}

/// Each change gives way to a new server behind; copies that the one before had made of long files
/// are freed with it.
#[test]
fn copies_of_replaced_servers_are_freed() {
    let site = Folder::site();
    site.write("app.js", "let value = 1;\n".repeat(200_000));
    site.write("image.png", "x".repeat(3_000_000));
    let server = dev(&site, &[]);
    let copies = || {
        let names = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("a process");
        let links = names.filter_map(|name| fs::read_link(name.ok()?.path()).ok());
        let is_copy = |link: &std::path::PathBuf| link.to_string_lossy().starts_with("/memfd:");
        links.filter(is_copy).count()
    };
    let mut window = Window::open(&server, &mark(&get(&server, "/")));
    let mut most = 0;
    for number in 0..8 {
        // Files that have changed a moment ago are not copied: ask until they are.
        until("a long file is copied", || {
            get(&server, "/image.png").expect(200);
            get(&server, "/app.js").expect(200);
            copies() > 0
        });
        most = most.max(copies());
        let page = format!("<!doctype html><p>{number}");
        site.write("about.html", &page);
        while script_free(&get(&server, "/about")) != page {
            window.hear_of("\"change\":\"page\"");
        }
    }
    assert!(
        most <= 4,
        "{most}: those of one server, or of two for a moment"
    );
}

/// The longest names that a file system has, of bytes that links have to spell out.
#[test]
fn names_of_any_length_work() {
    let site = Folder::new();
    let long = format!("{}.html", "\u{1f427}".repeat(62));
    assert_eq!(long.len(), 253);
    let page = "<!doctype html><p>long";
    site.write(format!("folder/{long}"), page);
    let server = dev(&site, &[]);
    let (_, listing) = script(&get(&server, "/folder/").expect(200));
    let link = listing.split("<td><a href=\"./").nth(1).expect("a row");
    let link = link.split('"').next().expect("an end").to_owned();
    assert_eq!(link.len(), 3 * 248 + ".html".len(), "{link}");
    assert_eq!(script_free(&get(&server, &format!("/folder/{link}"))), page);
    let mut window = Window::open(&server, &mark(&get(&server, "/folder/")));
    site.write(format!("folder/{long}"), "<!doctype html><p>new");
    window.hear_of("\"change\":\"page\"");
    until("the new page", || {
        script_free(&get(&server, &format!("/folder/{link}"))).ends_with("new")
    });
}
