//! Datagrams: addresses, ECN, trains, too few buffers, overflow, and the end.

mod desk;

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::{io, thread};

use desk::{Desk, each_with_datagrams, pattern};
use gannet_io::driver::{DatagramSocket, Done, Errno, Token, Train};
use gannet_io::options::EngineOptions;
use gannet_io::{net, udp};
use gannet_testkit::{DEADLINE, left_out};

const FIRST: DatagramSocket = DatagramSocket(0);

/// Runs the body on every engine with one datagram socket bound to a port of this address.
fn each_at(address: &str, options: &EngineOptions, body: impl Fn(Desk, SocketAddr)) {
    let wanted = SocketAddr::new(address.parse().unwrap(), 0);
    each_bound(options, || udp::bind(wanted).unwrap(), body);
}

fn each_bound(
    options: &EngineOptions,
    bind: impl Fn() -> OwnedFd,
    body: impl Fn(Desk, SocketAddr),
) {
    let bound = RefCell::new(None);
    let sockets = || {
        let socket = bind();
        *bound.borrow_mut() = net::local_addr(&socket).unwrap();
        vec![socket]
    };
    each_with_datagrams(options, sockets, |desk| {
        let address = bound.take().expect("bound a moment ago");
        body(desk, address);
    });
}

fn train(len: usize, segment: usize, to: SocketAddr, from: Option<IpAddr>, ecn: u8) -> Train {
    Train {
        len,
        segment,
        to,
        from,
        ecn,
    }
}

fn send_one(desk: &mut Desk, bytes: &[u8], train: Train) -> Result<usize, Errno> {
    desk.driver.send_datagrams(FIRST, bytes, &[train])
}

fn client(address: &str) -> UdpSocket {
    let client = UdpSocket::bind((address, 0)).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    client
}

fn check_round_trip(bound: &str, client_at: &str, reached_at: &str) {
    each_at(bound, &EngineOptions::default(), |mut desk, address| {
        let client = client(client_at);
        let local: IpAddr = reached_at.parse().unwrap();
        let server = SocketAddr::new(local, address.port());
        desk.driver.receive_datagrams(FIRST, Token(1));
        for len in [1, 100, 1200, 1472, 2000] {
            let sent = pattern(len);
            client.send_to(&sent, server).unwrap();
            let (bytes, datagram) = desk.datagram(Token(1));
            assert_eq!(bytes, sent);
            assert_eq!(datagram.peer, client.local_addr().unwrap());
            let is_reported = address.ip().is_unspecified();
            assert_eq!(datagram.local, is_reported.then_some(local));
            assert_eq!((datagram.ecn, datagram.dropped), (0, 0));
            let (peer, from) = (datagram.peer, datagram.local);
            desk.driver.release(datagram.lease);
            let answer = send_one(&mut desk, &sent, train(len, len, peer, from, 0));
            answer.unwrap();
            let mut room = [0; 4096];
            let (len, from) = client.recv_from(&mut room).unwrap();
            assert_eq!(&room[..len], sent);
            assert_eq!(from, server);
        }
        let counters = desk.driver.counters();
        assert_eq!(counters.datagrams_received, 5);
        assert_eq!(counters.datagrams_sent, 5);
    });
}

/// A socket that is left to another process delivers nothing more here, and can still send.
#[test]
fn leaves_a_socket_to_another_process() {
    let other = RefCell::new(None);
    let bind = || {
        let socket = udp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        *other.borrow_mut() = Some(UdpSocket::from(socket.try_clone().unwrap()));
        socket
    };
    each_bound(&EngineOptions::default(), bind, |mut desk, address| {
        let client = client("127.0.0.1");
        desk.driver.receive_datagrams(FIRST, Token(1));
        client.send_to(b"first", address).unwrap();
        let (_, datagram) = desk.datagram(Token(1));
        desk.driver.release(datagram.lease);
        desk.driver.leave_datagrams(FIRST);
        assert!(desk.settle().is_empty());
        client.send_to(b"second", address).unwrap();
        assert!(desk.settle().is_empty());
        let mut room = [0; 64];
        let other = other.take().expect("bound a moment ago");
        assert_eq!(other.recv(&mut room).unwrap(), 6);
        let peer = client.local_addr().unwrap();
        let answer = send_one(&mut desk, b"answer", train(6, 6, peer, None, 0));
        answer.unwrap();
        assert_eq!(client.recv(&mut room).unwrap(), 6);
    });
}

