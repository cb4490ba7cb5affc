"""The console in a real browser: each view, each action, a broker that is killed under it.

Without Playwright or Chromium the tests of the pages are skipped; those of what pages ask for are
not. `GAPLESS_SCREENSHOTS=FOLDER` keeps a picture of each view.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from gapless import sync
from gapless.broker.addresses import read_addresses
from gapless.broker.admin.console import PAGES, asked_spans, page
from gapless.cli.replay import read_gap
from gapless.client.delivery import Gap
from gapless.client.event_loop import LoopThread
from gapless.core.ticks import Span
from gapless.testing.processes.brokers import Processes
from tests.broker.admin.test_port import ask_safely
from tests.broker.admin.visit import Visit
from tests.broker.castle import Castle
from tests.broker.stage import ONE, connected, make_broker, run
from tests.knowledge.notation import make_relay
from tests.knowledge.relay_steps import ask, tell

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.broker import Broker


class Served:
    """A broker process with an admin port, started from this thread, which the browser needs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread = LoopThread()
        self._brokers = Processes(ONE, folder=folder, has_admin=True)

    def __enter__(self) -> Served:
        self._thread.run(self._brokers.__aenter__())
        self.start()
        return self

    def start(self) -> None:
        self._thread.run(self._brokers.start("b"))
        told = read_addresses(self._folder / "b")
        self.url, self.admin = told["url"], told["admin"]

    def kill(self) -> None:
        self._brokers.kill("b")

    def __exit__(self, *_: object) -> None:
        self._thread.run(self._brokers.__aexit__())
        self._thread.close()


# --- what pages ask for ---------------------------------------------------------------------------


def fetch(broker: Broker, path: str, **options: Any) -> tuple[int, str, dict[str, str]]:
    request = Request(f"http://{broker.admin_address}{path}", **options)
    try:
        with urlopen(request) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except HTTPError as error:
        with error:
            return error.code, error.read().decode(), dict(error.headers)


async def get(broker: Broker, path: str, **options: Any) -> tuple[int, str, dict[str, str]]:
    return await asyncio.to_thread(lambda: fetch(broker, path, **options))


def test_a_browser_gets_the_console_and_others_a_list_of_paths(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, admin="127.0.0.1:0") as broker:
            status, text, headers = await get(broker, "/", headers={"Accept": "text/html"})
            assert (status, "<!doctype html>" in text) == (200, True)
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "Access-Control-Allow-Origin" not in headers
            assert "/metrics" in (await get(broker, "/"))[1]
            for name, kind in PAGES.items():
                status, text, headers = await get(broker, f"/console/{name}")
                assert (status, text) == (200, page(name))
                assert headers["content-type"].startswith(kind)
            for bad in ("port.py", "..%2fport.py", "index.html", ""):
                assert (await get(broker, f"/console/{bad}"))[0] == 404

    run(main())


def test_the_pages_load_nothing_from_elsewhere_and_have_no_code_inline() -> None:
    for name in ("index.html", *PAGES):
        text = page(name).replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text
        assert "https://" not in text
        assert "innerHTML" not in text, "what others chose is text, never markup"
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=", page("index.html"))


def test_only_the_page_may_publish(tmp_path: Path) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path, admin="127.0.0.1:0")
        async with broker, connected(broker) as client, client.subscribe("t") as subscription:
            session = json.loads((await get(broker, "/console/session"))[1])
            given = {"topic": "t", "attributes": {"n": 1}, "body": "hello"}
            for token, status in (("", 403), ("x", 403), (session["page_token"], 200)):
                found = await post(broker, given, token)
                assert found[0] == status, found
            event = await anext(subscription)
            assert (event.attributes, event.body) == ({"n": 1}, b"hello")  # type: ignore[union-attr]
            assert json.loads(found[1])["event"] == f"t/0:{event.tick}"  # type: ignore[union-attr]
            wrong: list[object] = [
                {}, [], {"topic": "t"}, {"topic": "t", "attributes": 5},
                {"topic": "nowhere", "attributes": {}}, {"topic": "t", "attributes": {"a": [1]}},
                {"topic": "t", "attributes": {"a": "x" * 100_000}},
            ]  # fmt: skip
            for bad in wrong:
                assert (await post(broker, bad, session["page_token"]))[0] in (400, 413)

    run(main())


async def post(broker: Broker, given: object, token: str) -> tuple[int, str, dict[str, str]]:
    headers = {"X-Gapless-Page": token} if token else {}
    body = json.dumps(given).encode()
    return await get(broker, "/console/publish", data=body, headers=headers, method="POST")


