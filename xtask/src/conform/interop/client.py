"""Downloads paths over HTTP/3 as a case of interoperability asks for it, with aioquic.

usage: client.py CASE AUTHORITY CACERT FOLDER PATH...

What comes for a path is written to FOLDER, in a file by the number of the path. Exits with 127 if the
library lacks the case.
"""

import asyncio
import pathlib
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import QuicProtocolVersion
from aioquic.tls import CipherSuite, Epoch

CASE, AUTHORITY, CACERT, FOLDER, *PATHS = sys.argv[1:]


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.http = None
        self.answers = {}

    def ask(self, path):
        self.http = self.http or H3Connection(self._quic)
        stream = self._quic.get_next_available_stream_id()
        fields = [(":method", "GET"), (":scheme", "https"), (":authority", AUTHORITY), (":path", path)]
        fields = [(name.encode(), value.encode()) for name, value in fields]
        self.http.send_headers(stream, fields, end_stream=True)
        end = asyncio.get_running_loop().create_future()
        self.answers[stream] = [None, bytearray(), end]
        return self.answers[stream]

    def quic_event_received(self, event):
        for event in self.http.handle_event(event) if self.http else []:
            answer = self.answers.get(getattr(event, "stream_id", None))
            if answer is None:
                continue
            if isinstance(event, HeadersReceived):
                answer[0] = answer[0] or dict(event.headers)[b":status"]
            elif isinstance(event, DataReceived):
                answer[1] += event.data
            if event.stream_ended and not answer[2].done():
                answer[2].set_result(None)


def configured():
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, idle_timeout=60)
    configuration.load_verify_locations(CACERT)
    if CASE == "chacha20":
        configuration.cipher_suites = [CipherSuite.CHACHA20_POLY1305_SHA256]
    if CASE == "v2":
        configuration.original_version = QuicProtocolVersion.VERSION_2
    return configuration


async def download(configuration, numbered, keep=None, early=False):
    host, port = AUTHORITY.split(":")
    async with connect(
        host,
        int(port),
        configuration=configuration,
        create_protocol=Client,
        session_ticket_handler=keep,
        wait_connected=not early,
    ) as client:
        phase = lambda: client._quic._cryptos[Epoch.ONE_RTT].key_phase
        if CASE == "keyupdate":
            await client.ping()
            client.request_key_update()
        answers = [(number, client.ask(path)) for number, path in numbered]
        client.transmit()
        for number, answer in answers:
            await asyncio.wait_for(answer[2], 100)
            assert answer[0] == b"200", f"path {number}: {answer[0]}"
            (pathlib.Path(FOLDER) / str(number)).write_bytes(answer[1])
        if CASE == "keyupdate":
            # It is confirmed by packets of the new phase: those of the answers.
            assert phase() == 1, "the keys are not updated"
        if configuration.session_ticket:
            assert client._quic.tls.session_resumed, "the session is not resumed"
        if early:
            assert client._quic.tls.early_data_accepted, "the server refused early data"


async def twice(early):
    tickets = []
    first, *others = enumerate(PATHS)
    await download(configured(), [first], tickets.append)
    assert tickets, "no ticket came"
    configuration = configured()
    configuration.session_ticket = tickets[-1]
    await download(configuration, others, early=early)


if CASE == "ecn":
    sys.exit(127)
if CASE in ("resumption", "zerortt"):
    asyncio.run(twice(CASE == "zerortt"))
else:
    asyncio.run(download(configured(), list(enumerate(PATHS))))
