"""An administrator lists the names that a topic remembers, and removes some, by a command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli.test_serve import gapless, serving

if TYPE_CHECKING:
    from pathlib import Path

EVENT = '{"a": 1}\n'


def test_a_publisher_is_listed_removed_and_makes_room_for_another(tmp_path: Path) -> None:
    with serving(tmp_path, "--topic", "trades", "--set", "publishers_max=1") as (url, _):

        def publish(name: str) -> str:
            options = ("--file", "-", "--name", name, "--url", url)
            return gapless("publish", "trades", *options, stdin=EVENT).stderr

        publish("one")
        assert "too many named publishers" in publish("two")
        [found] = json.loads(gapless("publishers", "trades", "--json", "--url", url).stdout)
        assert (found["name"], found["pubend"], found["number"]) == ("one", "trades/0", 1)
        shown = gapless("publishers", "trades", "--url", url).stdout
        assert shown.startswith("name=one  pubend=trades/0  number=1  owner=@127.0.0.1:")
        removed = gapless("publishers", "trades", "--remove", "one", "--url", url)
        assert removed.stdout == "one is removed\n"
        assert gapless("publishers", "trades", "--url", url).stderr == "there are no publishers\n"
        assert "too many" not in publish("two")
        for command in ("producers", "transactions"):
            listed = gapless(command, "trades", "--url", url)
            assert listed.stderr == f"there are no {command}\n"
        unknown = gapless("publishers", "quotes", "--url", url)
        assert (unknown.returncode, unknown.stdout) == (1, "")
        assert "there is no topic 'quotes'" in unknown.stderr
