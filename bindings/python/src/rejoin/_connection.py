"""A connection: a socket that carries plaintext here, and TLS from the manager on."""

from __future__ import annotations

import base64
import os
import socket
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Sequence, TypeVar, Union

from ._manager import PATIENCE_S, Error, Place, ask

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# ``"system"``, ``"none"``, ``{"bundle": PEM}`` or ``{"pins": [...]}``.
Trust = Union[str, Mapping[str, Union[str, Sequence[str]]]]
_Received = TypeVar("_Received", bytes, int)

# What fits behind a request.
FIRST_BYTES = 16 * 1024


class Truncated(ConnectionError):
    """The connection ended, and the server did not say that this was all."""


# Where systems keep the authorities that the manager trusts, too.
_SYSTEMS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
)


def may_be_without(wishes: Mapping[str, Any], verifies: bool) -> bool:
    """Whether a direct connection, which ``verifies`` or not, may take the place of the manager's. It would know
    nothing of an identity or a trust that only the wishes name."""
    trust = wishes.get("trust")
    return wishes.get("identity") is None and (trust in (None, "none") or (trust == "system" and verifies))


def names_others(variable: str) -> bool:
    """Whether this variable names authorities elsewhere than the system's."""
    named = os.environ.get(variable)
    return bool(named) and os.path.realpath(str(named)) not in [os.path.realpath(path) for path in _SYSTEMS]


class Session:
    """The manager's facts about a connection: the fields of docs/manager-protocol.md."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self.connection: str = said["connection"]
        self.resumed: bool = said["resumed"]
        self.why: str = said["why"]
        self.version: str = said["version"]
        self.cipher: str = said["cipher"]
        self.group: str | None = said.get("group")
        self.alpn: str | None = said.get("alpn")
        self.peer: str = said["peer"]
        self.session_of: str | None = said.get("session_of")
        self.early_data: str = said["early_data"]
        # Pairs of a fingerprint, and the certificate in DER, None if the program said that it knows it.
        self.chain: list[tuple[str, bytes | None]] = [
            (link["sha256"], _der(link)) for link in said["chain"]
        ]

    def __repr__(self) -> str:
        return f"<rejoin.Session {self.version} {self.why} with {self.peer}>"


def _der(link: Mapping[str, str]) -> bytes | None:
    return base64.b64decode(link["der"]) if "der" in link else None


class Connection(socket.socket):
    """A socket to the server, through the manager. Made by :func:`connect`."""

    def __init__(self, connected: socket.socket, session: Session, manager: str) -> None:
        super().__init__(fileno=connected.detach())
        self.session = session
        self._manager = manager
        self._is_over = False

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        return self._checked(lambda: super(Connection, self).recv(bufsize, flags), bufsize, b"")

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        room = nbytes or memoryview(buffer).nbytes
        return self._checked(
            lambda: super(Connection, self).recv_into(buffer, nbytes, flags), room, 0
        )

    def _checked(
        self, receive: Callable[[], _Received], room: int, nothing: _Received
    ) -> _Received:
        try:
            received = receive()
        except ConnectionResetError:
            received = nothing
        if room and not received:
            self._end()
        return received

    def dup(self) -> Connection:
        """The same connection once more. Each asks for itself how it ended."""
        again = Connection(socket.socket(fileno=os.dup(self.fileno())), self.session, self._manager)
        again.settimeout(self.gettimeout())
        again._is_over = self._is_over
        return again

    def _end(self) -> None:
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

    def version(self) -> str:
        return self.session.version

    def cipher(self) -> tuple[str, str, None]:
        return (self.session.cipher, self.session.version, None)

    def selected_alpn_protocol(self) -> str | None:
        return self.session.alpn

    @property
    def session_reused(self) -> bool:
        return self.session.resumed

    def getpeercert(self, binary_form: bool = False) -> bytes | None:
        if not binary_form:
            raise NotImplementedError("only getpeercert(binary_form=True)")
        return self.session.chain[0][1] if self.session.chain else None


def connect(
    host: str,
    port: int = 443,
    *,
    alpn: Iterable[str] = (),
    trust: Trust = "system",
    identity: tuple[str, str] | None = None,
    share: bool = True,
    label: str = "",
    early_data: bytes | None = None,
    first: bytes = b"",
    timeout: float = 10.0,
    known: Iterable[str] = (),
    min_version: str | None = None,
    addresses: Iterable[str] = (),
    sock: socket.socket | None = None,
    manager: Place = None,
) -> Connection:
    """A TLS connection to ``host`` and ``port``, from the manager.

    ``trust`` is ``"system"``, ``{"bundle": PEM}``, ``{"pins": [...]}`` or ``"none"``; ``identity`` a pair
    of PEM texts, chain and key; ``timeout`` in seconds, for resolving, connecting and the handshake
    together; ``sock`` a connected TCP socket, which the manager takes over; ``manager`` the path of its
    socket; ``first`` the first bytes for the server, 16 KiB at most, which the manager sends as soon as the
    handshake has succeeded, or as 0-RTT data where its settings list them as safe to repeat. For the rest
    see docs/manager-protocol.md.
    """
    wishes: dict[str, Any] = {"host": host, "port": port, "deadline_ms": min(max(int(timeout * 1000), 1), 120_000)}
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
