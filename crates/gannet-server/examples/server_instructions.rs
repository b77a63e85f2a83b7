//! Requests through a whole worker, for counting instructions: `cargo xtask instructions`.
//!
//! `server_instructions NAME COUNT` sends COUNT requests; without arguments it prints the names. A
//! worker answers them on the simulated kernel, whose own instructions are counted as well: they are
//! the same for all requests of a version. The first three have nothing turned on; each of the others
//! differs from the first by what it is named after.

use gannet_archive::{Coding, Content, Key, Options, SUPERBLOCK_LEN, VariantDraft, Writer, digest};
use gannet_content::answer::{self, Resource};
use gannet_content::validators::hash_tag;
use gannet_http::semantics::coding::Coding as ContentCoding;
use gannet_io::driver::{Disk, Listener, Peer, Started, Token};
use gannet_io::options::EngineOptions;
use gannet_io::sim::{Faults, Sim};
use gannet_server::config::{ClientRules, ContentOptions, Limits};
use gannet_server::driven::{Driven, DrivenClients, DrivenContent};
use gannet_server::{Network, Rate};
use gannet_testkit::{h2, workload};

const NAMES: [&str; 9] = [
    "request-h1-archive",
    "request-h1-directory",
    "request-h2-archive",
    "request-with-forwarded",
    "request-with-limits",
    "request-with-lists",
    "request-with-measures",
    "request-with-proxy-protocol",
    "request-with-server-timing",
];

/// The content of the file that is asked for.
const TEXT: &str = "All work and no play makes a page of 64 bytes, or about so....\n";

const PREFACE: &str = "PROXY TCP4 203.0.113.7 198.51.100.1 56324 443\r\n";

fn main() {
    let Some((name, count)) = workload(&NAMES) else {
        return;
    };
    let mut server = server(name);
    let peer = Peer::Ip("192.0.2.9:4000".parse().expect("an address"));
    let disk = server.driver().handle();
    let client = disk.connect_from(Listener(0), peer).expect("it listens");
    let is_http2 = name == "request-h2-archive";
    match name {
        "request-with-proxy-protocol" => client.write(PREFACE.as_bytes()),
        "request-h2-archive" => client.write(&h2::wide_opening()),
        _ => {}
    }
    let fields = match name {
        "request-with-forwarded" => "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: http\r\n",
        _ => "",
    };
    let request = format!("GET /page.txt HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    let block = h2::request("GET", "/page.txt", &[]);
    for number in 0..count {
        match is_http2 {
            true => client.write(&h2::headers(1 + 2 * number as u32, &block)),
            false => client.write(request.as_bytes()),
        }
        let mut got = Vec::new();
        while !got.ends_with(TEXT.as_bytes()) {
            server.turn(None).expect("a simulated kernel does not fail");
            got.extend(client.read());
        }
        // The status of the response, whatever comes before it: in HTTP/2 the field of the static
        // table, in a frame of its own.
        let is_right = match is_http2 {
            true => h2::frames(&got)
                .iter()
                .any(|frame| frame.kind == h2::HEADERS && frame.payload.first() == Some(&0x88)),
            false => got.starts_with(b"HTTP/1.1 200 "),
        };
        assert!(is_right, "{}", got.escape_ascii());
    }
}

/// A server with what this name says.
fn server(name: &str) -> Driven<Sim> {
    let mut driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
    let disk = driver.handle();
    let content = if name == "request-h1-directory" {
        disk.put_file("page.txt", TEXT);
        // For so long that it is known by its metadata.
        disk.age_files(100_000);
        DrivenContent::Directory(disk.root())
    } else {
        let bytes = archive();
        disk.put_file("site.gannet", bytes.clone());
        match driver.open(&disk.root(), b"site.gannet", Token(0)) {
            Started::Now(opened) => {
                DrivenContent::Archive(bytes, opened.expect("it was put there").file)
            }
            Started::Pending => unreachable!("nothing is slow"),
        }
    };
    let network = |text| Network::parse(text).expect("a network");
    let mut clients = DrivenClients {
        is_unmeasured: true,
        ..DrivenClients::default()
    };
    let rules = &mut clients.rules;
    let mut options = ContentOptions::default();
    match name {
        "request-with-forwarded" => rules.trust = network("192.0.2.0/24"),
        // So many that no request is refused.
        "request-with-limits" => {
            *rules = ClientRules {
                connections: 100_000,
                requests: Rate::new(100_000_000, 1_000_000_000, None),
                bytes_per_second: 100 << 30,
                ..ClientRules::default()
            };
        }
        "request-with-lists" => rules.deny = network("198.51.100.0/24"),
        "request-with-measures" => clients.is_unmeasured = false,
        "request-with-proxy-protocol" => {
            rules.trust = network("192.0.2.0/24");
            clients.is_proxied = true;
        }
        "request-with-server-timing" => options.server_timing = true,
        _ => {}
    }
    let limits = Limits::default();
    Driven::with_clients(driver, content, &options, limits, (None, clients)).expect("an archive")
}

/// An archive with the file.
fn archive() -> Vec<u8> {
    let mut writer = Writer::new(Options::default());
    let text = TEXT.as_bytes();
    let placed = writer.add_bytes(text);
    let mut bytes = vec![0; SUPERBLOCK_LEN];
    if let Some(offset) = placed.write_at {
        bytes.resize(offset as usize, 0);
        bytes.extend_from_slice(text);
    }
    let tag = hash_tag(&digest(text), ContentCoding::Identity);
    let ready = answer::ready_fields(&Resource {
        content_type: "text/plain",
        coding: ContentCoding::Identity,
        len: text.len() as u64,
        entity_tag: &tag,
        last_modified: Some(1_700_000_000),
        vary: None,
        cache_control: None,
        fields: &[],
        common: None,
    });
    let ready = ready.expect("fields that can be sent");
    let block = ready.as_block();
    let variants = writer.add_variants(&[VariantDraft {
        coding: Coding::Identity,
        blob: placed.id,
        entity_tag: tag.as_bytes(),
        h1: block,
        hpack: None,
    }]);
    let content = Content {
        content_type: b"text/plain",
        last_modified: Some(1_700_000_000),
        variants,
        ..Content::default()
    };
    writer.add_content(Key::content(b"/page.txt"), &content);
    let parts = writer.finish().expect("a sound archive");
    bytes.resize(parts.metadata_offset as usize, 0);
    bytes.extend_from_slice(&parts.metadata);
    bytes[..SUPERBLOCK_LEN].copy_from_slice(&parts.superblock);
    bytes
}
