"""The generated parts of pages are up to date, and the network file is shown whole."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from docs.build_diagrams import PAGES, PARTS, build
from gapless.core.errors import UsageError
from gapless.node.network import parse_network

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_what_the_code_says(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == build(text), "stale: run python -m docs.build_diagrams"
    parts = sorted(part.__name__ for part in PAGES[page])
    assert sorted(re.findall(r"<!-- generated: (\w+) -->", text)) == parts


@pytest.mark.parametrize("name", PARTS)
def test_a_changed_part_is_noticed(name: str) -> None:
    [text] = [page.read_text(encoding="utf-8") for page in PAGES if PARTS[name] in PAGES[page]]
    marker = f"<!-- generated: {name} -->\n"
    assert build(text.replace(marker, f"{marker}stale\n")) == build(text)


BOGUS = {
    "the file": "bogus = 1",
    "the network": "[network]\nbogus = 1",
    "a cell": "[[cell]]\nbogus = 1",
    "a broker": "[[cell]]\nname = 'c'\nbrokers = [{ bogus = 1 }]",
    "a topic": "[[cell]]\nname = 'c'\nbrokers = [{ name = 'b' }]\n[[topic]]\nbogus = 1",
}


@pytest.mark.parametrize("what", BOGUS)
def test_the_network_file_on_the_page_has_every_field_there_is(what: str) -> None:
    [page] = [each for each in PAGES if each.stem == "configuration"]
    [_, example] = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    parse_network(example)
    with pytest.raises(UsageError, match="it has ") as refused:
        parse_network(BOGUS[what])
    known = re.findall(r"'(\w+)'", str(refused.value).split("it has ")[1])
    assert known
    for name in known:
        assert re.search(rf"\b{name}\b", example), name


def test_the_lives_of_a_gap_and_of_a_publication_were_led_to_every_state() -> None:
    for state in ("NoGap", "Patient", "Asked"):
        assert f"--> {state}:" in PARTS["gap"]()
    for state in ("Waiting", "Writing", "Durable", "Refused", "Released"):
        assert f"--> {state}:" in PARTS["publication"]()
