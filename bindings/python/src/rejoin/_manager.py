"""Messages to the manager, and its answers."""

from __future__ import annotations

import array
import json
import os
import pwd
import re
import socket
import stat
import struct
import time
from typing import Any, Mapping, Optional, Union

# A path of its socket; None means the places where it usually is.
Place = Optional[Union[str, "os.PathLike[str]"]]

VERSION = 1
_REQUEST_BYTES = 256 * 1024
_ANSWER_BYTES = 1024 * 1024
_SYSTEM_SOCKET = "/run/rejoin/manager.sock"
_CLIENT_SETTINGS = "/etc/rejoin/client.toml"
# Past a request's own deadline, and for those that have none, in seconds.
PATIENCE_S = 3.0


class Error(OSError):
    """The manager gave no connection. ``kind`` is a word of the protocol's list. ``early_data`` is
    ``"sent"`` if 0-RTT data had left: the server may have acted on it."""

    def __init__(
        self, kind: str, detail: str, remedy: str = "", early_data: str | None = None
    ) -> None:
        super().__init__(f"{detail}; {remedy}" if remedy else detail)
        self.kind = kind
        self.detail = detail
        self.remedy = remedy
        self.early_data = early_data

    @property
    def is_the_managers(self) -> bool:
        """True if the manager itself failed the program, so that a direct connection may succeed."""
        return self.kind in ("busy", "shutting_down", "unsupported_version", "not_permitted", "silent")

    @property
    def allows_direct(self) -> bool:
        """True if an adapter may connect directly instead. A request that is too large has long authorities."""
        return self.early_data is None and (self.is_the_managers or self.kind == "too_large")

    @property
    def is_late(self) -> bool:
        """True if the time was up, and the server has got nothing of the program's."""
        return self.early_data is None and self.kind == "timeout"


class NotRunning(Error):
    """Nobody listens where the manager should, or not to this user."""

    def __init__(self, path: str, cause: OSError) -> None:
        if isinstance(cause, PermissionError):
            detail = f"`rejoin manager` does not let this user in at {path}: {cause}"
            remedy = "ask for its group, or connect directly"
        else:
            detail = f"`rejoin manager` is not running: nobody listens at {path}: {cause}"
            remedy = "start it, or connect directly"
        super().__init__("not_running", detail, remedy)

    @property
    def is_the_managers(self) -> bool:
        return True


class Untrusted(NotRunning):
    """Another user listens where the manager should. Nothing was said to them."""

    def __init__(self, path: str, why: str) -> None:
        remedy = f"start one as this user or as root, name its user in {_CLIENT_SETTINGS}, or connect directly"
        Error.__init__(self, "not_running", f"the manager at {path} is not believed: {why}", remedy)


def stats(manager: Place = None) -> dict[str, Any]:
    """The manager's counts: a dictionary."""
    answer, connected, _ = ask({"stats": {}}, manager, PATIENCE_S)
    connected.close()
    counts: dict[str, Any] = answer["stats"]
    return counts


def ask(
    request: Mapping[str, Any],
    manager: Place,
    patience_s: float,
    passed: socket.socket | None = None,
    first: bytes = b"",
) -> tuple[dict[str, Any], socket.socket, str]:
    """The answer, the socket that it came over, and where that was. ``first`` follows the request."""
    message = json.dumps({"rejoin": VERSION, **request}).encode()
    if len(message) > _REQUEST_BYTES:
        raise Error("too_large", f"the request has {len(message)} bytes, more than {_REQUEST_BYTES}")
    until = time.monotonic() + patience_s
    connected, path = _reach(manager, until)
    try:
        answer = _exchange(connected, struct.pack(">I", len(message)) + message + first, passed, until)
    except Error:
        connected.close()
        raise
    except (OSError, ValueError) as error:
        connected.close()
        raise Error("silent", f"the manager does not answer: {error}") from error
    connected.settimeout(None)
    return answer, connected, path


def _places(manager: Place) -> list[str]:
    if manager is not None:
        return [os.fspath(manager)]
    own = os.environ.get("XDG_RUNTIME_DIR")
    return ([os.path.join(own, "rejoin.sock")] if own else []) + [_SYSTEM_SOCKET]


def _reach(manager: Place, until: float) -> tuple[socket.socket, str]:
    failed: list[Error] = []
    for path in _places(manager):
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.settimeout(_left(until))
        try:
            connected.connect(path)
            _check(connected, path)
            return connected, path
        except Untrusted as error:
            connected.close()
            failed.append(error)
        except OSError as error:
            connected.close()
            failed.append(NotRunning(path, error))
    raise failed[0]


def _check(connected: socket.socket, path: str) -> None:
    """Believes a manager of this user, of root, or of the user whom root names, in a folder of theirs."""
    _, peer, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    own = os.geteuid()
    if peer != 0 and (peer != own or peer == _overflow()) and (peer == _overflow() or peer != _named_user(path)):
        raise Untrusted(path, f"user {peer} listens there, and not this user or root")
    folder = os.stat(os.path.dirname(path) or ".")
    is_sticky = folder.st_mode & stat.S_ISVTX
    if folder.st_uid not in (0, own, peer) or (folder.st_mode & 0o022 and not is_sticky):
        raise Untrusted(path, "other users may write to its folder")


def _overflow() -> int:
    try:
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 65534


def _named_user(path: str) -> int | None:
    """The number of the user in the settings, which root alone may write."""
    try:
        with open(_CLIENT_SETTINGS, encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            said = re.fullmatch(r'(?:\s|#.*)*user\s*=\s*"([^"\n]+)"(?:\s|#.*)*', file.read())
    except FileNotFoundError:
        return None
    if found.st_uid != 0 or found.st_mode & 0o022:
        raise Untrusted(path, f"{_CLIENT_SETTINGS}: only root may own it and write to it")
    if said is None:
        raise Untrusted(path, f'{_CLIENT_SETTINGS}: write user = "NAME"')
    name = said.group(1)
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise Untrusted(path, f"{_CLIENT_SETTINGS}: there is no user {name}") from None


def _exchange(
    connected: socket.socket, message: bytes, passed: socket.socket | None, until: float
) -> dict[str, Any]:
    broke: OSError | None = None
    try:
        _send(connected, message, passed)
    except OSError as error:
        # A manager that refuses has perhaps said why.
        broke = error
    try:
        (length,) = struct.unpack(">I", _exactly(connected, 4, until))
        if length > _ANSWER_BYTES:
            raise ValueError(f"an answer of {length} bytes")
        answer: dict[str, Any] = json.loads(_exactly(connected, length, until))
    except OSError as error:
        raise (broke or error) from error
    if answer.get("rejoin") != VERSION:
        raise Error("unsupported_version", f"the manager speaks version {answer.get('rejoin')}")
    if "error" in answer:
        problem = answer["error"]
        early_data = problem.get("early_data")
        raise Error(problem["kind"], problem["detail"], problem["remedy"], early_data)
    return answer


def _send(connected: socket.socket, message: bytes, passed: socket.socket | None) -> None:
    rights: list[tuple[int, int, array.array[int]]] = []
    if passed is not None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [passed.fileno()]))]
    sent = connected.sendmsg([message], rights)
    connected.sendall(message[sent:])


def _exactly(connected: socket.socket, count: int, until: float) -> bytes:
    read = bytearray()
    while len(read) < count:
        connected.settimeout(_left(until))
        more = connected.recv(count - len(read))
        if not more:
            raise ConnectionError("it hung up")
        read += more
    return bytes(read)


def _left(until: float) -> float:
    return max(until - time.monotonic(), 0.001)