/// Trains to several peers leave by one call, each with its own bytes and ECN bits, and what cannot be sent ends
/// none of the others.
#[test]
fn sends_several_trains_in_one_call() {
    each_at(
        "127.0.0.1",
        &EngineOptions::default(),
        |mut desk, address| {
            desk.driver.receive_datagrams(FIRST, Token(1));
            let other = client("127.0.0.1");
            let to = other.local_addr().unwrap();
            // No datagram has port 0.
            let nowhere = SocketAddr::new(to.ip(), 0);
            let trains = [
                train(700, 700, address, None, 1),
                train(2_500, 1_000, to, None, 0),
                train(10, 10, nowhere, None, 0),
                train(900, 900, address, None, 2),
            ];
            let bytes = pattern(4_110);
            let before = desk.driver.counters();
            let sent = desk.driver.send_datagrams(FIRST, &bytes, &trains);
            assert_eq!(sent, Ok(2), "{}", desk.engine);
            let rest = (&bytes[3_200..], &trains[2..]);
            let sent = desk.driver.send_datagrams(FIRST, rest.0, rest.1);
            assert_eq!(sent, Err(Errno::INVAL), "{}", desk.engine);
            let sent = desk
                .driver
                .send_datagrams(FIRST, &bytes[3_210..], &trains[3..]);
            assert_eq!(sent, Ok(1), "{}", desk.engine);
            let after = desk.driver.counters();
            assert_eq!(after.submissions - before.submissions, 3);
            assert_eq!(after.datagrams_sent - before.datagrams_sent, 5);
            for expected in [&bytes[..700], &bytes[3_210..]] {
                let (got, datagram) = desk.datagram(Token(1));
                assert!(got == *expected, "{}", desk.engine);
                assert_eq!(datagram.ecn, if got.len() == 700 { 1 } else { 2 });
                desk.driver.release(datagram.lease);
            }
            for expected in bytes[700..3_200].chunks(1_000) {
                let mut room = [0; 2048];
                let len = other.recv(&mut room).unwrap();
                assert!(room[..len] == *expected, "{}", desk.engine);
            }
            // More than one call takes.
            let many = vec![train(1, 1, address, None, 0); 40];
            let sent = desk.driver.send_datagrams(FIRST, &[7; 40], &many).unwrap();
            assert_eq!(sent, 32, "{}", desk.engine);
            for _ in 0..sent {
                let (_, datagram) = desk.datagram(Token(1));
                desk.driver.release(datagram.lease);
            }
        },
    );
}

/// Where a filter of system calls refuses `sendmmsg`, trains leave one by one.
#[test]
fn sends_where_only_sendmsg_is_allowed() {
    for errno in [libc::ENOSYS, libc::EPERM] {
        // A filter is of a thread, and stays.
        let filtered = thread::spawn(move || match refuse_sendmmsg(errno) {
            Ok(()) => each_at("127.0.0.1", &EngineOptions::default(), check_one_by_one),
            Err(why) => left_out("seccomp", why),
        });
        filtered.join().unwrap();
    }
}

fn check_one_by_one(mut desk: Desk, address: SocketAddr) {
    desk.driver.receive_datagrams(FIRST, Token(1));
    let (bytes, trains) = (pattern(300), [train(100, 100, address, None, 0); 3]);
    for first in 0..3 {
        let sent = desk
            .driver
            .send_datagrams(FIRST, &bytes[100 * first..], &trains[first..]);
        assert_eq!(sent, Ok(1), "{}", desk.engine);
        let (got, datagram) = desk.datagram(Token(1));
        assert_eq!(got, bytes[100 * first..][..100]);
        desk.driver.release(datagram.lease);
    }
    // Also refused one by one, as by a firewall.
    let nowhere = SocketAddr::new(address.ip(), 0);
    let lost = [train(100, 100, nowhere, None, 0); 2];
    let sent = desk.driver.send_datagrams(FIRST, &bytes, &lost);
    assert_eq!(sent, Err(Errno::INVAL), "{}", desk.engine);
    assert_eq!(desk.driver.counters().datagrams_sent, 3);
}

