"""Errors of clients of QUIC and HTTP/3 that a server has to notice: the cases of h3spec.

usage: h3spec.py PORT

Prints the number of cases; exits with status 1 if one was answered in another way. What a server may
notice and need not is no case.
"""

import socket
import sys
import time

from aioquic import tls
from aioquic.buffer import Buffer, encode_uint_var
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicPacketType

# RFC 9000, 20.1.
FLOW_CONTROL, STREAM_LIMIT, STREAM_STATE, FRAME_ENCODING, TRANSPORT_PARAMETER, PROTOCOL = 3, 4, 5, 7, 8, 10
# RFC 9001, 4.8: alerts.
UNEXPECTED_MESSAGE, MISSING_EXTENSION, NO_APPLICATION_PROTOCOL = 0x10A, 0x16D, 0x178
# RFC 9114, 8.1; RFC 9204, 6.
H3_STREAM_CREATION, H3_CLOSED_CRITICAL, H3_FRAME_UNEXPECTED, H3_FRAME, H3_ID = 0x103, 0x104, 0x105, 0x106, 0x108
H3_SETTINGS, H3_MISSING_SETTINGS, H3_MESSAGE = 0x109, 0x10A, 0x10E
QPACK_DECOMPRESSION, QPACK_ENCODER, QPACK_DECODER = 0x200, 0x201, 0x202

# Seconds until an answer counts as none.
PATIENCE = 20


class Client(QuicConnection):
    """A client that does one thing wrong."""

    def __init__(self, case):
        configuration = QuicConfiguration(is_client=True, server_name="localhost", verify_mode=0)
        configuration.alpn_protocols = None if case.get("no_alpn") else ["h3"]
        super().__init__(configuration=configuration)
        self.case = case
        self.is_sent = False

    def _initialize(self, peer_cid):
        super()._initialize(peer_cid)
        if self.case.get("no_parameters"):
            self.tls.handshake_extensions = []

    def _serialize_transport_parameters(self):
        parameters = super()._serialize_transport_parameters()
        change = self.case.get("parameters")
        return change(split_parameters(parameters)) if change else parameters

    def _write_handshake(self, builder, epoch, now):
        wrong = self.case.get("handshake")
        crypto = self._cryptos[epoch]
        if epoch == tls.Epoch.HANDSHAKE and wrong is not None and crypto.send.is_valid() and not self.is_sent:
            self.write(builder, QuicPacketType.HANDSHAKE, crypto, wrong)
        super()._write_handshake(builder, epoch, now)

    def _write_application(self, builder, network_path, now):
        wrong = self.case.get("frames")
        crypto = self._cryptos[tls.Epoch.ONE_RTT]
        if wrong is not None and self._handshake_complete and not self.is_sent:
            self.write(builder, QuicPacketType.ONE_RTT, crypto, wrong)
        super()._write_application(builder, network_path, now)

    def write(self, builder, kind, crypto, frames):
        """A packet of these frames."""
        self.is_sent = True
        rewritten, honest = self.case.get("rewritten"), crypto.encrypt_packet
        if rewritten:
            crypto.encrypt_packet = lambda *packet: honest(*rewritten(*packet))
        builder.start_packet(kind, crypto)
        builder._buffer.push_bytes(frames or b"\0")
        builder._packet.in_flight = builder._packet.is_ack_eliciting = True
        builder._end_packet()
        crypto.encrypt_packet = honest


def with_bits(bits):
    """Sets bits of a packet's first byte."""
    return lambda head, frames, number: (bytes([head[0] | bits]) + head[1:], frames, number)


def without_frames(head, _, number):
    """A packet without frames, whose number has four bytes, as header protection samples those behind."""
    return bytes([head[0] | 3]) + head[1:-2] + number.to_bytes(4), b"", number


def split_parameters(data):
    """Transport parameters: numbers and values."""
    buffer, all_of_them = Buffer(data=data), {}
    while not buffer.eof():
        number = buffer.pull_uint_var()
        all_of_them[number] = buffer.pull_bytes(buffer.pull_uint_var())
    return all_of_them


