"""The client: what an application can ask of a network of brokers.

`gapless.client.reconnection` keeps its connection up; publishers, subscriptions and requests of one
client share that connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from gapless.client import arguments
from gapless.client.address import is_tls
from gapless.client.connection import OPEN, Passport
from gapless.client.credentials import find_credentials
from gapless.client.delivery import Receipt
from gapless.client.errors import LinkError, RefusedError
from gapless.client.group_subscription import GroupSubscription
from gapless.client.joint_subscription import JointSubscription
from gapless.client.name_requests import NameRequests
from gapless.client.publisher import LINGER_S, Publisher
from gapless.client.range_reads import RangeReads
from gapless.client.reconnection import ReconnectingChannel
from gapless.client.requests import ask_for, ask_with_retries
from gapless.client.subscribe_method import SubscribeMethod
from gapless.client.subscription import Subscription
from gapless.client.telemetry import publishing, with_context
from gapless.client.topics import TopicRequests
from gapless.client.transaction import TransactionRequests
from gapless.client.unheard import UnheardNotice
from gapless.client.why import ADMIN_PORT, ask_why
from gapless.core import client_messages as messages
from gapless.core.errors import GaplessError, UsageError, WireError
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName
from gapless.core.ticks import Tick
from gapless.wire.events import encode_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Unpack

    from gapless.client.channel import ConnectionChange
    from gapless.client.credentials import CredentialOptions
    from gapless.client.subscription_options import SubscriptionOptions
    from gapless.client.why import Explanation
    from gapless.core.events import Event, Value
    from gapless.wire.framing import Bytes

PUBLISH_EVENTS_MAX = 10_000
"""Events in one publication: what a broker takes."""

PUBLISH_BYTES_MAX = 8 << 20


class Client(
    TopicRequests,
    TransactionRequests,
    RangeReads,
    NameRequests,
    SubscribeMethod[Subscription, GroupSubscription, JointSubscription],
):
    """A connection to a network of brokers; make it with `connect`."""

    def __init__(self, channel: ReconnectingChannel) -> None:
        self.channel: ReconnectingChannel = channel
        """For the library's own parts."""
        self.known_parts = {}
        self._notice = UnheardNotice()

    @property
    def address(self) -> str:
        """The address of the broker that the client is connected to, or was last."""
        return self.channel.address

    @property
    def broker(self) -> BrokerName | None:
        """The name of that broker; None if there never was a connection."""
        return self.channel.broker

    # --- publishing ------------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        attributes: Mapping[str, Value],
        body: Bytes = b"",
        *,
        confirmed: bool = False,
    ) -> Receipt:
        """Publish one event; returns when it is on stable storage.

        A reliable topic has no storage: this returns when the broker has the event in memory, and
        with `confirmed` when every reachable broker with subscribers for it has it.
        `LinkError`: the connection broke, and the event may be published or not; a named
        `publisher` has no such doubt. `RefusedError`: it is not published.
        """
        return (await self.publish_many(topic, [(attributes, body)], confirmed=confirmed))[0]

    async def publish_many(
        self,
        topic: str,
        events: Iterable[tuple[Mapping[str, Value], Bytes]],
        *,
        confirmed: bool = False,
    ) -> list[Receipt]:
        """Publish these events, all or none, next to each other; a receipt for each.

        They go in one message, so a few hundred is a good number, and thousands are too many.
        """
        with publishing(topic):
            return await self._publish(topic, with_context(events), confirmed=confirmed)

    async def _publish(
        self,
        topic: str,
        events: Iterable[tuple[Mapping[str, Value], Bytes]],
        *,
        confirmed: bool,
    ) -> list[Receipt]:
        name = arguments.topic(topic)
        batch = EventBatch(tuple(encode_events(events)))
        size = sum(map(len, batch))
        if not 0 < len(batch) <= PUBLISH_EVENTS_MAX or size > PUBLISH_BYTES_MAX:
            raise UsageError(
                f"{len(batch)} events of {size} bytes cannot be published at once",
                f"Give 1 to {PUBLISH_EVENTS_MAX} of at most {PUBLISH_BYTES_MAX} bytes together.",
            )
        reply = await ask_with_retries(
            self.channel,
            lambda request: messages.Publish(name, request, batch, confirmed=confirmed),
            f"publish {topic}",
        )
        match reply.message:
            case messages.Receipt(pubend=pubend, ticks=ticks, unheard=unheard):
                if unheard:
                    self._notice.tell(topic)
                return [Receipt(pubend, Tick(tick)) for tick in ticks]
            case messages.Refused(problem=problem, remedy=remedy):
                raise RefusedError(problem, remedy)
            case GaplessError() as error:  # a repeat would not be recognised
                raise LinkError(f"{error.problem}, and what was sent may be published or not")
            case other:
                raise WireError(f"the broker answered {type(other).__name__} to a Publish")

    def publisher(self, topic: str, *, name: str, linger_s: float = LINGER_S) -> Publisher:
        """A pipelined publisher whose events are published once, whatever breaks meanwhile.

        Brokers remember the name and its next number for good. The publisher that was entered last
        under a name owns it: brokers refuse what earlier ones still send. Events that are sent soon
        after others gather for `linger_s`.
        """
        publisher = arguments.publisher(name)
        return Publisher(self.channel, arguments.topic(topic), publisher, linger_s=linger_s)

    # --- subscribing -----------------------------------------------------------------------------

    def _make_subscription(self, options: SubscriptionOptions) -> Subscription:
        return Subscription(self.channel, options)

    def _make_group(self, options: SubscriptionOptions) -> GroupSubscription:
        return GroupSubscription(self.channel, options)

    def _make_joint(self, parts: Sequence[SubscriptionOptions]) -> JointSubscription:
        return JointSubscription(self.channel, parts)

    async def why(
        self,
        topic: str,
        subscription: str,
        event: str | Receipt | Event | None = None,
        *,
        where: str | None = None,
        admin: Sequence[str] = (),
    ) -> Explanation:
        """Explain what became of an event on its way to a named subscription, and why.

        `event` is `PUBEND:TICK`, or a receipt or an event; with `where` instead, it is the newest
        event that matches this condition. `admin` are the admin ports to ask, all brokers' if the
        network has several; without any, port 7118 at the hosts of this client's addresses. With
        security it needs the right to administer.
        """
        if event is not None and not isinstance(event, str):
            event = f"{event.pubend}:{event.tick}"
        passport = self.channel.passport
        usual = [str(each._replace(port=ADMIN_PORT)) for each in self.channel.addresses]
        return await ask_why(
            list(admin) or usual,
            arguments.topic(topic),
            arguments.subscription(subscription),
            event,
            where,
            token=passport.hello.token,
            context=passport.context,
        )

    async def retire(self, broker: str) -> None:
        """Tell the network that a broker never returns: its subscriptions to reliable topics end
        everywhere, and its neighbours take its place. Needs the right to administer everything."""
        name = BrokerName(arguments.text("broker", broker))
        await ask_for(
            self.channel, lambda request: messages.RetireBroker(request, name), messages.Done
        )

    # --- beginning and end -----------------------------------------------------------------------

    async def close(self) -> None:
        """Close the connection. What was not flushed is lost; subscriptions end."""
        await self.channel.close()

    async def __aenter__(self) -> Self:
        self.channel.open()
        try:
            await self.channel.wait_up()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def connect(
    addresses: str,
    *,
    patience_s: float = 30.0,
    on_change: Callable[[ConnectionChange], None] | None = None,
    **options: Unpack[CredentialOptions],
) -> Client:
    """A client of the brokers at `gapless://host:port[,host:port…]`, for `async with`.

    The client uses the first broker that answers, and the next one when that connection is lost.
    `patience_s`: how long to wait for a broker, or for a broker that refuses for now, before an
    error is raised. `on_change` is called with a `ConnectionChange` when a connection is up, lost
    or refused; the logger "gapless.client" tells the same.
    With `gapless+tls://`: `ca` is the file of the authority to trust (default: the system's), and a
    `token`, or the files of a `certificate` and its `key`, prove who you are. What is not given
    is taken from GAPLESS_CA, GAPLESS_TOKEN, GAPLESS_CERTIFICATE and GAPLESS_KEY.
    """
    credentials = find_credentials(is_tls=is_tls(addresses), **options)
    return Client(
        ReconnectingChannel(
            addresses,
            patience_s=arguments.seconds("patience_s", patience_s, may_be_endless=True),
            passport=Passport.of(credentials) if credentials is not None else OPEN,
            on_change=on_change,
        )
    )
