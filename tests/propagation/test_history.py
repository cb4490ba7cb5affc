"""A history: which vectors have the same roots, and when one is told after all."""

from __future__ import annotations

from tests.propagation.history import History


def test_a_vector_is_raised_to_the_last_that_has_the_same_roots() -> None:
    history = History(["a", "b"], 8)
    history.advance({"a": 1}, same_roots=False)
    history.advance({"a": 1, "b": 1}, same_roots=True)
    history.advance({"a": 2, "b": 1}, same_roots=True)
    last = {"a": 2, "b": 1}
    assert history.raised({"a": 1}) == last
    assert history.raised({"a": 1, "b": 1, "elsewhere": 9}) == last
    assert history.raised({"a": 2}) is None  # in between, but never where we were
    assert history.raised({}) == {"a": 0, "b": 0}
    history.check()


def test_what_was_on_its_way_when_roots_changed_is_raised_as_before() -> None:
    history = History(["a"], 8)
    history.advance({"a": 1}, same_roots=False)
    history.advance({"a": 2}, same_roots=True)
    history.advance({"a": 3}, same_roots=False)
    assert history.raised({"a": 1}) == {"a": 2}
    assert history.raised({"a": 3}) == {"a": 3}


def test_only_so_many_go_untold_and_only_so_many_are_remembered() -> None:
    history, due = History(["a"], 4), list[bool]()
    history.tell()
    for time in (1, 2, 3):
        history.advance({"a": time}, same_roots=True)
        due.append(history.must_tell)
    assert history.told == {"a": 0}
    assert history.raised(history.told) == {"a": 3}
    history.tell()
    due.append(history.must_tell)
    assert due == [False, False, True, False]
    assert history.told == {"a": 3}
    history.advance({"a": 4}, same_roots=True)
    assert len(history) == 4
    assert history.raised({}) is None
    history.check()


def test_a_vector_that_is_not_exact_stands_alone() -> None:
    history = History(["a"], 4)
    history.advance({"a": 1}, same_roots=True)
    history.forget({"a": 2})
    assert history.raised({"a": 1}) is None
    history.advance({"a": 3}, same_roots=True)
    assert history.raised({"a": 2}) == {"a": 3}
