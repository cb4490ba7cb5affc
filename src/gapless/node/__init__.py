"""One broker as one pure machine: composes the protocols, and does no input or output itself.

`gapless.node.Node` is that machine. It is imported when it is asked for: whoever wants a setting or
a network file alone need not load all of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gapless.node.node import Node

__all__ = ["Node"]


def __getattr__(name: str) -> Any:
    if name != "Node":
        raise AttributeError(f"module 'gapless.node' has no attribute {name!r}")
    return import_module("gapless.node.node").Node
