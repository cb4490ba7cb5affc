"""All links of a broker, by the name of the peer; they carry the messages of the node.

Theory of operation
    The Hello says whether a connection is a client's or a broker's. The broker gives a client a new
    name, and checks a broker's name. Neighbours keep a link up, and the one whose name sorts first
    dials. If the other one dials, it has just started, and is dialled at once. A neighbour that
    connects anew replaces its old link, which is likely dead.
    Brokers further apart have a link when one of them wants to send something (`on_missing`), and
    lose it when nothing comes for long. If both dial at once, the link of the one whose name sorts
    first stays. A broker that joins a network says at which address it is reached. All brokers are
    told (`Addresses`), and it is told their addresses. It keeps the link to the broker where it
    joined, though both may have nothing to say as yet.
    With security, `access` decides who may connect, and what the node sees of a client.

Invariants
    I1  at most one link has a given name; the node knows a client exactly while its link is here
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from gapless.broker.addresses import EVERYWHERE, AddressBook
from gapless.broker.descriptors import links_max
from gapless.broker.frames import Frames
from gapless.broker.logs import logger
from gapless.broker.memory import LinkMemory
from gapless.broker.near import NearBrokers
from gapless.broker.quotas import Quotas, who_is
from gapless.broker.schedule import Schedule
from gapless.broker.security.rights import Right, begin_refusal, refusal, visible
from gapless.core.client_messages import Refused, Subscribe
from gapless.core.errors import AccessError, ProtocolError
from gapless.core.identity import BrokerName, ClientName
from gapless.core.messages import Addresses, Hello
from gapless.core.topic_messages import TopicList
from gapless.node.config import Config
from gapless.node.delivery.connections import nowhere
from gapless.version import __version__
from gapless.wire.link import KeepAlive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gapless.broker.event_reader import EventReader
    from gapless.broker.link import Link
    from gapless.broker.pump import Pump
    from gapless.broker.security.access import Access
    from gapless.broker.settings import Settings
    from gapless.core.client_messages import Publish
    from gapless.core.identity import PeerName
    from gapless.core.messages import Message
    from gapless.core.transaction_messages import Stage
    from gapless.node.network import Network


SILENT_LOOKS = 4
"""Looks in a row that find no byte of a broker; then its link is dropped."""

FLUSH_S = 0.01
"""How long sending may take in one turn; one link more may begin before that."""

ADDRESSES_MAX = 8
"""So many addresses of one broker are told."""

SAME_FILE = "Give both brokers the same network file: gapless reload."

ANYBODY = BrokerName("")
"""Stands for the broker that is dialled to join a network: its name is not known yet."""


class Links:
    """The connections of one broker. `pump` is set once the node is there."""

    pump: Pump

    def __init__(
        self,
        name: BrokerName,
        network: Network,
        settings: Settings,
        access: Access | None = None,
        room: LinkMemory | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.access = access
        self.room = room or LinkMemory(settings)
        everything = settings.connections_max, Config().subscriptions_max
        self.quotas = quotas or Quotas(*everything)
        self.denial_delay_s = access.security.login_delay_s if access is not None else 0.0
        self.schedule = Schedule()
        self.reader: EventReader | None = None
        self.near = NearBrokers()
        digest = 0 if network.joins else network.digest
        self.hello = Hello(sender=name, software=f"gapless {__version__}", network=digest)
        self.neighbours = neighbours_of(name, network)
        self._links_max = links_max(settings.connections_max)
        self.on_missing: Callable[[BrokerName], None] | None = None
        self.on_knock: Callable[[BrokerName], None] | None = None
        self.address_book = AddressBook(network, settings.data, settings.joined_max)
        self.named: dict[PeerName, Link] = {}
        self.all: set[Link] = set()
        self.is_draining = False
        self.problems: dict[BrokerName, str] = {}  # why there is no link to a broker
        self.accepted = self.refused = self.unsent = 0
        self.refused_requests = 0  # because a principal has its share
        self._past = dict.fromkeys(FIGURES, 0)  # of links that are gone
        self._unsent_links: dict[Link, None] = {}  # longest first
        self._queued: dict[BrokerName, list[Message]] = {}  # for brokers that are being dialled
        self._own_addresses = ""  # several, or nothing
        self._joined_at: BrokerName | None = None
        self._client_number = 0
        self._client_prefix = "client:"
        while any(each.startswith(self._client_prefix) for each in network.cell_of):
            self._client_prefix += ":"

    # --- what the links call ---------------------------------------------------------------------

    def opened(self, link: Link) -> bool:
        self.all.add(link)
        self.accepted += link.dialled is None
        access = self.access
        if access is not None and link.dialled:
            try:
                access.check_broker(link, link.dialled)
            except AccessError as error:
                link.end(error)
                return False
        if self.is_draining or self._is_full(link):
            self.refused += 1
            link.end(
                ProtocolError(
                    "this broker is stopping" if self.is_draining else "too many connections",
                    "Connect to another broker, or again later.",
                )
            )
            return False
        return access is None or link.dialled is not None

    def _is_full(self, link: Link) -> bool:
        if len(self.all) > self._links_max:
            return True
        if self.access is None or link.dialled is not None:
            return False
        return len(self.all) - len(self.named) > self.access.security.strangers_max

    def greeted(self, link: Link, hello: Hello) -> PeerName:
        """The name of the peer; `ProtocolError` if it may not connect."""
        owner, joins = "", link.dialled == ANYBODY
        administers: Callable[[str], bool] = nowhere
        if self.access is not None:
            if hello.sender is not None:
                self.access.check_broker(link, hello.sender)
            else:
                principal = self.access.greet(link, hello)
                owner = principal.name
                administers = partial(principal.rights.may, Right.ADMINISTER)
        peer = self._client() if hello.sender is None else self._broker(link, hello)
        if not link.is_broker:
            link.who = owner or who_is(link.address)
            self.quotas.join(link)
        if (old := self.named.pop(peer, None)) is not None:
            old.abort()
        self.named[peer] = link
        self.problems.pop(BrokerName(peer), None)
        who = {"principal": owner} if owner else {}
        logger.info("link up", extra={"peer": peer, "address": link.address, **who})
        if link.is_broker:
            self._introduce(BrokerName(peer))
        if joins:
            self.pump.join(BrokerName(peer))
        elif hello.address:
            self.pump.welcome(BrokerName(peer))
        elif not self._has_joined(peer):
            self.pump.link_up(peer, owner, administers, link.who)
        if not link.is_broker and self._own_addresses:
            self.send(peer, Addresses({self.name: self._own_addresses}))
        for message in self._queued.pop(BrokerName(peer), ()):
            self.send(peer, message)
        return peer

    def tell_own(self, addresses: Iterable[str]) -> None:
        """Tell clients all addresses of this broker, if it has several: its own and those of the
        processes that stand by. Clients that come later are told, too."""
        every = [each for each in dict.fromkeys(addresses) if not each.startswith(EVERYWHERE)]
        told = ",".join(every[:ADDRESSES_MAX]) if len(every) > 1 else ""
        if told == self._own_addresses:
            return
        self._own_addresses = told
        for peer, link in self.named.items():
            if not link.is_broker:
                self.send(peer, Addresses({self.name: told}))

    def keep_alive(self, broker: PeerName) -> KeepAlive:
        """How a broker's link is watched. The nodes of neighbours send heartbeats. Where a broker
        joined a network, both may have nothing to say, and it pings. Other links may end."""
        look_s = self.settings.silence_s / SILENT_LOOKS
        if broker in self.neighbours:
            return KeepAlive(look_s, SILENT_LOOKS, ping_after=None, has_heartbeats=True)
        return KeepAlive(look_s, SILENT_LOOKS, 0 if broker == self._joined_at else None)

    def _has_joined(self, peer: PeerName) -> bool:
        """Is it a broker that is not in our network file?"""
        return peer in self.address_book and not self.address_book.is_in_file(peer)

    def _introduce(self, peer: BrokerName) -> None:
        """Tell a broker the addresses that may not be in its network file."""
        known = self.address_book.all()
        if not self._has_joined(peer):
            known = {name: at for name, at in known.items() if self._has_joined(name)}
        known.pop(peer, None)
        if known:
            self.send(peer, Addresses(known))

    def _learn(self, addresses: dict[BrokerName, str], source: PeerName) -> None:
        fresh = self.address_book.learn(addresses)
        if fresh:
            for peer, link in self.named.items():
                if link.is_broker and peer != source:
                    self.send(peer, Addresses(fresh))

    def _client(self) -> ClientName:
        """A name that no peer ever had."""
        self._client_number += 1
        return ClientName(f"{self._client_prefix}{self._client_number}")

    def _broker(self, link: Link, hello: Hello) -> BrokerName:
        assert hello.sender is not None
        name = hello.sender
        if link.dialled == ANYBODY:
            link.dialled = self._joined_at = name
            self._learn({name: self.settings.join or link.address}, name)
        if link.dialled is not None and name != link.dialled:
            raise ProtocolError(
                f"{link.address} is {name!r}, not {link.dialled!r}",
                "Correct the addresses in the network file.",
            )
        if hello.address:
            self._admit(name, hello.address)
        if name == self.name:
            raise ProtocolError(f"{name!r} has the name of this broker", SAME_FILE)
        if name not in self.address_book:
            raise ProtocolError(f"{name!r} is not in the file that {self.name!r} has", SAME_FILE)
        if 0 != hello.network != self.hello.network != 0:
            problem = f"{name!r} and {self.name!r} have different network files"
            self.note_problem(name, problem)
            raise ProtocolError(problem, SAME_FILE)
        is_reverse = link.dialled is None and self.name < name and name in self.neighbours
        if is_reverse and self.on_knock is not None:
            self.on_knock(name)
        if is_reverse or self._is_surplus(link, name):
            raise ProtocolError(f"{self.name!r} dials {name!r}, not the reverse", "Wait for it.")
        return name

    def note_problem(self, name: BrokerName, problem: str) -> None:
        """Say why there is no link to a broker, when that is news."""
        if self.problems.get(name) != problem:
            self.problems[name] = problem
            logger.error("no link", extra={"peer": name, "reason": problem, "remedy": SAME_FILE})

    def _admit(self, name: BrokerName, address: str) -> None:
        """A broker that is in no network file joins ours."""
        taken = name == self.name or self.address_book.is_in_file(name)
        if taken or name.startswith((self._client_prefix, "@")):
            raise ProtocolError(f"a broker cannot join as {name!r}", "Give it another name.")
        self._learn({name: address}, name)

    def _is_surplus(self, link: Link, name: BrokerName) -> bool:
        """Have both dialled, and is the link of the one whose name sorts first there?"""
        old, is_ours = self.named.get(name), link.dialled is not None
        if old is None or is_ours == (old.dialled is not None):
            return False  # a new link replaces the old one
        return is_ours != (self.name < name)

    def begun(self, link: Link, head: dict[str, str | int]) -> bool:
        """Whether the rest of a large message is wanted. If not, the client was told why."""
        if link.principal is None or self.access is None:
            return True
        try:
            refused = begin_refusal(link.principal.rights, head)
        except ProtocolError as error:
            link.end(error)
            return False
        if refused is None:
            return True
        self.access.refused_requests += 1
        link.answer(refused)
        return False

    def received(self, link: Link, message: Message) -> None:
        assert link.peer is not None
        if isinstance(message, Addresses) and link.is_broker:
            self._learn(message.addresses, link.peer)
            return
        if link.principal is not None and self.access is not None:
            refused = self.access.admit(link, message, self.pump.node)
            if refused is not None:
                link.answer(refused)
                return
        if isinstance(message, Subscribe) and not link.is_broker:
            refused = self.quotas.subscribe(link, message, self.pump.node)
            if refused is not None:
                self.refused_requests += 1
                link.answer(refused)
                return
        self.pump.receive(link.peer, message)

    def checking(self, link: Link, message: Publish | Stage) -> Iterator[None] | None:
        """Steps that check a large publication before it is received; None if it is refused or
        dropped whatever its events are."""
        principal = link.principal
        if principal is not None and refusal(principal.rights, message) is not None:
            return None
        if len(message.events) > self.settings.publish_events_max or self.reader is None:
            return None
        return self.reader.checking(message.events)

    def closed(self, link: Link, reason: str) -> None:
        self.all.discard(link)
        self.room.leave(link)
        self.quotas.leave(link)
        if self.access is not None:
            self.access.leave(link)
        self._unsent_links.pop(link, None)
        for figure in FIGURES:
            self._past[figure] += getattr(link, figure)
        if link.peer is None:
            logger.info("link refused", extra={"address": link.address, "reason": reason})
            far = link.dialled not in self.neighbours
            if link.dialled is not None and far and link.dialled in self.address_book:
                self.give_up(link.dialled)  # it died, or sent us away, before it said who it is
            return
        logger.info("link down", extra={"peer": link.peer, "reason": reason})
        if self.named.get(link.peer) is link:
            del self.named[link.peer]
            self.pump.link_down(link.peer)

    # --- what the pump calls ---------------------------------------------------------------------

    def send(self, to: PeerName, message: Message) -> None:
        link = self.named.get(to)
        if link is None:
            self._miss(to, message)
            return
        if type(message) is Refused and message.elsewhere:
            message = self.address_book.addressed(message)
        elif type(message) is TopicList and link.principal is not None:
            message = visible(link.principal.rights, message)
        link.send(message)
        self._unsent_links[link] = None

    def _miss(self, to: PeerName, message: Message) -> None:
        """There is no link: dial a broker that is far, and keep the message until then."""
        is_far = to in self.address_book and to not in self.neighbours
        if not is_far or self.on_missing is None:
            self.unsent += 1  # a broker that is down, or a client just gone
            return
        queued = self._queued.setdefault(BrokerName(to), [])
        if len(queued) < self.settings.far_queue_max:
            queued.append(message)
        else:
            self.unsent += 1
        self.on_missing(BrokerName(to))

    def give_up(self, name: BrokerName) -> None:
        """A broker that is far does not answer: drop its messages, and tell the node at once."""
        self.unsent += len(self._queued.pop(name, ()))
        if name not in self.named:
            self.pump.link_down(name)

    def flush(self) -> None:
        """Send what is queued; what takes longer than `FLUSH_S` is left for the next turn."""
        frames, end_s = Frames(), monotonic() + FLUSH_S
        while self._unsent_links:
            link = next(iter(self._unsent_links))
            del self._unsent_links[link]
            link.flush(frames)
            if self._unsent_links and monotonic() >= end_s:
                asyncio.get_running_loop().call_soon(self.flush)
                break
        self.room.make_room()

    def hurry(self, peers: Sequence[PeerName]) -> None:
        """Send what is queued for these, before the turn ends."""
        frames = Frames()
        for peer in peers:
            link = self.named.get(peer)
            if link is not None and link in self._unsent_links:
                del self._unsent_links[link]
                link.flush(frames)

    # --- figures ---------------------------------------------------------------------------------

    def statistics(self) -> dict[str, object]:
        totals = dict(self._past)
        for link in self.all:
            for figure in FIGURES:
                totals[figure] += getattr(link, figure)
        brokers = sorted(peer for peer, link in self.named.items() if link.is_broker)
        return {
            "clients": len(self.named) - len(brokers),
            "brokers_up": brokers,
            "brokers_down": sorted(self.neighbours - set(brokers)),
            "problems": dict(self.problems),
            "accepted": self.accepted,
            "refused": self.refused,
            "unsent": self.unsent,
            "waiting_turns": len(self.schedule),
            "input_bytes": self.room.input.total,
            "output_bytes": sum(link.unsent_bytes for link in self.all if not link.is_broker),
            **(self._denials() if self.access is not None else {}),
            **totals,
        }

    def _denials(self) -> dict[str, object]:
        assert self.access is not None
        return {
            "refused_logins": self.access.refused_logins,
            "refused_requests": self.access.refused_requests + self.refused_requests,
            "failed_handshakes": self.access.tls.handshakes.failed,
            "refused_handshakes": self.access.tls.handshakes.refused,
        }


FIGURES = ("bytes_in", "bytes_out", "messages_in", "messages_out", "dropped", "unknown")


def neighbours_of(name: BrokerName, network: Network) -> frozenset[BrokerName]:
    """The other brokers of a broker's cell, and the brokers of the cells next to it."""
    cell = network.cell_of[name].name
    cells = (cell, *network.neighbours(cell))
    return frozenset(member for each in cells for member in network.members(each)) - {name}
