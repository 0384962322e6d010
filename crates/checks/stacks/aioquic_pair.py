"""Makes connections of aioquic, and tells for each what its client says: aioquic_pair.py CERTIFICATE KEY

Each connection is a line of JSON: the ports of its server and its client, and if it was resumed.
"""

import asyncio
import json
import sys

from aioquic.asyncio import connect, serve
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import HandshakeCompleted
from aioquic.quic.packet import QuicProtocolVersion

NAME = "a.example"
# Visits of a client: the first is full, because it begins with no session.
CLIENTS, VISITS = 4, 4


class Telling(QuicConnectionProtocol):
    resumed = None

    def quic_event_received(self, event):
        if isinstance(event, HandshakeCompleted):
            self.resumed = event.session_resumed
        super().quic_event_received(event)


def answer(reader, writer):
    async def echo():
        writer.write(await reader.read())
        writer.write_eof()

    asyncio.ensure_future(echo())


async def call(port, version, tickets):
    configuration = QuicConfiguration(is_client=True, server_name=NAME, verify_mode=0, alpn_protocols=["x"])
    configuration.original_version = version
    configuration.supported_versions = [version]
    configuration.session_ticket = tickets[-1] if tickets else None
    options = dict(configuration=configuration, create_protocol=Telling, session_ticket_handler=tickets.append)
    async with connect("127.0.0.1", port, **options) as client:
        reader, writer = await client.create_stream()
        writer.write(b"question")
        writer.write_eof()
        await reader.read()
        own = client._transport.get_extra_info("sockname")[1]
        print(json.dumps({"server": port, "client": own, "resumed": client.resumed}), flush=True)


async def visit(certificate, key, version, retry):
    sessions = {}
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["x"])
    configuration.load_cert_chain(certificate, key)
    server = await serve(
        "127.0.0.1",
        0,
        configuration=configuration,
        session_ticket_fetcher=sessions.get,
        session_ticket_handler=lambda ticket: sessions.__setitem__(ticket.ticket, ticket),
        retry=retry,
        stream_handler=answer,
    )
    port = server._transport.get_extra_info("sockname")[1]
    for _ in range(CLIENTS):
        tickets = []
        for _ in range(VISITS):
            await call(port, version, tickets)
    server.close()


async def main(certificate, key):
    for version in (QuicProtocolVersion.VERSION_1, QuicProtocolVersion.VERSION_2):
        for retry in (False, True):
            await visit(certificate, key, version, retry)


asyncio.run(main(*sys.argv[1:]))