/// Has the thread's calls of `sendmmsg` fail from now on.
fn refuse_sendmmsg(errno: i32) -> io::Result<()> {
    let refused = libc::SECCOMP_RET_ERRNO | errno.unsigned_abs();
    // Load the number of the call, compare it, return (`linux/bpf_common.h`).
    let mut program = [
        (0x20, 0, 0),
        (0x15, 1, libc::SYS_sendmmsg as u32),
        (0x06, 0, refused),
        (0x06, 0, libc::SECCOMP_RET_ALLOW),
    ]
    .map(|(code, jf, k)| libc::sock_filter { code, jt: 0, jf, k });
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    rustix::thread::set_no_new_privs(true)?;
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the kernel reads the filter, which names its program and length, and takes a copy.
    match unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether IPv6 can be tested.
fn has_ipv6() -> bool {
    let bound = UdpSocket::bind("[::1]:0");
    if let Err(error) = &bound {
        left_out("IPv6", error);
    }
    bound.is_ok()
}

/// Bytes and addresses arrive both ways; an answer comes from the address that the request was sent
/// to.
#[test]
fn round_trips() {
    check_round_trip("127.0.0.1", "127.0.0.1", "127.0.0.1");
    check_round_trip("0.0.0.0", "127.0.0.1", "127.0.0.2");
    if has_ipv6() {
        check_round_trip("::1", "::1", "::1");
        check_round_trip("::", "::1", "::1");
    }
}

fn check_ecn(at: &str, level: i32, option: i32) {
    each_at(at, &EngineOptions::default(), |mut desk, address| {
        let client = client(at);
        desk.driver.receive_datagrams(FIRST, Token(1));
        for ecn in 0..4u8 {
            // With other bits of the traffic class, which are not ECN.
            let class = i32::from(ecn) | 0x28;
            set(&client, level, option, class);
            client.send_to(b"marked", address).unwrap();
            let (_, datagram) = desk.datagram(Token(1));
            assert_eq!(datagram.ecn, ecn);
            desk.driver.release(datagram.lease);
            // A train and a lone datagram, from the socket to itself.
            let bytes = pattern(150);
            for (segment, count) in [(100, 2), (150, 1)] {
                let sent = send_one(&mut desk, &bytes, train(150, segment, address, None, ecn));
                sent.unwrap();
                for _ in 0..count {
                    let (_, datagram) = desk.datagram(Token(1));
                    assert_eq!((datagram.ecn, datagram.peer), (ecn, address));
                    desk.driver.release(datagram.lease);
                }
            }
        }
    });
}

/// ECN bits are reported as sent, and sent as requested.
#[test]
fn carries_ecn() {
    check_ecn("127.0.0.1", libc::IPPROTO_IP, libc::IP_TOS);
    if has_ipv6() {
        check_ecn("::1", libc::IPPROTO_IPV6, libc::IPV6_TCLASS);
    }
}

fn check_train(at: &str, from: Option<IpAddr>) {
    each_at(at, &EngineOptions::default(), |mut desk, _| {
        let client = client(at);
        let to = client.local_addr().unwrap();
        for (len, segment) in [(1_300, 1_200), (12_345, 1_200), (65_507, 1_452), (640, 10)] {
            let bytes = pattern(len);
            let before = desk.driver.counters();
            let sent = send_one(&mut desk, &bytes, train(len, segment, to, from, 2));
            sent.unwrap();
            for expected in bytes.chunks(segment) {
                let mut room = [0; 2048];
                let len = client.recv(&mut room).unwrap();
                assert!(room[..len] == *expected, "{}: {segment}", desk.engine);
            }
            let after = desk.driver.counters();
            let count = bytes.chunks(segment).len() as u64;
            assert_eq!(after.datagrams_sent - before.datagrams_sent, count);
            // In one call.
            assert_eq!(after.submissions - before.submissions, 1);
        }
    });
}

/// The datagrams of a train arrive one by one, in order, from the requested address.
#[test]
fn sends_trains() {
    check_train("127.0.0.1", None);
    check_train("127.0.0.1", Some([127, 0, 0, 1].into()));
    if has_ipv6() {
        check_train("::1", Some("::1".parse().unwrap()));
    }
}

/// A burst of more datagrams than one call takes arrives whole and in order, even with few buffers.
#[test]
fn receives_bursts() {
    for buffers in [2, 512] {
        let options = EngineOptions {
            buffers,
            ..EngineOptions::default()
        };
        each_at("127.0.0.1", &options, |mut desk, address| {
            let client = client("127.0.0.1");
            desk.driver.receive_datagrams(FIRST, Token(3));
            desk.settle();
            for number in 0..100u8 {
                client.send_to(&[number; 100], address).unwrap();
            }
            // Leases are kept while more datagrams arrive.
            let mut kept = Vec::new();
            for number in 0..100u8 {
                if kept.len() == usize::from(buffers) {
                    assert!(desk.settle().is_empty(), "{}: no buffer", desk.engine);
                    kept.drain(..).for_each(|lease| desk.driver.release(lease));
                }
                let (bytes, datagram) = desk.datagram(Token(3));
                assert_eq!(bytes, [number; 100], "{}", desk.engine);
                kept.push(datagram.lease);
            }
            assert!(desk.settle().is_empty());
            let starved = desk.driver.counters().no_buffers > 0;
            assert_eq!(starved, buffers == 2, "{}", desk.engine);
            kept.drain(..).for_each(|lease| desk.driver.release(lease));
        });
    }
}

/// A datagram longer than a buffer is dropped and counted; an empty one is not the end of a stream.
#[test]
fn drops_what_is_too_long() {
    let options = EngineOptions {
        buffers: 4,
        buffer_len: 2048,
        ..EngineOptions::default()
    };
    each_at("127.0.0.1", &options, |mut desk, address| {
        let client = client("127.0.0.1");
        desk.driver.receive_datagrams(FIRST, Token(1));
        // More often than there are buffers: dropping must not leak them.
        for _ in 0..10 {
            client.send_to(&pattern(3000), address).unwrap();
            client.send_to(b"", address).unwrap();
            let (bytes, datagram) = desk.datagram(Token(1));
            assert_eq!((bytes.as_slice(), datagram.ecn), (&b""[..], 0));
            desk.driver.release(datagram.lease);
            client.send_to(b"short", address).unwrap();
            let (bytes, datagram) = desk.datagram(Token(1));
            assert_eq!(bytes, b"short");
            desk.driver.release(datagram.lease);
        }
        let counters = desk.driver.counters();
        assert_eq!(counters.datagrams_truncated, 10, "{}", desk.engine);
        assert_eq!(counters.datagrams_received, 20);
    });
}

/// Drops by the kernel because nothing reads the socket show in later datagrams, and in the
/// counter.
#[test]
fn reports_what_the_kernel_dropped() {
    let narrow = || {
        let socket = udp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
        socket
    };
    each_bound(&EngineOptions::default(), narrow, |mut desk, address| {
        let client = client("127.0.0.1");
        for number in 0..200u8 {
            client.send_to(&[number; 500], address).unwrap();
        }
        desk.driver.receive_datagrams(FIRST, Token(1));
        // Once the first one has arrived, the engine is at it, and empties the socket.
        let (_, first) = desk.datagram(Token(1));
        desk.driver.release(first.lease);
        let mut arrived = 1;
        for completion in desk.settle() {
            let Ok(Done::Datagram(datagram)) = completion.result else {
                panic!("{completion:?}")
            };
            desk.driver.release(datagram.lease);
            arrived += 1;
        }
        assert!(arrived < 200, "{arrived}");
        client.send_to(b"late", address).unwrap();
        let (_, datagram) = desk.datagram(Token(1));
        assert_eq!(datagram.dropped, 200 - arrived, "{}", desk.engine);
        desk.driver.release(datagram.lease);
        let counters = desk.driver.counters();
        assert_eq!(counters.datagrams_dropped, u64::from(200 - arrived));
    });
}

/// A stopped socket is closed and completes nothing more, whatever was under way.
#[test]
fn stops() {
    each_at(
        "127.0.0.1",
        &EngineOptions::default(),
        |mut desk, address| {
            let client = client("127.0.0.1");
            desk.driver.receive_datagrams(FIRST, Token(1));
            client.send_to(b"first", address).unwrap();
            let (_, datagram) = desk.datagram(Token(1));
            // With a datagram waiting and a wait for room, neither delivered yet.
            client.send_to(b"second", address).unwrap();
            desk.driver.when_sendable(FIRST, Token(2));
            desk.driver.stop_datagrams(FIRST);
            assert!(desk.settle().is_empty(), "{}", desk.engine);
            desk.driver.release(datagram.lease);
            desk.turn_until("the socket closed", |_| {
                udp::bind_exclusive(address).is_ok()
            });
            assert!(desk.settle().is_empty(), "{}", desk.engine);
        },
    );
}

/// A driver that is dropped closes sockets that were not stopped.
#[test]
fn closes_when_dropped() {
    each_at(
        "127.0.0.1",
        &EngineOptions::default(),
        |mut desk, address| {
            let client = client("127.0.0.1");
            desk.driver.receive_datagrams(FIRST, Token(1));
            desk.settle();
            client.send_to(b"unread", address).unwrap();
            desk.driver.when_sendable(FIRST, Token(2));
            drop(desk);
            desk::until("the socket closed", || udp::bind_exclusive(address).is_ok());
        },
    );
}

/// A socket with room reports it at once, and once; the last token counts.
#[test]
fn has_room() {
    each_at("127.0.0.1", &EngineOptions::default(), |mut desk, _| {
        desk.driver.when_sendable(FIRST, Token(1));
        desk.driver.when_sendable(FIRST, Token(2));
        for token in [Token(2), Token(3)] {
            let completion = desk.next();
            assert_eq!((completion.token, completion.more), (token, false));
            assert!(matches!(completion.result, Ok(Done::Sendable)));
            assert!(desk.settle().is_empty(), "{}", desk.engine);
            desk.driver.when_sendable(FIRST, Token(3));
        }
    });
}

/// Runs this binary's one test `name` in a network namespace prepared by `setup`, unless this is
/// already that process: then the test continues.
fn is_in_namespace(name: &str, setup: &str) -> bool {
    if std::env::var_os("GANNET_TEST_CHILD").is_some() {
        return true;
    }
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "sh", "-ec", script]);
        command
    };
    let why = match unshare(setup).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = why {
        left_out("network namespaces", why);
        return false;
    }
    let script = format!("{setup}; exec \"$0\" --exact {name} --nocapture --test-threads=1");
    let output = unshare(&script)
        .arg(std::env::current_exe().unwrap())
        .env("GANNET_TEST_CHILD", "namespace")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    false
}

