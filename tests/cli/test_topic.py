"""`gapless topic`: what a user does about topics, against a broker that starts without any."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli.test_serve import gapless, serving

if TYPE_CHECKING:
    from pathlib import Path


def test_topics_are_created_listed_shown_and_deleted_and_survive_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as (url, _):
        assert "there are no topics" in gapless("topic", "list", "--url", url).stderr
        refused = gapless("publish", "trades", "price=1", "--url", url)
        assert refused.returncode == 1
        assert "Create it: gapless topic create trades" in refused.stderr
        created = gapless("topic", "create", "trades", "--pubends", "2", "--json", "--url", url)
        assert json.loads(created.stdout)["pubends"] == 2
        assert gapless("topic", "create", "trades", "--url", url).returncode == 1
        assert gapless("topic", "create", "gone", "--url", url).stdout == "topic gone is there\n"
        assert gapless("publish", "trades", "price=1", "--url", url).returncode == 0
        assert gapless("topic", "delete", "gone", "--yes", "--url", url).returncode == 0
        again = gapless("topic", "delete", "gone", "--yes", "--url", url)
        assert "there is no topic 'gone'" in again.stderr
        reliable = ("topic", "create", "x", "--service", "reliable", "--url", url)
        assert "the reliable service stores nothing" in gapless(*reliable, "--pubends", "2").stderr
        odd = gapless("topic", "create", "x", "--pubends", "3", "--host", "serve", "--url", url)
        assert (odd.returncode, odd.stdout) == (2, "")
        assert "--pubends 3 and 1 --host contradict each other" in odd.stderr
        assert "there is no topic 'x'" in gapless("topic", "show", "x", "--url", url).stderr
        above = gapless("topic", "create", "..", "--url", url)
        assert (above.returncode, "is no name for a topic" in above.stderr) == (1, True)
        unknown = gapless("topic", "create", "x", "--service", "best", "--url", url)
        assert "there is no service 'best'" in unknown.stderr
    with serving(tmp_path) as (url, _):
        listed = json.loads(gapless("topic", "list", "--json", "--url", url).stdout)
        assert [(each["name"], each["hosts"]) for each in listed] == [("trades", ["serve"] * 2)]
        plain = gapless("topic", "list", "--url", url).stdout
        assert "name=trades  service=durable  pubends=2" in plain
        shown = gapless("topic", "show", "trades", "--url", url).stdout
        assert "retention: all that is needed" in shown
        missing = gapless("topic", "show", "gone", "--url", url)
        assert "Create it: gapless topic create gone" in missing.stderr
        assert missing.returncode == 1
