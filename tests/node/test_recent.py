"""What was not said again for longest is forgotten first."""

from __future__ import annotations

from gapless.node.recent import remember


def test_the_oldest_goes_and_what_is_said_again_is_new() -> None:
    some: dict[str, int] = {}
    for number, key in enumerate("abcad"):
        remember(some, key, number, 3)
    assert list(some.items()) == [("c", 2), ("a", 3), ("d", 4)]
