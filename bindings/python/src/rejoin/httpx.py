"""``httpx`` over the manager's connections."""

from __future__ import annotations

import functools
import os
import select
import socket
import ssl
from typing import Any, Callable, Mapping

import httpcore
import httpx

from . import _manager
from ._connection import Connection, Trust, connect, may_be_without, names_others

try:
    from httpcore import NetworkBackend, NetworkStream
except ImportError:
    # Before httpcore 0.17 they had no public name.
    from httpcore.backends.base import (  # type: ignore[import-not-found, no-redef]
        NetworkBackend,
        NetworkStream,
    )

# Those of the manager where the program names none. Then nobody is waited for longer than it does by itself.
_TIMEOUT_S = 10.0
_LONGEST_S = 120.0


class Transport(httpx.HTTPTransport):
    """``httpx.Client(transport=Transport())``. ``wishes`` are keywords of :func:`rejoin.connect`; TCP
    connections are made here, and passed to the manager. Where that cannot serve, or ``verify``, ``cert``
    or ``proxy`` are not for it, connections are httpx's own if ``direct``, and if the wishes name no trust and no identity
    that would be lost by it."""

    def __init__(
        self,
        *,
        direct: bool = True,
        wishes: Mapping[str, Any] | None = None,
        verify: Any = True,
        http2: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(verify=verify, http2=http2, **more)
        is_unverified = verify is False or getattr(verify, "verify_mode", None) == ssl.CERT_NONE
        direct = direct and may_be_without(wishes or {}, not is_unverified)
        # Whoever is on the way can be slow.
        may_be_late = direct and not {"trust", "identity"} & (wishes or {}).keys()
        wishes = {"alpn": ["h2", "http/1.1"] if http2 else ["http/1.1"], **(wishes or {})}
        otherwise = None
        if "trust" not in wishes:
            try:
                wishes["trust"] = _trust(verify, more.get("trust_env", True))
            except ValueError:
                otherwise = "verify"
        if more.get("proxy") is not None:
            # Its port would be taken for the server's, and a tunnel cannot be begun again.
            otherwise = "proxy"
        if more.get("cert") and "identity" not in wishes:
            otherwise = "cert"
        if otherwise:
            if not direct:
                remedy = "leave it out, or allow direct, with no trust and no identity in the wishes"
                raise ValueError(f"{otherwise} is not for the manager: {remedy}")
            return
        # httpx has no argument for it.
        backend = self._pool._network_backend
        self._pool._network_backend = _Backend(backend, (direct, may_be_late), wishes)


def _trust(verify: Any, of_environment: bool) -> Trust:
    """What ``verify`` trusts, as httpx reads it; a :class:`ValueError` if the manager cannot be told."""
    if verify is True and of_environment:
        variable = "SSL_CERT_FILE" if os.environ.get("SSL_CERT_FILE") else "SSL_CERT_DIR"
        if names_others(variable):
            verify = os.environ[variable]
    if isinstance(verify, bool):
        return "system" if verify else "none"
    if isinstance(verify, (str, os.PathLike)) and os.path.isfile(verify):
        with open(verify, encoding="utf-8") as file:
            return {"bundle": file.read()}
    raise ValueError("neither a file nor a yes or no")


class _Backend(NetworkBackend):
    def __init__(
        self, backend: NetworkBackend, direct: tuple[bool, bool], wishes: Mapping[str, Any]
    ) -> None:
        self._backend = backend
        self._direct = direct
        self._wishes = wishes

    def connect_tcp(self, host: str, port: int, *arguments: Any, **keywords: Any) -> NetworkStream:
        dial = functools.partial(self._backend.connect_tcp, host, port, *arguments, **keywords)
        return _Stream(dial, port, self._direct, self._wishes)

    def connect_unix_socket(self, *arguments: Any, **keywords: Any) -> NetworkStream:
        return self._backend.connect_unix_socket(*arguments, **keywords)

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class _Stream(NetworkStream):
    """A TCP connection that becomes one of the manager's when TLS is to start."""

    def __init__(
        self,
        dial: Callable[[], NetworkStream],
        port: int,
        direct: tuple[bool, bool],
        wishes: Mapping[str, Any],
    ) -> None:
        self._dial = dial
        self._stream = dial()
        self._port = port
        self._direct, self._may_be_late = direct
        self._wishes = wishes

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> NetworkStream:
        usual = _TIMEOUT_S if self._may_be_late else _LONGEST_S
        wishes = {"timeout": usual if timeout is None else timeout, **self._wishes}
        tcp = self._stream.get_extra_info("socket")
        try:
            return _Tls(connect(server_hostname or "", self._port, sock=tcp, **wishes))
        except _manager.Error as error:
            is_unlimited = timeout is None and "timeout" not in self._wishes
            is_late = self._may_be_late and error.is_late and is_unlimited
            if not (self._direct and (error.allows_direct or is_late)):
                self._stream.close()
                kind = httpcore.ConnectTimeout if error.kind == "timeout" else httpcore.ConnectError
                raise kind(str(error)) from error
            if not isinstance(error, _manager.NotRunning):
                # The manager had the socket: who knows what it did with it.
                self._stream.close()
                self._stream = self._dial()
        return self._stream.start_tls(ssl_context, server_hostname, timeout)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Tls(NetworkStream):
    """A connection of the manager's."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            self._connection.settimeout(timeout)
            return self._connection.recv(max_bytes)
        except socket.timeout as error:
            raise httpcore.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            self._connection.settimeout(timeout)
            self._connection.sendall(buffer)
        except socket.timeout as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        self._connection.close()

    def get_extra_info(self, info: str) -> Any:
        if info in ("ssl_object", "socket"):
            return self._connection
        if info == "is_readable":
            return bool(_poll(self._connection))
        return None


def _poll(connection: socket.socket) -> list[tuple[int, int]]:
    # select() knows descriptors below 1024 only.
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return poll.poll(0)
