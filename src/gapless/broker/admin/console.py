"""The console's half in the broker: pages, the stream of figures, the tail, publishing, `why`.

Theory of operation
    The pages are files beside this module: plain modules, SVG and CSS, no assets from elsewhere.
    They hold no figures, so they need no token; everything that they ask for does, as at the rest
    of the admin port. Figures come as server-sent events that the page reads with `fetch`, so that
    it can show a token. A stream ends by itself after `STREAM_S`, and the page asks again.
    What changes state needs the page's token too (`X-Gapless-Page`): a page of another origin can
    neither read that token nor send the header.
    The console publishes as a client of its own inside the broker; its answers come back here
    instead of to a link (`LocalClient`).
    The tail reads what is new in the logs of the pubends that are here; of other pubends it shows
    what this broker has in its cache. A pubend is looked at only while somebody watches it.

Cost: one look at the figures each second, shared by all pages; nothing while no page is open.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from abc import ABC, abstractmethod
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

from gapless.broker.addresses import read_addresses
from gapless.broker.clock import read as now_us
from gapless.client.json_values import from_json, to_json
from gapless.client.why import explain, fetch_json, parse_event
from gapless.core.client_messages import Publish, Receipt, Refused
from gapless.core.errors import FilterError, GaplessError, UsageError
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, ClientName, PubendName, TopicName
from gapless.core.spans import SpanSet
from gapless.core.ticks import PUBEND_BITS, Span
from gapless.filters.filter import Filter
from gapless.node.reads.search import Selection
from gapless.version import __version__
from gapless.wire.events import decode_attributes, encode_event

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Coroutine,
        Iterator,
        Mapping,
        Sequence,
    )

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from gapless.broker.admin.inquiry import EventInquiry
    from gapless.broker.pump import Pump
    from gapless.broker.security.access import Access
    from gapless.broker.settings import Settings
    from gapless.core.messages import Message
    from gapless.knowledge.relay import Relay

PAGES = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "pictures.js": "text/javascript",
    "stream.js": "text/javascript",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
STREAM_S = 50.0
"""How long one stream lasts; the admin port would end it after 60 seconds."""

EVERY_S = 1.0
"""How often figures and the tail are sent."""

KNOWLEDGE_EVERY_S = 0.5
"""How often the picture of knowledge is sent."""

SHOWN_MAX = 200
"""Subscriptions on the page; the others are counted."""

TAIL_MAX = 100
"""Events that a tail sends at a time; the rest is counted."""

SAMPLE_MAX = 1_000
"""The newest events on which a condition is tried as it is typed."""

MATCHES_MAX = 20
"""The newest events that match a condition which is checked, to choose from."""

PICTURE_S, PICTURE_MAX_S = 5, 30
"""Seconds that the picture of knowledge spans: more while something older is not settled, or asked
for."""

RUNS_MAX = 400
"""Runs of ticks in the picture of knowledge."""

BODY_BYTES_MAX = 64 * 1024
ANSWER_S = 10.0


class LocalClient:
    """A client inside the broker: what the node sends to it comes here, not to a link."""

    name = ClientName("@console")

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self._requests = 0
        self._pending: dict[int, asyncio.Future[Message]] = {}

    def receive(self, message: Message) -> None:
        future = self._pending.pop(getattr(message, "request", -1), None)
        if future is not None and not future.done():
            future.set_result(message)

    async def publish(self, topic: str, attributes: Mapping[str, Any], body: bytes) -> str:
        """`PUBEND:TICK` of the event when it is durable; `UsageError` if it is refused."""
        batch = EventBatch((encode_event(attributes, body),))
        self._requests += 1
        request = self._requests
        future = asyncio.get_running_loop().create_future()
        self._pending[request] = future
        self._pump.link_up(self.name, who=self.name)
        self._pump.receive(self.name, Publish(TopicName(topic), request, batch))
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await future
        except TimeoutError:
            raise UsageError("the broker does not answer", "See its log.") from None
        finally:
            self._pending.pop(request, None)
        if isinstance(answer, Receipt):
            return f"{answer.pubend}:{answer.ticks[0]}"
        assert isinstance(answer, Refused)
        raise UsageError(answer.problem, answer.remedy)


class PageSession(ABC):
    """What a page must show to change something: a secret of one start of one console."""

    def __init__(self) -> None:
        self._page_token = secrets.token_urlsafe(24)

    def session(self) -> dict[str, Any]:
        return {"page_token": self._page_token, "version": __version__}

    def is_of_page(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._page_token.encode())

    @property
    def is_ready(self) -> bool:
        return True

    @abstractmethod
    def state(self) -> str:
        """All figures of the page as JSON."""


class Shown(Protocol):
    """The broker, as the console sees it."""

    name: BrokerName
    is_ready: bool
    settings: Settings
    access: Access | None
    inquiry: EventInquiry

    def statistics(self) -> dict[str, Any]: ...
    def subscription_names(self) -> list[str]: ...
    def subscriptions(self, names: Sequence[str]) -> list[dict[str, Any]]: ...


class Console(PageSession):
    """What the pages of one broker ask for."""

    def __init__(self, broker: Shown, pump: Pump) -> None:
        super().__init__()
        self._broker = broker
        self._node = pump.node
        self._state: tuple[float, str] = (0.0, "")
        self.client = LocalClient(pump)

    # --- figures ----------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        return self._broker.is_ready

    def state(self) -> str:
        """All figures of the page as JSON, at most `EVERY_S` old."""
        now_s = asyncio.get_running_loop().time()
        made_s, text = self._state
        if not text or now_s - made_s > EVERY_S / 2:
            text = json.dumps(self._figures())
            self._state = now_s, text
        return text

    def _figures(self) -> dict[str, Any]:
        figures = self._broker.statistics()
        links, disk = figures["links"], figures["disk"]
        names = self._broker.subscription_names()
        return {
            "at_s": now_us() / 1e6,
            "broker": figures["broker"],
            "cell": figures["cell"],
            "ready": figures["ready"],
            "url": f"{'gapless+tls' if self._broker.access else 'gapless'}://{figures['address']}",
            "address": figures["address"],
            "uptime_s": figures["uptime_s"],
            "published": figures["published"],
            "delivered": figures["delivered"],
            "clients": figures["clients"],
            "subscription_count": figures["subscriptions"],
            "disk_bytes": disk["bytes_on_disk"],
            "sync_ms": disk["sync_us"] / max(1, disk["syncs"]) / 1e3,
            "cells": self._cells(set(links["brokers_up"])),
            "topics": self._topics(),
            "pubends": figures["pubends"],
            "subscriptions": self._broker.subscriptions(names[:SHOWN_MAX]),
            "subscriptions_unlisted": max(0, len(names) - SHOWN_MAX),
        }

    def _cells(self, up: set[str]) -> list[dict[str, Any]]:
        network, here = self._node.durable.network, self._broker.name
        near = self._node.durable.routing.peers

        def health(name: str) -> str:
            if name == here:
                return "here"
            return "up" if name in up else "down" if name in near else "far"

        def admin(name: str) -> str | None:
            """Where its admin port is, if its data lies beside ours."""
            return read_addresses(self._broker.settings.data / name).get("admin")

        return [
            {
                "name": cell.name,
                "links": sorted(cell.links),
                "subscribers": cell.subscribers,
                "brokers": [
                    {"name": each.name, "health": health(each.name), "admin": admin(each.name)}
                    for each in cell.brokers
                ],
            }
            for cell in network.cells
        ]

    def _topics(self) -> list[dict[str, Any]]:
        return [
            {
                "name": topic.name,
                "service": topic.service,
                "pubends": [{"name": each.name, "host": each.host} for each in topic.pubends],
            }
            for topic in self._node.durable.network.topic.values()
        ]

    # --- knowledge --------------------------------------------------------------------------------

    def knowledge(self, pubend: str) -> dict[str, Any] | None:
        """What this broker knows of the newest ticks of a pubend; None if it is not known."""
        durable = self._node.durable
        relay = durable.streams.relays.get(PubendName(pubend))
        if relay is None:
            return None
        end = max(relay.stream.end, now_us() << PUBEND_BITS)
        longest = Span(end - (PICTURE_MAX_S * 1_000_000 << PUBEND_BITS), end)
        subend = durable.streams.subends.get(PubendName(pubend))
        hosted = durable.streams.pubends.get(PubendName(pubend))
        open_ticks = [each for each, _ in asked_spans(relay, longest)[:1]]
        open_ticks += [subend.horizon] if subend is not None else []
        usual = end - (PICTURE_S * 1_000_000 << PUBEND_BITS)
        start = max(longest.start, min([usual, *open_ticks]))
        cells, shown = durable.network.cell, Span(start, end)
        return {
            "broker": self._broker.name,
            "pubend": pubend,
            "start": start,
            "end": end,
            "horizon": subend.horizon if subend is not None else None,
            "released": max(relay.lost_below, hosted.released if hosted is not None else 0),
            "acknowledged": relay.acked,
            "asking": relay.questions.tick_count,
            "asked": asked_spans(relay, shown),
            "nacks": relay.nacks_sent,
            "runs": list(knowledge_runs(relay, shown)),
            "below": {
                cell: {
                    "settled": outlet.settled,
                    "silent": [
                        [each.start, each.end] for each in outlet.silent_spans.within(shown)
                    ][-RUNS_MAX:],
                }
                for cell, outlet in relay.outlets.items()
                if cell in cells
            },
        }

    # --- conditions and the tail ------------------------------------------------------------------

    async def check(self, topic: str, where: str) -> dict[str, Any]:
        """Whether a condition is one; if so, how many of the newest events of the topic match."""
        try:
            wanted = Selection(where)
        except FilterError as error:
            return {"ok": False, "problem": error.problem, "caret": error.caret()}
        notes = [] if wanted.filter.conjunctions else ["No event can match this condition."]
        newest = await self._broker.inquiry.newest(topic, SAMPLE_MAX)
        matching = [each for each in newest if wanted.filter.matches(each["attributes"])]
        seen = {name for each in newest for name in each["attributes"]}
        if newest:
            missing = sorted(wanted.filter.attributes - seen)
            notes += [f"None of these events has an attribute {name!r}." for name in missing]
        return {
            "ok": True,
            "text": str(wanted.filter) if where.strip() else "everything",
            "matching": len(matching),
            "of": len(newest),
            "notes": notes,
            "newest": [
                {**each, "attributes": to_json(each["attributes"])}
                for each in matching[: -MATCHES_MAX - 1 : -1]
            ],
        }

    def tail(self, topic: str, where: str, *, hosted: bool = False) -> Callable[[], dict[str, Any]]:
        """A function that returns what has come since its last call; `FilterError` at once. With
        `hosted`, of the pubends that are here alone."""
        condition = Filter.parse(where)
        durable = self._node.durable
        entry = durable.network.topic.get(TopicName(topic))
        names = [each.name for each in entry.pubends] if entry is not None else []
        names = [name for name in names if not hosted or name in durable.streams.pubends]
        at = {name: durable.streams.relays[name].stream.end for name in names}

        def look() -> dict[str, Any]:
            found, seen = list[dict[str, Any]](), 0
            for name in names:
                relay = durable.streams.relays.get(name)
                if relay is None or relay.stream.end <= at[name]:
                    continue
                span = Span(at[name], relay.stream.end)
                at[name] = span.end
                ticks, events = self._broker.inquiry.events_in(name, span, relay)
                seen += len(ticks)
                attributes = decode_attributes(EventBatch(tuple(events)))
                found += [
                    {"event": f"{name}:{tick}", "tick": tick, "attributes": to_json(each)}
                    for tick, each in zip(ticks, attributes, strict=True)
                    if condition.matches(each)
                ]
            found.sort(key=lambda one: int(one["tick"]))
            return {"events": found[-TAIL_MAX:], "matching": len(found), "seen": seen}

        return look

    # --- why --------------------------------------------------------------------------------------

    async def why(
        self, topic: str, name: str, event: str, where: str, authorization: str
    ) -> dict[str, Any]:
        """The explanation, from this broker and from those whose admin ports it knows."""
        if not event:
            matching = await self._broker.inquiry.find(topic, where)
            if not matching:
                raise UsageError("no event that is kept at this broker matches")
            event = matching[0]["event"]
        pubend, tick = parse_event(event)
        answers: dict[str, Any] = {
            self._broker.name: self._broker.inquiry.way(topic, pubend, tick, name)
        }
        answers |= await self._ask_others(topic, pubend, tick, name, authorization)
        return explain(answers, topic, pubend, tick, name).to_json()

    async def _ask_others(
        self, topic: str, pubend: str, tick: int, name: str, authorization: str
    ) -> dict[str, Any]:
        from urllib.parse import urlencode

        context = None
        if (access := self._broker.access) is not None:
            import ssl

            context = ssl.create_default_context(cafile=str(access.security.authority))
        query = urlencode({"topic": topic, "pubend": pubend, "tick": tick, "subscription": name})
        others = [each for each in self._node.durable.network.cell_of if each != self._broker.name]

        async def ask(other: str) -> Any | None:
            told = read_addresses(self._broker.settings.data / other).get("admin")
            if told is None:
                return None
            scheme, token = "http" if context is None else "https", authorization
            url = f"{scheme}://{told}/why?{query}"
            try:
                return await asyncio.to_thread(fetch_json, url, token, context)
            except UsageError:
                return None

        found = await asyncio.gather(*[ask(each) for each in others])
        return dict(zip(others, found, strict=True))


def asked_spans(relay: Relay, span: Span) -> list[tuple[int, int]]:
    """The ticks of a span that this broker or a neighbour has asked for, with no answer yet."""
    wanted = SpanSet()
    for question in relay.questions.open_questions.values():
        wanted.update(question.wanted.within(span))
    return [(each.start, each.end) for each in wanted.within(span)][-RUNS_MAX:]


def knowledge_runs(relay: Relay, span: Span) -> Iterator[tuple[str, int, int]]:
    """The ticks of a span as runs of one letter: L lost, P passed and forgotten, S silence, D an
    event, Q nothing is known."""
    stream = relay.stream
    at, end = span.start, span.end
    for letter, below in (("L", relay.lost_below), ("P", stream.base)):
        if at < min(below, end):
            yield letter, at, min(below, end)
            at = min(below, end)
    if at >= end:
        return
    ticks, _ = stream.events_in(Span(at, end))
    known = list(stream.known.within(Span(at, end)))[-RUNS_MAX:]
    for run in known:
        if run.start > at:
            yield "Q", at, run.start
        yield "S", run.start, run.end
        at = run.end
    if at < end:
        yield "Q", at, end
    for tick in ticks[-RUNS_MAX:]:
        yield "D", tick, tick + 1


# --- routes ---------------------------------------------------------------------------------------


def page(name: str) -> str:
    return (files("gapless.broker.admin") / "pages" / name).read_text(encoding="utf-8")


def asset(name: str, kind: str) -> Response:
    """The answer for a file of the pages."""
    from starlette.responses import Response as AnyResponse

    return AnyResponse(page(name), media_type=kind, headers=HEADERS)


class PageRequests(ABC):
    """The requests that pages make, one method for each path below `/console`."""

    def __init__(self, session: PageSession) -> None:
        self._session_of_page = session

    def gets(self) -> dict[str, Callable[[Request], Awaitable[Response]]]:
        """What answers at each path."""
        return {"session": self._session, "figures": self._figures}

    def routes(self) -> list[Route]:
        """All paths of the console but `/`."""
        from starlette.routing import Route

        routes = [Route(f"/console/{name}", call) for name, call in self.gets().items()]
        routes.append(Route("/console/publish", self._publish, methods=["POST"]))
        return [*routes, Route("/console/{name}", self._asset)]

    async def _asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        return asset(name, PAGES[name]) if name in PAGES else plain("no such page", 404)

    def _stream(
        self,
        look: Callable[[], str],
        every_s: float = EVERY_S,
        feeds: Sequence[Coroutine[Any, Any, None]] = (),
    ) -> Response:
        """Send what `look` returns again and again. The feeds run for as long as the stream."""
        from starlette.responses import StreamingResponse

        async def events() -> AsyncIterator[str]:
            tasks = [asyncio.create_task(each) for each in feeds]
            loop = asyncio.get_running_loop()
            end_s = loop.time() + STREAM_S
            try:
                while loop.time() < end_s and self._session_of_page.is_ready:
                    yield f"data: {look()}\n\n"
                    await asyncio.sleep(every_s)
            finally:
                for task in tasks:
                    task.cancel()

        headers = {**HEADERS, "Cache-Control": "no-store"}
        return StreamingResponse(events(), media_type="text/event-stream", headers=headers)

    async def _session(self, _: Request) -> Response:
        return json_of(self._session_of_page.session())

    async def _figures(self, _: Request) -> Response:
        return self._stream(self._session_of_page.state)

    async def _publish(self, request: Request) -> Response:
        if not self._session_of_page.is_of_page(request.headers.get("x-gapless-page", "")):
            return plain("this is not from the page: load it anew", 403)
        body = await read_body(request)
        if len(body) > BODY_BYTES_MAX:
            return plain(f"at most {BODY_BYTES_MAX} bytes", 413)
        return await self._publish_body(request, body)

    @abstractmethod
    async def _publish_body(self, request: Request, body: bytes) -> Response:
        """Publish what the page has sent."""


class ConsoleRequests(PageRequests):
    """The requests of pages to a broker."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._console = console

    def gets(self) -> dict[str, Callable[[Request], Awaitable[Response]]]:
        return {
            **super().gets(),
            "knowledge": self._knowledge,
            "tail": self._tail,
            "check": self._check,
            "why": self._why,
        }

    async def _knowledge(self, request: Request) -> Response:
        pubend = request.query_params.get("pubend", "")
        if self._console.knowledge(pubend) is None:
            return plain("no such pubend", 404)
        return self._stream(
            lambda: json.dumps([self._console.knowledge(pubend)]), KNOWLEDGE_EVERY_S
        )

    async def _tail(self, request: Request) -> Response:
        asked = request.query_params
        try:
            topic, where = asked.get("topic", ""), asked.get("where", "")
            look = self._console.tail(topic, where, hosted="hosted" in asked)
        except FilterError as error:
            return plain(f"{error.problem}\n{error.caret()}", 400)
        return self._stream(lambda: json.dumps(look()))

    async def _check(self, request: Request) -> Response:
        asked = request.query_params
        found = await self._console.check(asked.get("topic", ""), asked.get("where", ""))
        return json_of(found)

    async def _why(self, request: Request) -> Response:
        asked = request.query_params
        token = request.headers.get("authorization", "").partition(" ")[2].strip()
        names = ("topic", "subscription", "event", "where")
        topic, name, event, where = (asked.get(each, "") for each in names)
        try:
            return json_of(await self._console.why(topic, name, event, where, token))
        except GaplessError as error:
            return plain(error.problem, 400)

    async def _publish_body(self, _: Request, body: bytes) -> Response:
        try:
            given = json.loads(body)
            topic, attributes = str(given["topic"]), from_json(dict(given["attributes"]))
            text = str(given.get("body", "")).encode()
            event = await self._console.client.publish(topic, attributes, text)
        except GaplessError as error:
            return plain(f"{error.problem} {error.remedy}", 400)
        except (ValueError, TypeError, KeyError):
            return plain("give a topic, and attributes as an object", 400)
        return json_of({"event": event})


def plain(text: str, status: int) -> Response:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(f"{text}\n", status_code=status)


def json_of(found: object) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(found, headers={"Cache-Control": "no-store"})


async def read_body(request: Request) -> bytes:
    """What was posted, up to a bit more than may be."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            break
    return body