def test_with_security_pages_are_open_and_what_they_ask_for_is_not(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker(admin="127.0.0.1:0") as broker:
            for path in ("/", "/console/console.js"):
                assert await ask_safely(castle, broker, path, "") == 200
            for path in ("session", "figures", "tail?topic=t", "check?topic=t", "why", "publish"):
                assert await ask_safely(castle, broker, f"/console/{path}", "") == 401
            bearer = f"Bearer {castle.tokens['admin']}"
            assert await ask_safely(castle, broker, "/console/session", bearer) == 200

    run(main())


def test_the_picture_has_what_is_asked_for_and_not_answered() -> None:
    relay = make_relay("red", "blue")
    tell(relay, "[0,3)")
    ask(relay, "red", "[3,6)")
    ask(relay, "blue", "[5,9) [12,14)")
    assert asked_spans(relay, Span(4, 13)) == [(4, 9), (12, 13)]
    tell(relay, "[3,14)")
    assert asked_spans(relay, Span(4, 13)) == []


def test_a_condition_is_explained_and_tried_on_the_newest_events(tmp_path: Path) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path, admin="127.0.0.1:0")
        async with broker, connected(broker) as client, client.subscribe("two", name="keep"):
            await client.publish_many("two", [({"n": number}, b"") for number in range(30)])
            assert broker.console is not None
            found = await broker.console.check("two", "n < 10")
            assert (found["ok"], found["matching"], found["of"]) == (True, 10, 30)
            assert found["notes"] == []
            found = await broker.console.check("two", "x = 1 AND n = 1")
            assert found["notes"] == ["None of these events has an attribute 'x'."]
            found = await broker.console.check("two", "n = 1 AND n = 2")
            assert found["notes"] == ["No event can match this condition."]
            found = await broker.console.check("two", "n <")
            assert not found["ok"]
            assert "^" in found["caret"]
            assert (await broker.console.check("nowhere", ""))["of"] == 0

    run(main())


# --- pages ----------------------------------------------------------------------------------------


def test_each_view_shows_what_the_broker_has(tmp_path: Path, browser: Any) -> None:
    with Served(tmp_path) as broker, sync.connect(broker.url) as client:
        with client.subscribe("t", "n > 5 AND kind = 'x'", name="desk"):
            pass
        client.publish_many("t", [({"n": n, "kind": "x"}, b"") for n in range(20)])
        for scheme in ("light", "dark"):
            seen = Visit(browser, broker.admin, color_scheme=scheme)
            seen.text("#health", "ready at")
            seen.text("#network-picture", "b")
            seen.shot(f"network-{scheme}")
        seen.page.keyboard.press("3")
        seen.text("#subscription-rows", "desk.*away.*14")
        seen.text("#subscription-rows", "n > 5 AND kind = 'x'")
        seen.shot("subscriptions")
        seen.page.keyboard.press("2")
        seen.text("#topic-rows", "t.*durable")
        seen.page.keyboard.press("6")
        seen.text("#why-answer .events li", '"n":19')
        seen.page.keyboard.press("5")
        seen.text("#knowledge-figures", "Settled")
        seen.page.select_option("#knowledge-pubend", "t/0")
        known = "#knowledge-picture rect.S, #knowledge-picture rect.P"
        seen.page.locator(known).first.wait_for(state="attached")
        seen.shot("knowledge")
        assert seen.problems == []


def test_a_person_publishes_watches_and_asks_why(tmp_path: Path, browser: Any) -> None:
    with Served(tmp_path) as broker:
        with sync.connect(broker.url) as client, client.subscribe("t", "price > 90", name="desk"):
            pass
        seen = Visit(browser, broker.admin, "#tail")
        watch_a_condition(seen)
        seen.page.click("#tab-topics")
        seen.page.fill("#publish-attributes", '{"price": 50, "name": "<b>bold</b>"}')
        seen.page.click("#publish button")
        seen.text("#publish-answer", "Durable as t/0:.*why")
        seen.shot("publish")
        seen.page.fill("#publish-attributes", '{"price": }')
        seen.page.click("#publish button")
        seen.text("#publish-answer.bad-text", "no JSON")
        seen.page.click("#tab-tail")
        seen.text("#tail-events li", '"price":50')
        seen.text("#tail-events li", "<b>bold</b>")
        seen.text("#tail-count", "1 of 1 events matched")
        seen.shot("tail")
        seen.page.click("#tail-events li button")
        seen.text("#why-answer tr", "desk.*filtered.*price > 90 is FALSE: price is 50")
        seen.shot("why-all")
        seen.page.click("#why-answer tr button")
        seen.text("#why-answer .verdict", "filtered: .*price > 90 is FALSE: price is 50")
        seen.shot("why")
        seen.page.fill("#why-event", "")
        seen.page.fill("#why-where", "price = 51")
        seen.page.click("#why-form button")
        seen.text("#why-answer .bad-text", "no event that is kept")
        assert seen.problems == []


def watch_a_condition(seen: Visit) -> None:
    seen.text("#health", "ready at")
    seen.page.keyboard.press("/")
    seen.page.keyboard.type("price >")
    seen.text("#tail-check.bad", "found end of condition")
    seen.shot("tail-error")
    seen.page.keyboard.type(" 10")
    seen.text("#tail-check", "matches 0 of the newest 0 events")
    seen.page.keyboard.press("Enter")
    seen.text("#tail-count", "0 of 0 events")


