"""``requests`` and ``urllib3`` over the manager's connections."""

from __future__ import annotations

import ssl
from typing import Any, Mapping

import requests.adapters
import requests.utils
import urllib3
import urllib3.connection
import urllib3.connectionpool
import urllib3.exceptions

from . import _manager
from ._connection import Connection, Trust, connect, may_be_without, names_others

# Those of the manager where the program names none. Then nobody is waited for longer than it does by itself.
_TIMEOUT_S = 10.0
_LONGEST_S = 120.0
# Settings by which urllib3 trusts a server. Wishes with a trust take their place.
_TRUST = ("ca_cert_data", "ca_cert_dir", "ssl_context", "assert_fingerprint")
# Others that the manager does not follow as urllib3 does.
_NOT_THE_MANAGERS = (
    "assert_hostname",
    "key_password",
    "server_hostname",
    "source_address",
    "ssl_maximum_version",
    "ssl_minimum_version",
    "ssl_version",
)
# The values of `cert_reqs` by which urllib3 verifies nobody.
_UNVERIFIED = (ssl.CERT_NONE, "CERT_NONE", "NONE")
# Some releases of requests make it in advance for `verify=True`.
_USUAL_CONTEXT = getattr(requests.adapters, "_preloaded_ssl_context", None)


class Adapter(requests.adapters.HTTPAdapter):
    """``session.mount("https://", Adapter())``. ``wishes`` are keywords of :func:`rejoin.connect`."""

    def __init__(
        self, *, direct: bool = True, wishes: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        self._direct = direct
        self._wishes = dict(wishes or {})
        super().__init__(**more)

    def init_poolmanager(self, *arguments: Any, **keywords: Any) -> None:
        super().init_poolmanager(*arguments, **keywords)
        use(self.poolmanager, direct=self._direct, wishes=self._wishes)


def use(
    pools: urllib3.PoolManager, *, direct: bool = True, wishes: Mapping[str, Any] | None = None
) -> None:
    """Has a :class:`urllib3.PoolManager` take its TLS connections from the manager. Where that cannot
    serve, or does not know a setting of the pools, they are made directly if ``direct``, and if the wishes name
    no trust and no identity that would be lost by it."""

    class Chosen(_Connection):
        rejoin_direct = direct
        rejoin_wishes = dict(wishes or {})

    class Pool(urllib3.connectionpool.HTTPSConnectionPool):
        ConnectionCls = Chosen

    pools.pool_classes_by_scheme = {**pools.pool_classes_by_scheme, "https": Pool}


class _Connection(urllib3.connection.HTTPSConnection):
    rejoin_direct = True
    rejoin_wishes: Mapping[str, Any] = {}

    def connect(self) -> None:
        otherwise = "proxy" if self.proxy is not None else self._otherwise()
        is_unverified = self.cert_reqs in _UNVERIFIED
        direct = self.rejoin_direct and may_be_without(self.rejoin_wishes, not is_unverified)
        if otherwise and direct:
            super().connect()
            return
        try:
            if otherwise:
                remedy = "leave it out, or allow direct connections, with no trust and no identity in the wishes"
                raise _manager.Error("bad_request", f"{otherwise} is not for the manager", remedy)
            self.sock = self._rejoin()
        except _manager.Error as error:
            is_late = error.is_late and self._patience() is None and self._may_be_late()
            if not (direct and (error.allows_direct or is_late)):
                raise self._translated(error) from error
            super().connect()
            return
        self.sock.settimeout(self.timeout if isinstance(self.timeout, (int, float)) else None)
        self.is_verified = self._trust() != "none"

    def _may_be_late(self) -> bool:
        """Whether a direct connection may follow a slow one: it would know nothing of what only the wishes
        trust, and whoever is on the way can be slow."""
        return self.rejoin_direct and not {"trust", "identity"} & self.rejoin_wishes.keys()

    def _patience(self) -> float | None:
        """The program's own timeout, in seconds."""
        named = self.rejoin_wishes.get("timeout", self.timeout)
        return named if isinstance(named, (int, float)) else None

    def _otherwise(self) -> str | None:
        """A setting that the manager would not follow."""
        names: tuple[str, ...] = _NOT_THE_MANAGERS
        if "trust" not in self.rejoin_wishes:
            names = (*_TRUST, *names)
        for name in names:
            value = getattr(self, name, None)
            if value is not None and not (name == "ssl_context" and value is _USUAL_CONTEXT):
                return name
        is_told = "trust" in self.rejoin_wishes or self.ca_certs or getattr(self, "ssl_context", None)
        if not is_told and self._trust() == "system":
            # OpenSSL reads both, and its own folder besides a file: no bundle says what it trusts.
            return next(filter(names_others, ("SSL_CERT_FILE", "SSL_CERT_DIR")), None)
        return None

    def _rejoin(self) -> Connection:
        identity = None
        if self.cert_file:
            identity = (_text(self.cert_file), _text(self.key_file or self.cert_file))
        timeout = self._patience()
        if timeout is None:
            timeout = _TIMEOUT_S if self._may_be_late() else _LONGEST_S
        wishes = {
            "alpn": ["http/1.1"],
            "trust": self._trust(),
            "identity": identity,
            "timeout": timeout,
            **self.rejoin_wishes,
        }
        return connect(self.host.strip("[]"), self.port, **wishes)

    def _trust(self) -> Trust:
        if "trust" in self.rejoin_wishes:
            trust: Trust = self.rejoin_wishes["trust"]
            return trust
        if self.cert_reqs in _UNVERIFIED:
            return "none"
        if self.ca_certs and self.ca_certs != requests.utils.DEFAULT_CA_BUNDLE_PATH:
            return {"bundle": _text(self.ca_certs)}
        return "system"

    def _translated(self, error: _manager.Error) -> Exception:
        if error.kind.startswith("certificate_"):
            return ssl.SSLCertVerificationError(str(error))
        if error.kind == "timeout":
            return urllib3.exceptions.ConnectTimeoutError(self, str(error))
        return urllib3.exceptions.NewConnectionError(self, str(error))


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