/// A full socket refuses trains, and reports when it takes them again: none is lost.
#[test]
fn waits_for_room() {
    let slow = "ip link set lo up; tc qdisc add dev lo root tbf rate 16mbit burst 3000 limit 100mb";
    if !is_in_namespace("waits_for_room", slow) {
        return;
    }
    let narrow = || {
        let socket = udp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&socket, 16 << 10).unwrap();
        socket
    };
    each_bound(&EngineOptions::default(), narrow, |mut desk, address| {
        desk.driver.receive_datagrams(FIRST, Token(1));
        let bytes = |number: u8| [[number; 1000], [number; 1000]].concat();
        let (mut refused, mut arrived) = (0, 0);
        for number in 0..100 {
            let send = |desk: &mut Desk| {
                send_one(desk, &bytes(number), train(2000, 1000, address, None, 0))
            };
            while let Err(errno) = send(&mut desk) {
                assert_eq!(errno, Errno::AGAIN);
                refused += 1;
                desk.driver.when_sendable(FIRST, Token(2));
                loop {
                    let completion = desk.next();
                    match completion.result {
                        Ok(Done::Datagram(datagram)) => {
                            desk.driver.release(datagram.lease);
                            arrived += 1;
                        }
                        Ok(Done::Sendable) => break assert_eq!(completion.token, Token(2)),
                        other => panic!("{}: {other:?}", desk.engine),
                    }
                }
            }
        }
        assert!(refused > 0, "{}: the socket was never full", desk.engine);
        while arrived < 200 {
            let (_, datagram) = desk.datagram(Token(1));
            desk.driver.release(datagram.lease);
            arrived += 1;
        }
        assert!(desk.settle().is_empty(), "{}", desk.engine);
    });
}

