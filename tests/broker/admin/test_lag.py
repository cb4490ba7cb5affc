"""Lag is told truthfully: in the admin port's list, in metrics, in alerts and dashboard."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gapless import Gap
from gapless.cli.replay import read_gap
from gapless.node.subscriptions import lag
from tests.broker.admin.test_port import get
from tests.broker.stage import LINE, connected, make_broker, run, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gapless.broker.broker import Broker
    from gapless.client.client import Client
    from gapless.client.subscription import Subscription

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"


def figures(broker: Broker, name: str = "desk") -> dict[str, Any]:
    (found,) = broker.subscriptions([name])
    return found


async def publish(client: Client, count: int, topic: str = "t", body: bytes = b"x" * 100) -> None:
    async with client.publisher(topic, name=f"feed of {topic}") as publisher:
        for number in range(count):
            await publisher.send({"n": number}, body)
        await publisher.flush()


@asynccontextmanager
async def waiting(subscription: Subscription) -> AsyncIterator[None]:
    """With an application that asks for the next event, and so is done with those before."""
    task = asyncio.ensure_future(anext(subscription))
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_one_that_has_everything_has_nothing_pending_whether_it_is_away_or_not(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            async with client.subscribe("t", "n < 5", name="desk") as subscription:
                await publish(client, 50)
                for _ in range(5):
                    await anext(subscription)
                async with waiting(subscription):
                    await wait_until(lambda: figures(broker)["unacknowledged"] == 5)  # kept
                    await wait_until(lambda: figures(broker)["pending"] == 0)
                    live = figures(broker)
                assert (live["state"], live["pending_is"]) == ("live", "exact")
                await subscription.acknowledge()
            await wait_until(lambda: figures(broker)["state"] == "away")
            away = figures(broker)
            assert (away["pending"], away["pending_is"]) == (0, "exact")
            assert (away["pending_bytes"], away["oldest_pending_s"]) == (0, None)
            assert away["last_contact_s"] is not None

    run(main())


def test_one_that_is_8980_events_behind_says_so(tmp_path: Path) -> None:
    """Away; then with a client that takes nothing off its queue, which was called level once."""

    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            async with client.subscribe("t", "n >= 20", name="desk"):
                pass
            await publish(client, 9_000)
            await wait_until(lambda: figures(broker)["pending"] == 8_980)
            away = figures(broker)
            assert (away["state"], away["pending_is"]) == ("away", "exact")
            assert away["pending_bytes_is"] == "exact"
            assert away["pending_bytes"] > 8_980 * 100
            assert away["oldest_pending_s"] > 0
            async with connected(broker) as slow, slow.subscribe("t", "n >= 20", name="desk") as it:
                await wait_until(lambda: figures(broker)["state"] == "live")
                live = figures(broker)
                assert (live["pending"], live["pending_is"]) == (8_980, "exact")
                assert live["oldest_pending_s"] > 0
                for _ in range(8_980):
                    await anext(it)
                async with waiting(it):
                    await wait_until(lambda: figures(broker)["pending"] == 0)

    run(main())


@pytest.mark.parametrize("topic", ["t", "two"])
def test_the_oldest_is_the_oldest_that_is_pending_and_not_the_oldest_that_is_kept(
    tmp_path: Path, topic: str
) -> None:
    """A client that keeps its own token leaves much unacknowledged that it has consumed."""

    async def main() -> None:
        async with (
            make_broker(tmp_path) as broker,
            connected(broker) as client,
            connected(broker) as slow,
            slow.subscribe(topic, name="desk") as subscription,
        ):
            await publish(client, 600, topic)
            first: Any = await anext(subscription)
            for _ in range(599):
                await anext(subscription)
            async with waiting(subscription):
                await wait_until(lambda: figures(broker)["pending"] == 0)
            await asyncio.sleep(1.0)
            await publish(client, 5, topic)
            await wait_until(lambda: figures(broker)["unacknowledged"] == 605)
            found = figures(broker)
            kept_s = time.time() - first.published.timestamp()
            assert found["pending"] == 5
            assert 0 <= found["oldest_pending_s"] <= kept_s - 1.0

    run(main())


def test_a_client_that_left_with_its_own_token_makes_the_figure_a_bound(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            keepers: dict[str, Literal["client", "broker"]] = {"own": "client", "kept": "broker"}
            for name, tokens in keepers.items():
                async with client.subscribe("t", name=name, tokens=tokens) as subscription:
                    await client.publish("t", {"n": 1})
                    await anext(subscription)
            await wait_until(lambda: figures(broker, "own")["pending"] == 2)
            assert figures(broker, "own")["pending_is"] == "at most"
            assert figures(broker, "kept")["pending_is"] == "exact"

    run(main())


def test_a_chain_longer_than_a_look_may_walk_is_a_bound_until_looks_have_walked_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            async with client.subscribe("t", name="desk"):
                pass
            await publish(client, 3_000)
            monkeypatch.setattr(lag, "RECORDS_MAX", 1_000)
            first = figures(broker)
            assert first["pending_is"] == "at least"
            assert first["pending"] < 3_000
            await wait_until(lambda: figures(broker)["pending_is"] == "exact")
            assert figures(broker)["pending"] == 3_000

    run(main())


def test_a_client_that_reads_ranges_and_acknowledges_by_name_is_reading(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            async with client.subscribe("t", name="desk") as subscription:
                token = subscription.token
            await wait_until(lambda: figures(broker)["state"] == "away")
            await client.acknowledge("desk", token)
            found = figures(broker)
            assert found["state"] == "reading"
            assert found["last_contact_s"] < 60
            assert found["query"] == ""
            async with client.subscribe("t", name="desk"):
                assert figures(broker)["state"] == "live"
            await wait_until(lambda: figures(broker)["state"] == "away")
            await client.lease("desk", query="dashboard", run="one")
            await client.acknowledge("desk", token, run="one")
            assert (figures(broker)["state"], figures(broker)["query"]) == ("reading", "dashboard")

    run(main())


def test_a_gap_that_was_told_is_counted(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            await client.create_topic("short", retention_bytes=30_000)
            async with client.subscribe("short", name="desk"):
                pass
            for _ in range(20):
                await client.publish_many("short", [({}, b"x" * 1_000)] * 10)
            await wait_until(lambda: 0 < figures(broker)["pending"] < 100)
            async with client.subscribe("short", name="desk") as subscription:
                gap = await anext(subscription)
                assert isinstance(gap, Gap)
                assert figures(broker)["gaps"] == 1
                assert read_gap(figures(broker)["last_gap"], "short") == gap

    run(main())


def test_where_the_pubend_is_elsewhere_bytes_are_an_estimate(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            brokers = {
                name: await stack.enter_async_context(make_broker(tmp_path, LINE, name))
                for name in ("p", "r1", "r2", "s", "o")
            }
            feed = await stack.enter_async_context(connected(brokers["p"]))
            client = await stack.enter_async_context(connected(brokers["s"]))
            async with client.subscribe("t", "n >= 10", name="desk"):
                pass
            await publish(feed, 300)
            await wait_until(lambda: figures(brokers["s"])["pending"] == 290)
            found = figures(brokers["s"])
            assert (found["pending_is"], found["pending_bytes_is"]) == ("exact", "about")
            assert 290 * 100 < found["pending_bytes"] < 290 * 200

    run(main())


def test_a_rate_is_known_from_the_second_look_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with (
            make_broker(tmp_path) as broker,
            connected(broker) as client,
            client.subscribe("t", name="desk") as subscription,
        ):
            assert figures(broker)["rate"] is None
            monkeypatch.setattr("gapless.broker.admin.subscriptions.SAMPLE_US", 1)
            await client.publish("t", {})
            await anext(subscription)
            assert figures(broker)["rate"] > 0

    run(main())


# --- metrics, alerts, dashboard -------------------------------------------------------------------


def test_metrics_have_lag_and_no_more_series_than_they_may(tmp_path: Path) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path, admin="127.0.0.1:0", metrics_subscriptions_max=2)
        async with broker, connected(broker) as client:
            for name in ("z", "y", 'odd "name"', "x"):
                async with client.subscribe("t", name=name):
                    pass
            await publish(client, 7)
            await wait_until(lambda: figures(broker, "z")["pending"] == 7)
            text = (await get(broker, "/metrics"))[1]
        families = {each.name: each for each in text_string_to_metric_families(text)}
        lags = families["gapless_subscription_pending_events"].samples
        assert {each.labels["subscription"]: each.value for each in lags} == {"z": 7, "y": 7}
        assert 'gapless_subscription_pending_events{subscription="z",topic="t"} 7.0' in text
        assert 'gapless_subscription_exact{subscription="y",topic="t"} 1.0' in text
        assert 'subscription="x"' not in text, "those that were made first have series"
        assert "gapless_subscriptions_unlisted 2.0" in text
        assert 'gapless_pubend_published_total{pubend="t/0"} 7.0' in text

    run(main())


def queries() -> list[str]:
    board = json.loads((DEPLOY / "grafana" / "gapless.json").read_text(encoding="utf-8"))
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    found += [
        each["query"]["query"]
        for each in board["templating"]["list"]
        if isinstance(each["query"], dict)
    ]
    rules = (DEPLOY / "prometheus" / "alerts.yml").read_text(encoding="utf-8")
    return found + re.findall(r"expr: '(.*)'", rules)


def test_each_query_of_dashboard_and_alerts_names_metrics_that_a_broker_has(tmp_path: Path) -> None:
    async def main() -> str:
        broker = make_broker(tmp_path, admin="127.0.0.1:0")
        async with broker, connected(broker) as client:
            async with client.subscribe("t", name="desk"):
                pass
            return (await get(broker, "/metrics"))[1]

    text = run(main())
    exist = set(re.findall(r"^(\w+)[{ ]", text, flags=re.MULTILINE))
    secure = {"gapless_refused_logins_total"}  # without security there are no logins
    assert len(queries()) > 40
    for query in queries():
        named = set(re.findall(r"\b(?:gapless|process)_\w+", query))
        assert named <= exist | secure, query
        assert named or query.startswith("up"), query


def test_the_alerts_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "operations" / "metrics.md").read_text(encoding="utf-8")
    wanted = re.findall(r"^\| `(.+?)` \|", page.split("## All metrics")[0], flags=re.MULTILINE)
    rules = (DEPLOY / "prometheus" / "alerts.yml").read_text(encoding="utf-8")
    given = [each.replace('{job="gapless"}', "") for each in re.findall(r"expr: '(.*)'", rules)]
    assert given == wanted


def test_promtool_accepts_the_alerts() -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("there is no promtool on this machine")
    path = str(DEPLOY / "prometheus" / "alerts.yml")
    done = subprocess.run([tool, "check", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_metrics_of_a_broker(tmp_path: Path) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("there is no promtool on this machine")

    async def main() -> str:
        broker = make_broker(tmp_path, admin="127.0.0.1:0")
        async with broker, connected(broker) as client:
            async with client.subscribe("t", name="desk"):
                pass
            return (await get(broker, "/metrics"))[1]

    text = run(main())
    done = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, text=True)
    assert "error" not in done.stderr.lower(), done.stderr
