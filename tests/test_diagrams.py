"""The generated parts of the protocol pages are up to date."""

from __future__ import annotations

import re

import pytest

from docs.build_diagrams import PAGE, PARTS, build


def test_the_page_is_what_the_code_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == build(text), "stale: run python -m docs.build_diagrams"
    assert sorted(re.findall(r"<!-- generated: (\w+) -->", text)) == sorted(PARTS)


@pytest.mark.parametrize("name", PARTS)
def test_a_changed_part_is_noticed(name: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    marker = f"<!-- generated: {name} -->\n"
    assert build(text.replace(marker, f"{marker}stale\n")) == build(text)


def test_the_lives_of_a_gap_and_of_a_publication_were_led_to_every_state() -> None:
    for state in ("NoGap", "Patient", "Asked"):
        assert f"--> {state}:" in PARTS["gap"]()
    for state in ("Waiting", "Writing", "Durable", "Refused", "Released"):
        assert f"--> {state}:" in PARTS["publication"]()
