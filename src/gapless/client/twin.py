"""Twins: what two classes have in common is explained once.

The blocking client has the methods of the other one. Its own explain themselves only where there is
something else to say; the rest get the words of their twins when the class is made, without async.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Class = TypeVar("Class", bound=type)


def explained_by(twin: type) -> Callable[[Class], Class]:
    """A decorator: each public member without a docstring gets that of its namesake in `twin`."""

    def explain(made: Class) -> Class:
        for name, member in vars(made).items():
            if not name.startswith("_") and not member.__doc__:
                member.__doc__ = getattr(twin, name).__doc__.replace("`async ", "`")
        return made

    return explain