def parameters(change):
    """Transport parameters with some replaced, or without those that are None."""

    def changed(all_of_them):
        all_of_them = {**all_of_them, **change}
        kept = {number: value for number, value in all_of_them.items() if value is not None}
        return b"".join(
            encode_uint_var(number) + encode_uint_var(len(value)) + value for number, value in kept.items()
        )

    return changed


def run(port, case):
    """What the server answers: the error of the connection, of a stream, a status, or None."""
    address = ("127.0.0.1", port)
    quic = Client(case)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        quic.connect(address, time.monotonic())
        end, received, is_ready = time.monotonic() + PATIENCE, b"", False
        while time.monotonic() < end:
            for data, _ in quic.datagrams_to_send(time.monotonic()):
                udp.sendto(data, address)
            timer = quic.get_timer() or end
            udp.settimeout(max(0.001, min(timer, end) - time.monotonic()))
            try:
                data, _ = udp.recvfrom(65536)
                quic.receive_datagram(data, address, time.monotonic())
            except TimeoutError:
                quic.handle_timer(time.monotonic())
            while (event := quic.next_event()) is not None:
                if isinstance(event, events.ConnectionTerminated):
                    return event.error_code
                if isinstance(event, events.HandshakeCompleted) and not is_ready:
                    is_ready = True
                    for stream, data, is_last in case.get("streams", []):
                        quic.send_stream_data(stream, data, is_last)
                if isinstance(event, events.StreamReset | events.StopSendingReceived):
                    if event.stream_id == 0:
                        return event.error_code
                if isinstance(event, events.StreamDataReceived) and event.stream_id == 0:
                    received += event.data
                    if event.end_stream:
                        # Status 400 is number 67 of QPACK's static table, and may be written in full.
                        is_400 = b"\xff\x04" in received[:8] or b"400" in received[:16]
                        return 400 if is_400 else f"an answer: {received[:16].hex()}"
    return None


def frame(kind, payload=b""):
    return encode_uint_var(kind) + encode_uint_var(len(payload)) + payload


def literal(name, value):
    """A field line without references (RFC 9204, 4.5.6)."""
    name, value = name.encode(), value.encode()
    start = bytes([0x20 | len(name)]) if len(name) < 7 else bytes([0x27, len(name) - 7])
    return start + name + bytes([len(value)]) + value


def headers(*fields, raw=b""):
    return frame(1, b"\0\0" + b"".join(literal(*field) for field in fields) + raw)


DATA, HEADERS, CANCEL_PUSH, SETTINGS, PUSH_PROMISE, GOAWAY, MAX_PUSH_ID = 0, 1, 3, 4, 5, 7, 13
GET = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/")]
GOOD = headers(*GET)
CONTROL = b"\0" + frame(SETTINGS)


def control(*frames):
    """The client's control stream."""
    return {"streams": [(2, b"\0" + b"".join(frames), False)]}


def request(*frames):
    """A request after a control stream."""
    return {"streams": [(2, CONTROL, False), (0, b"".join(frames), True)]}


def message(*fields):
    return request(headers(*fields))


def varint(number):
    return encode_uint_var(number)