/// Datagrams longer than the interface's MTU are lost without an error, alone and in a train; the
/// rest arrive.
#[test]
fn loses_what_exceeds_the_mtu() {
    let short = "ip link set lo up mtu 1300";
    if !is_in_namespace("loses_what_exceeds_the_mtu", short) {
        return;
    }
    let options = EngineOptions::default();
    each_at("127.0.0.1", &options, |mut desk, address| {
        desk.driver.receive_datagrams(FIRST, Token(1));
        let send = |desk: &mut Desk, len: usize, segment: usize| {
            let sent = send_one(desk, &pattern(len), train(len, segment, address, None, 0));
            assert_eq!(sent, Ok(1), "{}: {len} by {segment}", desk.engine);
        };
        send(&mut desk, 1_400, 1_400);
        send(&mut desk, 4_200, 1_400);
        assert!(desk.settle().is_empty(), "{}: not fragmented", desk.engine);
        assert_eq!(desk.driver.counters().datagrams_sent, 0);
        // The kernel still segments trains.
        let before = desk.driver.counters().submissions;
        send(&mut desk, 2_400, 1_200);
        assert_eq!(desk.driver.counters().submissions - before, 1);
        for _ in 0..2 {
            let (bytes, datagram) = desk.datagram(Token(1));
            assert_eq!(bytes.len(), 1_200);
            desk.driver.release(datagram.lease);
        }
    });
}

/// Sets an option that is one int.
fn set(socket: &UdpSocket, level: i32, option: i32, value: i32) {
    let len = size_of::<i32>() as libc::socklen_t;
    let value = (&raw const value).cast();
    // SAFETY: the descriptor is open while borrowed; the kernel reads one int.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) };
    assert_eq!(result, 0);
}
