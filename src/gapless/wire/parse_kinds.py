"""The kinds of values, as `wire.parse` numbers them; apart, so that no one need load that."""

from __future__ import annotations

MISSING, BOOL, INT, FLOAT, TEXT = range(5)