# Frames: reset of a stream, stop of one, data, and so on, by the server's own unidirectional stream 3, by
# its bidirectional stream 1, which there is not, and by the client's stream 2.
CASES = [
    # RFC 9000.
    ("a stream beyond the window", {"frames": b"\x0e\0" + varint((1 << 62) - 2) + b"\x01x"}, {FLOW_CONTROL, FRAME_ENCODING}),
    ("no initial_source_connection_id", {"parameters": parameters({0x0F: None})}, {TRANSPORT_PARAMETER, PROTOCOL}),
    ("original_destination_connection_id", {"parameters": parameters({0: b"12345678"})}, {TRANSPORT_PARAMETER}),
    ("preferred_address", {"parameters": parameters({0x0D: bytes(24) + b"\x04abcd" + bytes(16)})}, {TRANSPORT_PARAMETER}),
    ("retry_source_connection_id", {"parameters": parameters({0x10: b"12345678"})}, {TRANSPORT_PARAMETER}),
    ("stateless_reset_token", {"parameters": parameters({0x02: bytes(16)})}, {TRANSPORT_PARAMETER}),
    ("max_udp_payload_size below 1200", {"parameters": parameters({0x03: varint(1199)})}, {TRANSPORT_PARAMETER}),
    ("ack_delay_exponent above 20", {"parameters": parameters({0x0A: varint(21)})}, {TRANSPORT_PARAMETER}),
    ("max_ack_delay of 2^14", {"parameters": parameters({0x0B: varint(1 << 14)})}, {TRANSPORT_PARAMETER}),
    ("initial_max_streams_bidi above 2^60", {"parameters": parameters({0x08: varint((1 << 60) + 1)})}, {TRANSPORT_PARAMETER}),
    ("active_connection_id_limit below 2", {"parameters": parameters({0x0E: varint(1)})}, {TRANSPORT_PARAMETER}),
    ("a parameter cut short", {"parameters": lambda _: b"\x03\x04\x40"}, {TRANSPORT_PARAMETER}),
    ("an unknown frame", {"frames": b"\x21"}, {FRAME_ENCODING}),
    ("no frame", {"frames": b"", "rewritten": without_frames}, {PROTOCOL}),
    ("reserved bits, Handshake", {"handshake": b"\x01", "rewritten": with_bits(0x0C)}, {PROTOCOL}),
    ("reserved bits, short header", {"frames": b"\x01", "rewritten": with_bits(0x18)}, {PROTOCOL}),
    ("PATH_CHALLENGE in Handshake", {"handshake": b"\x1a" + bytes(8)}, {PROTOCOL}),
    ("STREAM in Handshake", {"handshake": b"\x0a\0\x01x"}, {PROTOCOL}),
    ("an ACK of what was not sent", {"frames": b"\x02" + varint(1 << 30) + b"\0\0\0"}, {PROTOCOL}),
    ("RESET_STREAM for what we only receive", {"frames": b"\x04\x03\0\0"}, {STREAM_STATE}),
    ("STOP_SENDING for what is not there", {"frames": b"\x05\x01\0"}, {STREAM_STATE}),
    ("STOP_SENDING for what we only send", {"frames": b"\x05\x02\0"}, {STREAM_STATE}),
    ("CRYPTO without end", {"frames": b"\x06" + varint(1 << 30) + b"\x01x"}, {0x0D, PROTOCOL, FRAME_ENCODING}),
    ("NEW_TOKEN", {"frames": b"\x07\x04abcd"}, {PROTOCOL}),
    ("STREAM for what is not there", {"frames": b"\x0a\x01\x01x"}, {STREAM_STATE}),
    ("STREAM for what we only receive", {"frames": b"\x0a\x03\x01x"}, {STREAM_STATE}),
    ("a stream beyond the number", {"frames": b"\x0a" + varint(4 << 20) + b"\x01x"}, {STREAM_LIMIT}),
    ("MAX_STREAM_DATA for what is not there", {"frames": b"\x11\x01\x01"}, {STREAM_STATE}),
    ("MAX_STREAM_DATA for what we only send", {"frames": b"\x11\x02\x01"}, {STREAM_STATE}),
    ("MAX_STREAMS above 2^60", {"frames": b"\x12" + varint((1 << 60) + 1)}, {FRAME_ENCODING}),
    ("STREAM_DATA_BLOCKED for what we only receive", {"frames": b"\x15\x03\x01"}, {STREAM_STATE}),
    ("STREAMS_BLOCKED above 2^60", {"frames": b"\x16" + varint((1 << 60) + 1)}, {FRAME_ENCODING, STREAM_LIMIT}),
    ("NEW_CONNECTION_ID that retires itself", {"frames": b"\x18\x01\x02\x04abcd" + bytes(16)}, {FRAME_ENCODING}),
    ("NEW_CONNECTION_ID without an identifier", {"frames": b"\x18\x01\0\0" + bytes(16)}, {FRAME_ENCODING}),
    ("RETIRE_CONNECTION_ID of what was not issued", {"frames": b"\x19" + varint(1 << 20)}, {PROTOCOL}),
    ("HANDSHAKE_DONE", {"frames": b"\x1e"}, {PROTOCOL}),
    ("a final size that changes", {"frames": b"\x0b\x04\x01x\x0b\x04\x02xy"}, {6}),
    # RFC 9001.
    ("KeyUpdate in Handshake", {"handshake": b"\x06\0\x05\x18\0\0\x01\0"}, {UNEXPECTED_MESSAGE}),
    ("KeyUpdate in 1-RTT", {"frames": b"\x06\0\x05\x18\0\0\x01\0"}, {UNEXPECTED_MESSAGE}),
    ("no ALPN", {"no_alpn": True}, {NO_APPLICATION_PROTOCOL}),
    ("no transport parameters", {"no_parameters": True}, {MISSING_EXTENSION}),
    ("EndOfEarlyData", {"handshake": b"\x06\0\x04\x05\0\0\0"}, {UNEXPECTED_MESSAGE}),
    # RFC 9114.
    ("no SETTINGS first", control(frame(MAX_PUSH_ID, b"\0")), {H3_MISSING_SETTINGS}),
    ("DATA on the control stream", control(frame(SETTINGS), frame(DATA, b"x")), {H3_FRAME_UNEXPECTED}),
    ("HEADERS on the control stream", control(frame(SETTINGS), GOOD), {H3_FRAME_UNEXPECTED}),
    ("PUSH_PROMISE on the control stream", control(frame(SETTINGS), frame(PUSH_PROMISE, b"\0")), {H3_FRAME_UNEXPECTED}),
    ("SETTINGS twice", control(frame(SETTINGS), frame(SETTINGS)), {H3_FRAME_UNEXPECTED}),
    ("a setting of HTTP/2", control(frame(SETTINGS, b"\x02\x01")), {H3_SETTINGS}),
    ("a setting twice", control(frame(SETTINGS, b"\x06\x01\x06\x02")), {H3_SETTINGS}),
    ("a setting cut short", control(frame(SETTINGS, b"\x06")), {H3_FRAME, H3_SETTINGS}),
    ("a frame of HTTP/2", control(frame(SETTINGS), frame(2, b"\0")), {H3_FRAME_UNEXPECTED}),
    ("MAX_PUSH_ID that falls", control(frame(SETTINGS), frame(MAX_PUSH_ID, b"\x05"), frame(MAX_PUSH_ID, b"\x01")), {H3_ID}),
    ("GOAWAY of an identifier that rises", control(frame(SETTINGS), frame(GOAWAY, b"\x04"), frame(GOAWAY, b"\x08")), {H3_ID}),
    ("MAX_PUSH_ID with more behind it", control(frame(SETTINGS), frame(MAX_PUSH_ID, b"\x05\x05")), {H3_FRAME}),
    ("the control stream ends", {"streams": [(2, CONTROL, True)]}, {H3_CLOSED_CRITICAL}),
    ("two control streams", {"streams": [(2, CONTROL, False), (6, CONTROL, False)]}, {H3_STREAM_CREATION}),
    ("a push stream", {"streams": [(2, CONTROL, False), (6, b"\x01\0", False)]}, {H3_STREAM_CREATION}),
    ("DATA before HEADERS", request(frame(DATA, b"x")), {H3_FRAME_UNEXPECTED}),
    ("CANCEL_PUSH in a request", request(GOOD, frame(CANCEL_PUSH, b"\0")), {H3_FRAME_UNEXPECTED}),
    ("SETTINGS in a request", request(GOOD, frame(SETTINGS)), {H3_FRAME_UNEXPECTED}),
    ("GOAWAY in a request", request(GOOD, frame(GOAWAY, b"\0")), {H3_FRAME_UNEXPECTED}),
    ("MAX_PUSH_ID in a request", request(GOOD, frame(MAX_PUSH_ID, b"\0")), {H3_FRAME_UNEXPECTED}),
    ("PUSH_PROMISE in a request", request(GOOD, frame(PUSH_PROMISE, b"\0")), {H3_FRAME_UNEXPECTED}),
    ("a frame of HTTP/2 in a request", request(GOOD, frame(6, b"\0")), {H3_FRAME_UNEXPECTED}),
    ("a frame cut short", request(b"\x01\x20\0\0"), {H3_FRAME}),
    ("a pseudo-field twice", message(*GET, (":method", "GET")), {H3_MESSAGE, 400}),
    ("no :path", message(*GET[:3]), {H3_MESSAGE, 400}),
    ("no :method", message(*GET[1:]), {H3_MESSAGE, 400}),
    ("a pseudo-field of answers", message(*GET, (":status", "200")), {H3_MESSAGE, 400}),
    ("an unknown pseudo-field", message(*GET, (":foo", "bar")), {H3_MESSAGE, 400}),
    ("a pseudo-field after a field", message(("a", "b"), *GET), {H3_MESSAGE, 400}),
    ("a name in upper case", message(*GET, ("Aa", "b")), {H3_MESSAGE, 400}),
    ("a field of the connection", message(*GET, ("connection", "close")), {H3_MESSAGE, 400}),
    ("te other than trailers", message(*GET, ("te", "gzip")), {H3_MESSAGE, 400}),
    ("an authority that differs", message(*GET, ("host", "other")), {H3_MESSAGE, 400}),
    ("less content than announced", request(headers(*GET, ("content-length", "5")), frame(DATA, b"abc")), {H3_MESSAGE, 400}),
    ("more content than announced", request(headers(*GET, ("content-length", "2")), frame(DATA, b"abc")), {H3_MESSAGE, 400}),
    ("a pseudo-field in trailers", request(GOOD, frame(DATA, b"x"), headers((":path", "/"))), {H3_MESSAGE, 400}),
    ("HEADERS after trailers", request(GOOD, headers(("a", "b")), headers(("a", "b"))), {H3_FRAME_UNEXPECTED}),
    # RFC 9204.
    ("a static name that is not there", request(headers(*GET, raw=b"\xff\x40")), {QPACK_DECOMPRESSION}),
    ("a dynamic name without a table", request(frame(HEADERS, b"\x02\0\x80")), {QPACK_DECOMPRESSION}),
    ("a table larger than allowed", {"streams": [(2, CONTROL, False), (6, b"\x02\x3f\xe1\xff\x03", False)]}, {QPACK_ENCODER}),
    ("the encoder stream ends", {"streams": [(2, CONTROL, False), (6, b"\x02", True)]}, {H3_CLOSED_CRITICAL}),
    ("the decoder stream ends", {"streams": [(2, CONTROL, False), (6, b"\x03", True)]}, {H3_CLOSED_CRITICAL}),
    ("two encoder streams", {"streams": [(2, CONTROL, False), (6, b"\x02", False), (10, b"\x02", False)]}, {H3_STREAM_CREATION}),
    ("an insert count of 0", {"streams": [(2, CONTROL, False), (6, b"\x03\0", False)]}, {QPACK_DECODER}),
    ("an acknowledgement of nothing", {"streams": [(2, CONTROL, False), (6, b"\x03\x84", False)]}, {QPACK_DECODER}),
]


def main(port):
    wrong = 0
    for name, case, expected in CASES:
        answer = run(port, case)
        if answer in expected:
            continue
        wrong += 1
        shown = hex(answer) if isinstance(answer, int) else answer
        print(f"{name}: {shown}, not {', '.join(map(hex, sorted(expected)))}", file=sys.stderr)
    print(len(CASES))
    sys.exit(1 if wrong else 0)


main(int(sys.argv[1]))
