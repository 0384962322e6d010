"""A connection: a socket that carries plaintext here, and TLS from the manager on."""

import base64
import socket

from ._manager import PATIENCE_S, Error, ask

# What fits behind a request.
FIRST_BYTES = 16 * 1024


class Truncated(ConnectionError):
    """The connection ended, and the server did not say that this was all."""


class Session:
    """The manager's facts about a connection: the fields of docs/manager-protocol.md."""

    def __init__(self, said):
        self.connection = said["connection"]
        self.resumed = said["resumed"]
        self.why = said["why"]
        self.version = said["version"]
        self.cipher = said["cipher"]
        self.group = said.get("group")
        self.alpn = said.get("alpn")
        self.peer = said["peer"]
        self.session_of = said.get("session_of")
        self.early_data = said["early_data"]
        # Pairs of a fingerprint, and the certificate in DER, None if the program said that it knows it.
        self.chain = [(link["sha256"], _der(link)) for link in said["chain"]]

    def __repr__(self):
        return f"<rejoin.Session {self.version} {self.why} with {self.peer}>"


def _der(link):
    return base64.b64decode(link["der"]) if "der" in link else None


class Connection(socket.socket):
    """A socket to the server, through the manager. Made by :func:`connect`."""

    def __init__(self, connected, session, manager):
        super().__init__(fileno=connected.detach())
        self.session = session
        self._manager = manager
        self._is_over = False

    def recv(self, bufsize, flags=0):
        return self._checked(lambda: super(Connection, self).recv(bufsize, flags), bufsize, b"")

    def recv_into(self, buffer, nbytes=0, flags=0):
        room = nbytes or memoryview(buffer).nbytes
        return self._checked(
            lambda: super(Connection, self).recv_into(buffer, nbytes, flags), room, 0
        )

    def _checked(self, receive, room, nothing):
        try:
            received = receive()
        except ConnectionResetError:
            received = nothing
        if room and not received:
            self._end()
        return received

    def _end(self):
        if self._is_over:
            return
        try:
            request = {"end": {"connection": self.session.connection}}
            answer, asked, _ = ask(request, self._manager, PATIENCE_S)
            asked.close()
            end = answer.get("end")
        except Error as error:
            raise Truncated(f"the connection may have broken off: {error}") from error
        if end != "clean":
            raise Truncated("the connection broke off: the server did not say that this was all")
        self._is_over = True

    # The methods of an ssl.SSLSocket.

    def version(self):
        return self.session.version

    def cipher(self):
        return (self.session.cipher, self.session.version, None)

    def selected_alpn_protocol(self):
        return self.session.alpn

    @property
    def session_reused(self):
        return self.session.resumed

    def getpeercert(self, binary_form=False):
        if not binary_form:
            raise NotImplementedError("only getpeercert(binary_form=True)")
        return self.session.chain[0][1] if self.session.chain else None


def connect(
    host,
    port=443,
    *,
    alpn=(),
    trust="system",
    identity=None,
    share=True,
    label="",
    early_data=None,
    first=b"",
    timeout=10.0,
    known=(),
    min_version=None,
    addresses=(),
    sock=None,
    manager=None,
):
    """A TLS connection to ``host`` and ``port``, from the manager.

    ``trust`` is ``"system"``, ``{"bundle": PEM}``, ``{"pins": [...]}`` or ``"none"``; ``identity`` a pair
    of PEM texts, chain and key; ``timeout`` in seconds, for resolving, connecting and the handshake
    together; ``sock`` a connected TCP socket, which the manager takes over; ``manager`` the path of its
    socket; ``first`` the first bytes for the server, 16 KiB at most, which the manager sends as soon as the
    handshake has succeeded, or as 0-RTT data where its settings list them as safe to repeat. For the rest
    see docs/manager-protocol.md.
    """
    wishes = {"host": host, "port": port, "deadline_ms": min(max(int(timeout * 1000), 1), 120_000)}
    optional = {
        "alpn": list(alpn),
        "addresses": list(addresses),
        "known": list(known),
        "label": label,
        "min_version": min_version,
    }
    wishes.update((name, value) for name, value in optional.items() if value)
    if trust != "system":
        wishes["trust"] = trust
    if identity is not None:
        chain, key = identity
        wishes["identity"] = {"chain": chain, "key": key}
    if not share:
        wishes["share"] = False
    if first and (early_data or len(first) > FIRST_BYTES):
        raise ValueError(f"first: at most {FIRST_BYTES} bytes, and not together with early_data")
    if early_data:
        wishes["early_data"] = base64.b64encode(early_data).decode()
    if sock is not None:
        wishes["socket"] = True
    answer, connected, path = ask({"connect": wishes}, manager, timeout + PATIENCE_S, sock, first)
    if sock is not None:
        sock.close()
    return Connection(connected, Session(answer["connected"]), path)
