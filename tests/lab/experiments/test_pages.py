"""Pages of experiments: written by experiments, of today's code unless they say otherwise."""

from __future__ import annotations

import pytest

from gapless_lab.experiments.fingerprint import PROTOCOLS, fingerprint, meaning
from gapless_lab.experiments.pages import DOCS, STALE, Page, is_current, mark
from gapless_lab.experiments.verdict import Verdict, summary

VERDICTS = [
    Verdict("figure 1", "it is fast", "5 | 6 s", "4 s", True),
    Verdict("figure 1", "it is small", "small", "large", False),
    Verdict("figure 2", "a disk takes 44 ms", "44 ms", "44 ms", None),
]


PAGES = sorted(path.stem for path in DOCS.glob("*.md"))


def page(name: str = "partitions") -> str:
    return Page(name, "gapless experiment partitions", VERDICTS, ["a note"], ["a.png"]).text()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_s_values_are_of_today_s_code_or_the_page_says_that_they_are_not(name: str) -> None:
    text = (DOCS / f"{name}.md").read_text()
    remedy = "play the experiment again with --page docs/experiments, or mark the page: "
    assert is_current(name, text), remedy + "python -m gapless_lab.experiments.pages"


@pytest.mark.parametrize("name", PAGES)
def test_every_figure_of_a_page_is_in_the_repository(name: str) -> None:
    text = (DOCS / f"{name}.md").read_text()
    figures = [line.partition("](")[2].rstrip(")") for line in text.splitlines() if "![" in line]
    assert figures
    assert all((DOCS / figure).stat().st_size > 5_000 for figure in figures)


def test_a_page_has_each_claim_with_both_values_and_the_verdict() -> None:
    text = page()
    assert "| figure 1 | it is fast | 5 / 6 s | 4 s | yes |" in text
    assert "| figure 1 | it is small | small | large | no |" in text
    assert "| figure 2 | a disk takes 44 ms | 44 ms | 44 ms | not judged |" in text
    assert "![a](a.png)" in text
    assert "- a note" in text
    assert summary(VERDICTS) in text


def test_what_is_not_judged_counts_neither_for_nor_against() -> None:
    assert summary(VERDICTS).startswith("1 of 2 claims hold. 1 are shown and not judged")


def test_a_page_of_other_code_must_say_so() -> None:
    text = page()
    assert is_current("partitions", text)
    other = text.replace(fingerprint("partitions"), "0" * 12)
    assert not is_current("partitions", other)
    marked = mark("partitions", other)
    assert STALE in marked
    assert is_current("partitions", marked)
    assert mark("partitions", marked) == marked
    again = marked.replace("0" * 12, fingerprint("partitions"))
    assert not is_current("partitions", again), "a mark that is no longer true"
    assert mark("partitions", again) == text


def test_prose_does_not_change_a_fingerprint_and_code_does() -> None:
    plain = "def f(x):\n    return x + 1\n"
    prose = '"""A module."""\n\n\ndef f(x):\n    """Returns more."""\n    return x + 1  # why\n'
    assert meaning(plain) == meaning(prose)
    assert meaning(plain) != meaning(plain.replace("1", "2"))


def test_experiments_speak_of_different_code() -> None:
    assert len({fingerprint(name) for name in PROTOCOLS}) == len(PROTOCOLS)


def test_every_page_is_of_an_experiment() -> None:
    assert PAGES
    assert set(PAGES) <= set(PROTOCOLS)
