"""Every error says what is wrong and what to do next, also in another process."""

from __future__ import annotations

import pickle

import pytest

from gapless.core import errors
from gapless.core.errors import FilterError, GaplessError, StorageError, StorageFullError

ALL = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, GaplessError)
]


@pytest.mark.parametrize("kind", ALL)
def test_every_error_says_what_is_wrong_and_what_to_do_next(kind: type[GaplessError]) -> None:
    error = kind("the disk is gone")
    assert str(error) == f"the disk is gone. {kind.default_remedy}"
    assert str(kind("the disk is gone", "Buy another.")) == "the disk is gone. Buy another."
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_tree_in_the_docstring_names_every_class() -> None:
    assert errors.__doc__ is not None
    assert all(kind.__name__ in errors.__doc__ for kind in ALL)
    assert issubclass(StorageFullError, StorageError)


def test_a_filter_error_points_at_the_place() -> None:
    error = FilterError("expected a value", text="price > AND x", position=8)
    assert str(error).splitlines()[1:] == ["  price > AND x", "          ^"]
    assert "at character 9" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_long_condition_is_shown_around_the_place_only() -> None:
    text = "a = 1 OR " * 1000
    error = FilterError("no", text=text, position=4500)
    shown, caret = str(error).splitlines()[1:]
    assert len(shown) < 80
    assert shown[caret.index("^")] == text[4500]


def test_a_line_break_in_a_condition_does_not_move_the_caret() -> None:
    shown, caret = str(FilterError("no", text="a =\n\t?", position=5)).splitlines()[1:]
    assert shown[caret.index("^")] == "?"
