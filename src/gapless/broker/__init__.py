"""The broker process: one `Node` with sockets, a disk, a clock and an admin port around it.

`pump` drives the node; `links` and `link` are its connections, `dialler` sets up those to other
brokers, `disk` makes its writes durable, `clock` tells it the time. `broker` puts them together,
`process` makes a process of it with signals and logs. `security` says who may do what, `quotas` and
`memory` how much of it; `admin` shows the broker to people and monitoring.

`embedded` is a broker inside your own program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gapless.broker.broker import embedded

__all__ = ["embedded"]


def __getattr__(name: str) -> Any:
    """Loaded when it is first used: a command that parses an address needs no broker."""
    if name != "embedded":
        raise AttributeError(f"module 'gapless.broker' has no attribute {name!r}")
    from gapless.broker.broker import embedded

    return embedded
