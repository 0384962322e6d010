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
from ._connection import Connection, Trust, connect

_TIMEOUT_S = 10.0


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
    serve, they are made directly if ``direct``."""

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
        if self.proxy is not None:
            super().connect()
            return
        try:
            self.sock = self._rejoin()
        except _manager.Error as error:
            if not (self.rejoin_direct and error.is_the_managers):
                raise self._translated(error) from error
            super().connect()
            return
        self.sock.settimeout(self.timeout if isinstance(self.timeout, (int, float)) else None)
        self.is_verified = self._trust() != "none"

    def _rejoin(self) -> Connection:
        identity = None
        if self.cert_file:
            identity = (_text(self.cert_file), _text(self.key_file or self.cert_file))
        timeout = self.timeout if isinstance(self.timeout, (int, float)) else _TIMEOUT_S
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
        if self.assert_fingerprint:
            return {"pins": [self.assert_fingerprint.replace(":", "").lower()]}
        if self.cert_reqs in (ssl.CERT_NONE, "CERT_NONE", "NONE"):
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
