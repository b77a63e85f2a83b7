"""Fetches paths over one HTTP/3 connection, all at once.

usage: client.py AUTHORITY CACERT FOLDER PATH...

What comes for a path is written to FOLDER, in a file by the number of the path.
"""

import asyncio
import pathlib
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.http = H3Connection(self._quic)
        self.answers = {}

    def ask(self, authority, path):
        stream = self._quic.get_next_available_stream_id()
        fields = [(":method", "GET"), (":scheme", "https"), (":authority", authority), (":path", path)]
        fields = [(name.encode(), value.encode()) for name, value in fields]
        self.http.send_headers(stream, fields, end_stream=True)
        end = asyncio.get_running_loop().create_future()
        self.answers[stream] = [None, bytearray(), end]
        return self.answers[stream]

    def quic_event_received(self, event):
        for event in self.http.handle_event(event):
            answer = self.answers.get(getattr(event, "stream_id", None))
            if answer is None:
                continue
            if isinstance(event, HeadersReceived):
                answer[0] = answer[0] or dict(event.headers)[b":status"]
            elif isinstance(event, DataReceived):
                answer[1] += event.data
            if event.stream_ended and not answer[2].done():
                answer[2].set_result(None)


async def main(authority, cacert, folder, *paths):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN)
    configuration.load_verify_locations(cacert)
    host, port = authority.split(":")
    async with connect(
        host, int(port), configuration=configuration, create_protocol=Client
    ) as client:
        answers = [client.ask(authority, path) for path in paths]
        client.transmit()
        for number, (path, answer) in enumerate(zip(paths, answers)):
            await asyncio.wait_for(answer[2], 60)
            assert answer[0] == b"200", f"{path}: {answer[0]}"
            (pathlib.Path(folder) / str(number)).write_bytes(answer[1])


asyncio.run(main(*sys.argv[1:]))
