"""Real QUIC connections of aioquic, both ends in memory, as a capture.

    quic.py CAPTURE CERTIFICATE KEY

Writes a pcap, and to standard output a line for each connection, which its client's port and its server's name
tell from others: whether the client says that it was resumed.
"""

import json
import random
import struct
import sys
import time

from aioquic.buffer import Buffer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import HandshakeCompleted
from aioquic.quic.packet import (
    QuicProtocolVersion,
    encode_quic_retry,
    encode_quic_version_negotiation,
    pull_quic_header,
)

V1, V2 = QuicProtocolVersion.VERSION_1, QuicProtocolVersion.VERSION_2
CLIENT, SERVER = ("10.0.0.1", 40000), ("192.0.2.1", 443)


class Capture:
    def __init__(self, path):
        self.file = open(path, "wb")
        self.file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
        self.time = 1_700_000_000.0

    def add(self, source, destination, payload):
        self.time += 0.001
        udp = struct.pack(">HHHH", source[1], destination[1], 8 + len(payload), 0) + payload
        address = lambda end: bytes(int(part) for part in end[0].split("."))
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0)
        packet = ip + address(source) + address(destination) + udp
        seconds = int(self.time)
        fraction = int((self.time - seconds) * 1e6)
        self.file.write(struct.pack("<IIII", seconds, fraction, len(packet), len(packet)) + packet)


class Pair:
    """A client and its server."""

    def __init__(self, world, name, port, versions=(V1,), ticket=None, server_versions=(V1, V2), retry=False):
        self.world, self.name, self.resumed = world, name, None
        self.client_end, self.retry = (CLIENT[0], port), retry
        configuration = QuicConfiguration(is_client=True, server_name=name, verify_mode=0, alpn_protocols=["x"])
        configuration.original_version, configuration.supported_versions = versions[0], list(versions)
        configuration.session_ticket = ticket
        self.tickets = []
        self.client = QuicConnection(configuration=configuration, session_ticket_handler=self.tickets.append)
        self.server_versions, self.server = list(server_versions), None
        self.client.connect(SERVER, now=time.time())

    def begin(self, datagram):
        """The server's first answer: itself, a Retry, or a Version Negotiation."""
        header = pull_quic_header(Buffer(data=datagram), host_cid_length=8)
        if header.version not in self.server_versions:
            return encode_quic_version_negotiation(
                source_cid=header.destination_cid,
                destination_cid=header.source_cid,
                supported_versions=self.server_versions,
            )
        original, retry_source = header.destination_cid, None
        if self.retry and not header.token:
            self.original, self.retry_source = header.destination_cid, random.randbytes(8)
            return encode_quic_retry(
                version=header.version,
                source_cid=self.retry_source,
                destination_cid=header.source_cid,
                original_destination_cid=header.destination_cid,
                retry_token=b"token",
            )
        if self.retry:
            original, retry_source = self.original, self.retry_source
        configuration = QuicConfiguration(is_client=False, alpn_protocols=["x"])
        configuration.load_cert_chain(*self.world.certificate)
        configuration.supported_versions = self.server_versions
        self.server = QuicConnection(
            configuration=configuration,
            original_destination_connection_id=original,
            retry_source_connection_id=retry_source,
            session_ticket_fetcher=self.world.sessions.get,
            session_ticket_handler=lambda ticket: self.world.sessions.__setitem__(ticket.ticket, ticket),
        )
        return None

    def step(self):
        """Lets each side send what it has. Returns true if it had anything."""
        now, sent = time.time(), False
        for datagram, _ in self.client.datagrams_to_send(now=now):
            sent = True
            self.world.capture.add(self.client_end, SERVER, datagram)
            answer = None if self.server else self.begin(datagram)
            if answer is not None:
                self.world.capture.add(SERVER, self.client_end, answer)
                self.client.receive_datagram(answer, SERVER, now=now)
            else:
                self.server.receive_datagram(datagram, self.client_end, now=now)
        for datagram, _ in self.server.datagrams_to_send(now=now) if self.server else []:
            sent = True
            self.world.capture.add(SERVER, self.client_end, datagram)
            self.client.receive_datagram(datagram, SERVER, now=now)
        while (event := self.client.next_event()) is not None:
            if isinstance(event, HandshakeCompleted):
                self.resumed = event.session_resumed
        while self.server and self.server.next_event() is not None:
            pass
        return sent

    def move(self, port):
        self.client_end = (self.client_end[0], port)


class World:
    def __init__(self, path, certificate):
        self.capture, self.certificate, self.sessions = Capture(path), certificate, {}
        self.port = CLIENT[1]

    def run(self, pairs, steps=30):
        for _ in range(steps):
            if not any([pair.step() for pair in pairs]):
                break
        for pair in pairs:
            assert pair.resumed is not None, pair.name
            print(json.dumps({"name": pair.name, "resumed": pair.resumed, "port": pair.begun_at}))
        return pairs

    def pair(self, name, same_port=False, **more):
        self.port += 0 if same_port else 1
        pair = Pair(self, name, self.port, **more)
        pair.begun_at = self.port
        return pair


def main(path, certificate, key):
    world = World(path, (certificate, key))
    first = world.run([world.pair("first.example")])[0]
    tickets = first.tickets
    world.run([world.pair("first.example", ticket=tickets[0])])
    # Nine on one socket, every other of which has a session.
    givers = world.run([world.pair(f"giver{number}.example") for number in range(4)])
    world.port += 1
    nine = []
    for number in range(9):
        giver = givers[number // 2] if number % 2 else None
        name = giver.name if giver else f"nine{number}.example"
        nine.append(world.pair(name, same_port=True, ticket=giver.tickets[0] if giver else None))
    world.run(nine)
    retried = world.run([world.pair("retry.example", retry=True)])[0]
    world.run([world.pair("retry.example", retry=True, ticket=retried.tickets[0])])
    # Version 2; a server that prefers it; and one that knows nothing else.
    two = world.run([world.pair("v2.example", versions=(V2,))])[0]
    world.run([world.pair("v2.example", versions=(V2,), ticket=two.tickets[0])])
    both = dict(versions=(V1, V2), server_versions=(V2, V1))
    chosen = world.run([world.pair("compatible.example", **both)])[0]
    world.run([world.pair("compatible.example", ticket=chosen.tickets[0], **both)])
    world.run([world.pair("refused.example", versions=(V1, V2), server_versions=(V2,))])
    # A client that moves between its flights.
    mover = world.pair("mover.example")
    mover.step()
    mover.move(50000)
    world.run([mover])


main(*sys.argv[1:])
