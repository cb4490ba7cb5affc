"""The admin port and the client say why an event came, or did not."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from gapless import sync
from gapless.broker.admin import inquiry
from gapless.client.errors import LinkError
from gapless.core.errors import FilterError, UsageError
from tests.broker.admin.test_port import get
from tests.broker.castle import Castle
from tests.broker.stage import LINE, connected, make_broker, run, wait_until
from tests.cli.test_serve import gapless as command
from tests.cli.test_serve import serving

if TYPE_CHECKING:
    from pathlib import Path


def test_a_client_asks_all_brokers_of_a_network(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            brokers = [
                await stack.enter_async_context(
                    make_broker(tmp_path, LINE, name, admin="127.0.0.1:0")
                )
                for name in ("p", "r1", "r2", "s", "o")
            ]
            admin = [str(each.admin_address) for each in brokers]
            feed = await stack.enter_async_context(connected(brokers[0]))
            client = await stack.enter_async_context(connected(brokers[3]))
            async with client.subscribe("t", "n > 5 AND kind = 'x'", name="desk"):
                pass
            missed = await feed.publish("t", {"n": 3, "kind": "x"})
            receipt = await feed.publish("t", {"n": 9, "kind": "x"})
            found = await client.why("t", "desk", missed, admin=admin)
            assert (found.verdict, found.attributes) == ("filtered", {"n": 3, "kind": "x"})
            assert "n > 5 is FALSE: n is 3" in found.reason
            taken = lambda: brokers[3].subscriptions()[0]["pending"] == 1  # noqa: E731
            await wait_until(taken)
            found = await client.why("t", "desk", f"{receipt.pubend}:{receipt.tick}", admin=admin)
            assert found.verdict == "waiting"
            assert found.steps[0].broker == "p"
            assert found.steps[-1].broker == "s"
            assert "logged it" in str(found)
            newest = await client.why("t", "desk", where="n > 5", admin=admin)
            assert newest.event == f"{receipt.pubend}:{receipt.tick}"
            nothing = await client.why("t", "desk", where="n > 500", admin=admin)
            assert nothing.verdict == "not published"

    run(main())


def test_a_client_that_asks_badly_is_told_so(tmp_path: Path) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path, admin="127.0.0.1:0")
        async with broker, connected(broker) as client:
            admin = [str(broker.admin_address)]
            with pytest.raises(UsageError, match="which event"):
                await client.why("t", "desk", admin=admin)
            with pytest.raises(UsageError, match="PUBEND:TICK"):
                await client.why("t", "desk", "5", admin=admin)
            with pytest.raises(FilterError, match="found end of condition"):
                await client.why("t", "desk", where="n >", admin=admin)
            with pytest.raises(LinkError, match="no admin port answers"):
                await client.why("t", "desk", "t/0:5", admin=["127.0.0.1:1"])
            assert (await get(broker, "/why?topic=t"))[0] == 400
            path = "/why?topic=t&pubend=t/0&subscription=x&tick="
            assert (await get(broker, f"{path}x"))[0] == 400
            assert (await get(broker, f"{path}{9**40}"))[0] == 400
            assert (await get(broker, "/find?topic=t&where=n+%3E"))[0] == 400
            assert (await get(broker, "/find?topic=nowhere"))[1] == "[]"

    run(main())


def test_a_search_names_the_newest_events_that_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inquiry, "FOUND_MAX", 3)

    async def main() -> None:
        broker = make_broker(tmp_path, admin="127.0.0.1:0")
        async with broker, connected(broker) as client, client.subscribe("two", name="keep"):
            for number in range(30):
                await client.publish("two", {"n": number})
            found = json.loads((await get(broker, "/find?topic=two&where=n+%3C+20"))[1])
            assert [each["attributes"]["n"] for each in found] == [19, 18, 17]

    run(main())


def test_an_owner_that_may_not_subscribe_any_more_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker(admin="127.0.0.1:0") as broker:
            async with (
                castle.client(broker, "desk") as desk,
                castle.client(broker, "feed") as feed,
            ):
                async with desk.subscribe("t", name="mine"):
                    pass
                receipt = await feed.publish("t", {})
            facts = broker.inquiry.way("t", receipt.pubend, receipt.tick, "mine")
            assert facts["subscription"]["may_subscribe"]
            async with castle.client(broker, "feed") as feed:
                with pytest.raises(UsageError, match="refuses"):
                    await feed.why("t", "mine", receipt, admin=[str(broker.admin_address)])
            async with castle.client(broker, "admin") as admin:
                found = await admin.why("t", "mine", receipt, admin=[str(broker.admin_address)])
                assert found.verdict == "waiting"

    run(main())


def test_the_command_explains_and_its_exit_code_says_whether_it_came(tmp_path: Path) -> None:
    with serving(tmp_path, "--topic", "t") as (url, _):
        with sync.connect(url) as client, client.subscribe("t", "n > 5", name="desk"):
            pass
        said = command("publish", "t", "n=3", "--url", url).stdout
        tick = said.split("tick ")[1].split()[0].rstrip(",.")
        data = ("--data", str(tmp_path))
        shown = command("why", "t", f"t/0:{tick}", "desk", *data)
        assert "filtered: The condition does not match: n > 5 is FALSE: n is 3." in shown.stdout
        assert shown.returncode == 1
        as_json = command("why", "t", "--where", "n = 3", "desk", "--json", *data)
        assert json.loads(as_json.stdout)["verdict"] == "filtered"
        assert command("why", "t", "desk", *data).returncode == 2
