"""Addresses of what a machine sends: a neighbouring cell, the broker that asked, or siblings.

A machine knows cells, not brokers: which live member of a cell gets a message is routing, and that
is the node's task. Only an answer goes to the broker that asked, because no other member of its
cell waits for it.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from gapless.core.identity import BrokerName, CellName

MessageT = TypeVar("MessageT", covariant=True)


class ToCell(msgspec.Struct, Generic[MessageT], frozen=True):
    """For whichever live member of a neighbouring cell routing picks."""

    cell: CellName
    message: MessageT


class ToBroker(msgspec.Struct, Generic[MessageT], frozen=True):
    """For the broker that asked, and no other."""

    broker: BrokerName
    message: MessageT


class ToSiblings(msgspec.Struct, Generic[MessageT], frozen=True):
    """For every other member of our own cell."""

    message: MessageT
