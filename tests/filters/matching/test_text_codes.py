"""Text codes: strings of a batch find their codes by their bytes, and only those they have."""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import workloads
from gapless.core.events import EventBatch
from gapless.filters.matcher import Matcher
from gapless.filters.matching import kernels, text_table
from gapless.filters.matching.text_codes import TextCodes
from gapless.wire.attribute_rows import AttributeRows
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    import random

    from gapless.filters.matching.plan import Point

TEXTS = st.one_of(
    st.text(alphabet="ab\0é", max_size=10),
    st.text(alphabet="a", max_size=40),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.lists(st.one_of(TEXTS, st.integers()), max_size=40), max_size=4),
    st.lists(TEXTS, max_size=20),
    st.sampled_from([pa.string(), pa.large_string()]),
    st.randoms(use_true_random=False),
)
def test_a_string_has_the_code_it_was_given_and_others_have_none(
    generations: list[list[Point]], others: list[str], kind: pa.DataType, dice: random.Random
) -> None:
    table = TextCodes()
    codes: dict[Point, float] = {}
    for points in generations:
        for point in points:
            codes.setdefault(point, 4.0 + len(codes))
        table.learn(codes)
        asked = [*others, *(point for point in codes if isinstance(point, str))]
        dice.shuffle(asked)
        column = pa.array(asked, kind)
        expected = [codes.get(text, 2.0) for text in asked]
        assert table.look_up(column).tolist() == expected
        assert table.look_up(column.slice(1)).tolist() == expected[1:]


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 17, 31])
def test_strings_that_differ_in_one_byte_differ(length: int) -> None:
    base = "x" * length
    others = [base[:place] + "y" + base[place + 1 :] for place in range(length)]
    table = TextCodes()
    table.learn({base: 4.0, "z" + base: 5.0})
    column = pa.array([base, *others, base[1:], base + "x"])
    assert table.look_up(column).tolist() == [4.0, *[2.0] * (length + 2)]


def signed(word: int) -> int:
    return (word + (1 << 63)) % (1 << 64) - (1 << 63)


def mixed(key: int) -> int:
    key = signed((key ^ (key >> 32)) * 0x1E3779B97F4A7C15)
    return key ^ (key >> 29)


@pytest.mark.parametrize("ending", [b"", b"the same"])
def test_strings_of_one_hash_are_told_apart_by_their_bytes(ending: bytes) -> None:
    size = 16 + len(ending)
    start = signed(size * 0x1E3779B97F4A7C15)
    texts = []
    for head in (1, 2):  # the second half undoes what the first half did to the hash
        tail = 77 ^ mixed(start ^ head)
        texts.append(struct.pack("<qq", head, tail) + ending)
    known, other = (np.frombuffer(text, np.uint8) for text in texts)
    assert text_table.hash_text(known, 0, size) == text_table.hash_text(other, 0, size)
    table, ends, codes = np.zeros(68, np.int64), np.array([0, size]), np.zeros(1)
    kernels.learn_texts(table, known, ends, np.array([9]))
    for data, expected in ((known, 9.0), (other, 2.0)):
        kernels.look_up_texts(table, known, data, ends, codes)
        assert codes.tolist() == [expected]


def test_a_lone_surrogate_equals_no_string_of_a_batch() -> None:
    table = TextCodes()
    table.learn({"\ud800": 4.0, "a": 5.0})
    assert table.look_up(pa.array(["a", "?", "\ufffd", None]))[:3].tolist() == [5.0, 2.0, 2.0]


def test_a_freed_code_is_found_by_its_new_string_only() -> None:
    matcher = Matcher[str]({"kept": "s = 'kept'"}, engine="compiled")
    batch = pa.record_batch({"s": ["old7", "new7", "kept", None, "never"]})
    for generation in ("old", "new", "old"):
        names = [f"{generation}{number}" for number in range(1_100)]
        for name in names:
            matcher.add(name, f"s = '{name}'")
        found = list(matcher.match_batch(batch))
        assert found == [(0 if generation == "old" else 1, f"{generation}7"), (2, "kept")]
        for name in names:
            matcher.remove(name)
        assert list(matcher.match_batch(batch)) == [(2, "kept")]


def test_a_copy_made_by_pickling_learns_anew() -> None:
    matcher = Matcher({1: "s = 'a'"}, engine="compiled")
    batch = pa.record_batch({"s": ["a", "b"]})
    assert list(matcher.match_batch(batch)) == [(0, 1)]
    twin = pickle.loads(pickle.dumps(matcher))
    twin.add(2, "s = 'b'")
    assert list(twin.match_batch(batch)) == [(0, 1), (1, 2)]


def test_a_batch_against_more_filters_than_are_near_finds_what_single_events_find() -> None:
    load = workloads.make("sparse", 9_000, event_count=300)
    matcher = Matcher(enumerate(load.conditions), engine="compiled")
    assert int(matcher.statistics()["bytes"]) > 1 << 20, "so that the memory is asked ahead"
    expected = [
        (index, key) for index, event in enumerate(load.events) for key in matcher.match(event)
    ]
    assert len(expected) > 20
    assert list(matcher.match_batch(pa.RecordBatch.from_pylist(load.events))) == expected


def colliding(count: int) -> list[str]:
    """Texts of 16 letters with one hash: the second half undoes what the first did to it."""
    found: list[str] = []
    start = signed(16 * 0x1E3779B97F4A7C15)
    dice = np.random.default_rng(1)
    with np.errstate(over="ignore"):
        while len(found) < count:
            heads = dice.integers(97, 123, (100_000, 8), np.uint8)
            keys = np.int64(start) ^ heads.view(np.int64)[:, 0]
            keys = (keys ^ (keys >> 32)) * np.int64(0x1E3779B97F4A7C15)
            tails = (np.int64(77) ^ keys ^ (keys >> 29)).view(np.uint8).reshape(-1, 8)
            fit = ((tails >= 40) & (tails < 127)).all(axis=1)
            pieces = np.concatenate([heads[fit], tails[fit]], axis=1)
            found += [bytes(piece).decode() for piece in pieces]
    return found[:count]


def test_texts_that_all_want_one_place_are_looked_up_otherwise() -> None:
    """Else a hostile subscriber makes every text be compared with all of his."""
    texts = colliding(2 * text_table.PROBES_MAX)
    table = TextCodes()
    assert table.learn({text: 4.0 + n for n, text in enumerate(texts[: text_table.PROBES_MAX])})
    assert not table.learn({text: 4.0 + n for n, text in enumerate(texts)})
    assert not table.learn({text: 4.0 + n for n, text in enumerate([*texts, "more"])})
    matcher = Matcher({text: f"s = '{text}'" for text in texts}, engine="compiled")
    asked = [*texts[::50], "other", texts[-1]]
    expected = [(row, text) for row, text in enumerate(asked) if text != "other"]
    assert list(matcher.match_batch(pa.record_batch({"s": asked}))) == expected
    located = AttributeRows(EventBatch.join(encode_event({"s": text}) for text in asked))
    assert matcher.match_batch(located) == expected
