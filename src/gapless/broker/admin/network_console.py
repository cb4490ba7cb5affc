"""The console of a whole network: it watches each broker's admin port, and serves the same pages.

Theory of operation
    For each broker a task reads the stream of figures that the broker's own pages read, and asks
    again when the stream ends. The page gets the figures of all brokers as they came, and puts them
    together. A broker whose stream breaks, or is silent for `ANSWER_S`, is down until it answers.
    Brokers are found: figures tell the admin ports of brokers whose data lies in the same folder,
    which may change when those start again. A loopback address counts only if the broker that tells
    it was reached by one. Brokers of other machines are to be given.
    What the page asks of one broker (tail, conditions, a test event) is passed on to its admin
    port. `why` and the picture of knowledge ask all.
    The console listens on loopback alone, checks the `Host`, and needs the token of the page for
    what changes something. It has the token for brokers with security; then a page must show the
    same token, so that nobody else on the machine acts with it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import h11

from gapless.broker.addresses import EVERYWHERE, parse_address
from gapless.broker.admin.connections import AdminConnections
from gapless.broker.admin.console import (
    HEADERS,
    KNOWLEDGE_EVERY_S,
    PAGES,
    PageRequests,
    PageSession,
    asset,
    json_of,
    plain,
)
from gapless.broker.admin.port import Admin, for_host, guarded, listen
from gapless.client.why import ask_why
from gapless.core.errors import GaplessError, UsageError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

AGAIN_S = 1.0
"""How long to wait before a broker that does not answer is asked again."""

ANSWER_S = 5.0
"""How long a broker may be silent; it sends figures each second."""

REFUSAL_S = 0.5
FIGURES_BYTES_MAX = 16 * 1024 * 1024
"""The longest figures of a broker: beyond it the broker counts as down."""

OK = 200
REFUSED = (401, 403)

LANES_MAX = 24
"""Brokers in the picture of knowledge: each is one more stream while the picture is open."""


class Answer(NamedTuple):
    """What an admin port answers."""

    status: int
    kind: str
    body: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class AdminClient:
    """How admin ports are asked: with which token, and by TLS or not."""

    token: str = ""
    context: ssl.SSLContext | None = None

    @asynccontextmanager
    async def ask(
        self, address: str, path: str, body: bytes | None = None, page_token: str = ""
    ) -> AsyncIterator[Answer]:
        """`OSError`, also from the body, if the broker does not answer."""
        host, port = parse_address(address)
        http = h11.Connection(h11.CLIENT)
        headers = [("Host", address), ("Connection", "close")]
        headers += [("Authorization", f"Bearer {self.token}")] if self.token else []
        headers += [("X-Gapless-Page", page_token)] if page_token else []
        headers += [("Content-Length", str(len(body)))] if body is not None else []
        method = "GET" if body is None else "POST"
        head = h11.Request(method=method, target=path, headers=headers)
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=self.context)

        async def receive() -> Any:
            try:
                while (event := http.next_event()) is h11.NEED_DATA:
                    async with asyncio.timeout(ANSWER_S):
                        http.receive_data(await reader.read(65_536))
            except h11.RemoteProtocolError as error:
                raise ConnectionError("the connection broke") from error
            return event

        async def pieces() -> AsyncIterator[bytes]:
            while isinstance(event := await receive(), h11.Data):
                yield bytes(event.data)

        try:
            for event in (head, h11.Data(data=body or b""), h11.EndOfMessage()):
                writer.write(http.send(event) or b"")
            answer = await receive()
            kind = dict(answer.headers).get(b"content-type", b"text/plain").decode()
            yield Answer(answer.status_code, kind, pieces())
        finally:
            writer.close()


@dataclass(slots=True, eq=False)
class WatchedBroker:
    """One broker: where its admin port is, and its newest figures while it answers."""

    address: str
    name: str = ""
    """Empty until the broker tells it, if only the address was given."""
    figures: dict[str, Any] | None = None
    problem: str = "not asked yet"


class NetworkConsole(PageSession):
    """What the pages of a whole network ask for; `async with` watches its brokers."""

    def __init__(self, addresses: Sequence[str], client: AdminClient) -> None:
        super().__init__()
        self.client = client
        self.brokers = [WatchedBroker(address) for address in addresses]
        self._tasks = set[asyncio.Task[None]]()

    async def __aenter__(self) -> Self:
        for broker in self.brokers:
            self._tasks.add(asyncio.create_task(self._watch(broker)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def find(self, name: str) -> WatchedBroker | None:
        return next((each for each in self.brokers if each.name == name), None)

    def state(self) -> str:
        shown = {
            each.name or each.address: {"problem": each.problem, "figures": each.figures}
            for each in self.brokers
        }
        return json.dumps({"network": True, "brokers": shown})

    async def _watch(self, broker: WatchedBroker) -> None:
        while broker in self.brokers:
            try:
                async with self.client.ask(broker.address, "/console/figures") as answer:
                    if answer.status in REFUSED:
                        raise ConnectionError("the broker does not admit this console's token")
                    await self._read(broker, answer.body)
            except (OSError, ValueError, LookupError) as error:
                is_ours = isinstance(error, ConnectionError) and error.errno is None
                broker.problem = str(error) if is_ours else f"no answer at {broker.address}"
                broker.figures = None
                await asyncio.sleep(AGAIN_S)

    async def _read(self, broker: WatchedBroker, body: AsyncIterator[bytes]) -> None:
        is_ready = False
        async for figures in read_messages(body):
            is_ready = True
            self._take(broker, figures)
            if broker not in self.brokers:
                return
        if not is_ready:
            raise ConnectionError("the broker is not ready")

    def _take(self, broker: WatchedBroker, figures: dict[str, Any]) -> None:
        name = figures["broker"]
        if broker.name and broker.name != name:
            raise ConnectionError(f"the broker {name} answers there")
        if not broker.name and self.find(name) is not None:  # it was found, or is given twice
            self.brokers.remove(broker)
            return
        broker.name, broker.figures, broker.problem = name, figures, ""
        for other in (each for cell in figures["cells"] for each in cell["brokers"]):
            if other["admin"] and other["name"] != name:
                self._learn(other["name"], other["admin"], broker)

    def _learn(self, name: str, address: str, teller: WatchedBroker) -> None:
        """A broker tells where the admin port of another one is."""
        is_far = is_local(address) and not is_local(teller.address)
        if is_far or parse_address(address)[0] in EVERYWHERE:
            return
        other = self.find(name)
        if other is None:
            other = WatchedBroker(address, name)
            self.brokers.append(other)
            self._tasks.add(asyncio.create_task(self._watch(other)))
        elif other.figures is None:
            other.address = address


async def read_messages(body: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """What a stream of server-sent events brings; `OSError` if a message is too long."""
    rest = b""
    async for piece in body:
        *messages, rest = (rest + piece).split(b"\n\n")
        for message in messages:
            yield json.loads(message.removeprefix(b"data: "))
        if len(rest) > FIGURES_BYTES_MAX:
            raise ConnectionError("its figures are too long")


def is_local(address: str) -> bool:
    host = parse_address(address)[0]
    return host in ("localhost", "::1") or host.startswith("127.")


class NetworkRequests(PageRequests):
    """The requests of pages of a whole network."""

    def __init__(self, network: NetworkConsole) -> None:
        super().__init__(network)
        self._network = network

    def gets(self) -> dict[str, Callable[[Request], Awaitable[Response]]]:
        passed_on = dict.fromkeys(("tail", "check"), self._pass_on)
        return {
            **super().gets(), **passed_on, "knowledge": self._knowledge, "why": self._why,
        }  # fmt: skip

    async def _knowledge(self, request: Request) -> Response:
        """What each broker knows of a pubend; a broker that does not answer is left out."""
        latest = dict[str, list[Any]]()
        path = f"{request.url.path}?{request.url.query}"

        async def follow(broker: WatchedBroker) -> None:
            while True:
                try:
                    async with self._network.client.ask(broker.address, path) as answer:
                        if answer.status == OK:
                            async for latest[broker.name] in read_messages(answer.body):
                                pass
                except (OSError, ValueError):
                    latest.pop(broker.name, None)
                await asyncio.sleep(AGAIN_S)

        def look() -> str:
            return json.dumps([lane for lanes in latest.values() for lane in lanes])

        feeds = [follow(each) for each in self._network.brokers[:LANES_MAX]]
        return self._stream(look, KNOWLEDGE_EVERY_S, feeds)

    async def _pass_on(
        self, request: Request, body: bytes | None = None, page_token: str = ""
    ) -> Response:
        """The answer of the broker that the query names."""
        from starlette.responses import StreamingResponse

        broker = self._network.find(request.query_params.get("broker", "") or "?")
        if broker is None:
            return plain("no such broker", 404)
        path, stack = f"{request.url.path}?{request.url.query}", AsyncExitStack()
        try:
            asked = self._network.client.ask(broker.address, path, body, page_token)
            answer = await stack.enter_async_context(asked)
        except OSError:
            return plain(f"{broker.name} does not answer", 502)

        async def pieces() -> AsyncIterator[bytes]:
            async with stack:
                async for piece in answer.body:
                    yield piece

        status = 502 if answer.status in REFUSED else answer.status
        headers = {**HEADERS, "Cache-Control": "no-store", "Content-Type": answer.kind}
        return StreamingResponse(pieces(), status, headers)

    async def _publish_body(self, request: Request, body: bytes) -> Response:
        broker = self._network.find(request.query_params.get("broker", "") or "?")
        if broker is None:
            return plain("no such broker", 404)
        try:
            async with self._network.client.ask(broker.address, "/console/session") as answer:
                session = json.loads(b"".join([each async for each in answer.body]))
        except (OSError, ValueError):
            return plain(f"{broker.name} does not answer", 502)
        return await self._pass_on(request, body, session["page_token"])

    async def _why(self, request: Request) -> Response:
        asked, client = request.query_params, self._network.client
        topic, name, event = (asked.get(each, "") for each in ("topic", "subscription", "event"))
        where = None if event else asked.get("where", "")
        ports = {each.address: each.name or each.address for each in self._network.brokers}
        token, context = client.token, client.context
        try:
            found = await ask_why(
                ports, topic, name, event or None, where, token=token, context=context
            )
        except GaplessError as error:
            return plain(error.problem, 400)
        return json_of(found.to_json())


def make_app(network: NetworkConsole, host: str) -> ASGIApp:
    from starlette.applications import Starlette
    from starlette.routing import Route

    async def index(_: Request) -> Response:
        return asset("index.html", "text/html")

    app: ASGIApp = Starlette(routes=[Route("/", index), *NetworkRequests(network).routes()])
    if token := network.client.token:
        free = {"/", *(f"/console/{name}" for name in PAGES)}

        def judge(shown: str) -> int:
            return 0 if hmac.compare_digest(shown.encode(), token.encode()) else 401

        app = guarded(app, judge, REFUSAL_S, free)
    return for_host(app, frozenset({host.lower()}))


def open_console(network: NetworkConsole, at: tuple[str, int]) -> Admin:
    """Serve the pages there, on loopback, or at any free port if that one is in use."""

    def check(endpoint: str, option: str) -> None:
        if not is_local(endpoint):
            raise UsageError(
                f"{option} {endpoint}: the console is for this machine alone",
                "Give a loopback address; from elsewhere reach it by `ssh -L`.",
            )

    connections = AdminConnections(make_app(network, at[0]))
    return Admin(connections, listen(at, check, "--listen"))