def test_a_topic_leads_to_its_tail_and_a_button_keeps_its_focus_while_figures_come(
    tmp_path: Path, browser: Any
) -> None:
    """Rows are drawn anew each second: a person with a keyboard must not lose the place."""
    with Served(tmp_path) as broker, sync.connect(broker.url) as client:
        with client.subscribe("two", name="desk"):
            pass
        client.publish("two", {"n": 1})
        seen = Visit(browser, broker.admin, "#topics")
        held = seen.page.locator("#topic-rows button", has_text="two")
        held.focus()
        for count in (2, 3):
            client.publish("two", {"n": count})
            seen.text("#topic-rows tr", f"two.*{count}")
        focused = seen.page.evaluate("document.activeElement.textContent")
        assert focused == "two"
        seen.page.keyboard.press("Enter")
        seen.text("#tail-count", "0 of 0 events")
        client.publish("two", {"n": 4})
        seen.text("#tail-events li", '"n":4')
        assert seen.problems == []


def test_the_tail_shows_the_newest_that_match_before_anything_is_watched(
    tmp_path: Path, browser: Any
) -> None:
    with Served(tmp_path) as broker, sync.connect(broker.url) as client:
        with client.subscribe("t", name="keeper"):
            pass
        client.publish_many("t", [({"n": n}, b"") for n in range(30)])
        seen = Visit(browser, broker.admin, "#tail")
        seen.page.fill("#tail-where", "n < 25")
        seen.text("#tail-check", "matches 25 of the newest 30")
        seen.text("#tail-events li:first-child", '"n":24')
        assert seen.page.locator("#tail-events li").count() == 20
        seen.page.fill("#tail-where", "n <")
        seen.text("#tail-check.bad", "found end of condition")
        assert seen.page.is_disabled("#tail-button")
        assert seen.problems == []


def test_a_broker_that_is_killed_is_told_and_the_page_goes_on_when_it_is_back(
    tmp_path: Path, browser: Any
) -> None:
    """The page needs another token then, and gets it by itself."""
    with Served(tmp_path) as broker:
        size = {"width": 380, "height": 700}
        seen = Visit(browser, broker.admin, "#topics", viewport=size)
        seen.text("#health", "ready at")
        broker.kill()
        seen.text("#health", "no answer from the broker")
        seen.shot("killed")
        broker.start()
        seen.text("#health", "ready at")
        seen.page.click("#publish button")
        seen.text("#publish-answer", "Durable as t/0:")
        seen.shot("narrow")


def test_with_security_the_page_asks_for_a_token_and_keeps_it_for_its_tab(
    tmp_path: Path, browser: Any
) -> None:
    thread, castle = LoopThread(), Castle(tmp_path)
    broker = castle.broker(admin="127.0.0.1:0")
    thread.run(broker.__aenter__())
    try:
        seen = Visit(browser, f"https://{broker.admin_address}", ignore_https_errors=True)
        seen.text("#health", "a token is needed")
        for token, said in (("wrong", "not admitted"), (castle.tokens["desk"], ".")):
            seen.page.fill("#token", token)
            seen.page.click("#login button")
            seen.text("#login-problem", said)
        seen.shot("login")
        assert not seen.page.inner_text("#figures"), "nothing is shown to strangers"
        seen.page.fill("#token", castle.tokens["admin"])
        seen.page.keyboard.press("Enter")
        seen.text("#health.good", "ready at")
        seen.page.locator("#login").wait_for(state="hidden")
        seen.page.reload()
        seen.text("#health.good", "ready at")
        seen.page.click("#tab-topics")
        seen.page.click("#publish button")
        seen.text("#publish-answer", "Durable as")
        assert seen.problems == []
    finally:
        thread.run(broker.__aexit__(None, None, None))
        thread.close()


def test_a_gap_has_a_button_that_says_how_to_fill_it_from_a_lake(
    tmp_path: Path, browser: Any
) -> None:
    with Served(tmp_path) as broker, sync.connect(broker.url) as client:
        client.create_topic("short", retention_bytes=30_000)
        condition = "kind = 'it''s'"
        with client.subscribe("short", condition, name="desk"):
            pass
        for _ in range(20):
            client.publish_many("short", [({"kind": "it's"}, b"x" * 1_000)] * 10)
        pending = 200
        while pending >= 100:  # until retention has taken some of them
            with urlopen(f"http://{broker.admin}/subscriptions") as answer:
                pending = json.load(answer)[0]["pending"]
        with client.subscribe("short", condition, name="desk") as subscription:
            gap: Any = next(item for item in subscription if isinstance(item, Gap))
            seen = Visit(browser, broker.admin, "#subscriptions")
            seen.page.click("#subscription-rows button.small")
            seen.text("#gap-about", "desk was told: events published from 20.* UTC")
            seen.shot("gap")
            words = shlex.split(seen.page.inner_text("#gap-command"))
            assert words[:4] == ["gapless", "pipeline", "replay", "short"]
            assert words[4:9] == [condition, "--lake", "LAKE", "--url", broker.url]
            shown = read_gap(words[10], "short")
            assert (shown.pubend, shown.span.end >= gap.span.end) == (gap.pubend, True)
            seen.page.click("#gap-close")
            seen.page.locator("#gap").wait_for(state="hidden")
            assert seen.problems == []
