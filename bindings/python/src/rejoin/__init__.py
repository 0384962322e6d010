"""TLS connections from the machine's TLS manager (docs/manager-protocol.md).

All programs of a user resume each other's TLS sessions, and none holds a session's secret.
"""

from ._connection import Connection, Session, Truncated, connect
from ._manager import Error, NotRunning, Untrusted, stats

__all__ = ["Connection", "Error", "NotRunning", "Session", "Truncated", "Untrusted", "connect", "stats"]
__version__ = "0.1.0"
