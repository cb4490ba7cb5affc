"""What is promised about groups, checked from what crosses the links and what the disks have.

Statements (docs/protocols/groups.md, 4): G1 one hand; G2 order by key; G3 finished once, or a dead
letter once, and nothing is skipped; G4 handed out again only for a reason; G5 what was confirmed
as finished never comes again.
The checker shares no code with the machines. It sees what the broker of the group sends and
receives, and knows of each event only its attributes and its place in the log.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gapless.core.client_messages import Done, Lost, Refused, Subscribed, Unsubscribe
from gapless.core.events import EventBatch
from gapless.core.group_messages import Finish, Handed, Reject
from gapless.core.identity import ClientName, PubendName
from gapless.filters.filter import Filter
from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_tick
from gapless.wire.events import decode_attributes

if TYPE_CHECKING:
    from collections.abc import Hashable

    from gapless.core.identity import BrokerName, PeerName
    from gapless.core.messages import Message
    from gapless.node.config import Config
    from gapless.testing.checkers.checker import Broker
    from gapless.testing.groups.members import GroupPlan
    from gapless.testing.record import Record

Place = tuple[PubendName, int]


class GroupPromises(Checker):
    """One group, as its broker's links show it. `plan` is set before the run begins."""

    promise = "a group keeps its promises"
    plan: GroupPlan

    def __init__(self, record: Record, config: Config) -> None:
        super().__init__(record, config)
        self.start: dict[PubendName, int] | None = None  # from here on everything counts
        self.handed: Counter[str] = Counter()  # by member: how many events it got
        self.repeats = 0
        self._home: BrokerName | None = None
        self._hands: dict[Place, ClientName] = {}
        self._finished: set[Place] = set()  # in this life of the broker, or confirmed
        self._handled: set[Place] = set()  # in any life: the broker knew that it is finished
        self._confirmed: set[Place] = set()
        self._letters: set[Place] = set()
        self._asked: dict[tuple[ClientName, int], list[Place]] = {}
        self._seen: set[Place] = set()
        self._keys: dict[Place, Hashable] = {}

    # --- what the broker says ---------------------------------------------------------------------

    def sent(self, broker: Broker, to: PeerName, message: Message) -> None:
        client = ClientName(to)
        match message:
            case Subscribed(start=start):
                self._home = broker.name
                if self.start is None:
                    self.start = {PubendName(name): tick for name, tick in start.items()}
            case Handed(pubend=pubend):
                for tick in message.ticks:
                    self._hand(client, (pubend, tick))
            case Done(request=request):
                self._confirmed.update(self._asked.pop((client, request), ()))
            case Refused(request=request, problem=problem) if (client, request) in self._asked:
                raise self.violated(f"{to} may not finish what it has: {problem}")
            case Lost():
                raise self.violated(f"{to} is told of a loss, and nothing was lost")
            case _:
                pass

    def _hand(self, client: ClientName, place: Place) -> None:
        where = f"{client} gets {place[0]} {show_tick(place[1])}"
        if place in self._confirmed:
            raise self.violated(f"G5: {where}, which was confirmed as finished")
        if place in self._finished or place in self._letters:
            raise self.violated(f"G4: {where}, which is finished")
        if place in self._hands:
            raise self.violated(f"G1: {where}, which {self._hands[place]} has in hand")
        if not self._matches(place):
            raise self.violated(f"{where}, which does not match")
        key = self._key(place)
        if key is not None:
            self._check_key(client, place, key, where)
        self._hands[place] = client
        self.repeats += place in self._seen
        self._seen.add(place)
        self.handed[client.partition(".")[0]] += 1

    def _check_key(self, client: ClientName, place: Place, key: Hashable, where: str) -> None:
        pubend, tick = place
        for other, holder in self._hands.items():
            if self._key(other) != key:
                continue
            if holder != client:
                raise self.violated(f"G2: {where}, and {holder} has {other} of the same key")
            if other[0] == pubend and other[1] > tick:
                raise self.violated(f"G2: {where} behind {show_tick(other[1])} of the same key")
        for each in self._wanted(pubend):
            other = pubend, each
            if self._key(other) != key:
                continue
            if each < tick and not (
                other in self._handled or other in self._letters or other in self._hands
            ):
                raise self.violated(f"G2: {where} before {show_tick(each)} of the same key")
            if each > tick and other in self._confirmed:
                raise self.violated(f"G2: {where} after {show_tick(each)} of its key is finished")

    # --- what members say -------------------------------------------------------------------------

    def received(self, broker: Broker, sender: PeerName, message: Message) -> None:
        client = ClientName(sender)
        match message:
            case Finish(pubend=pubend, ticks=ticks, request=request):
                places = [(pubend, tick) for tick in ticks if self._drop(client, (pubend, tick))]
                self._finished.update(places)
                self._handled.update(places)
                if request:
                    self._asked[client, request] = places
            case Reject(pubend=pubend, ticks=ticks):
                for tick in ticks:
                    self._drop(client, (pubend, tick))
            case Unsubscribe():
                self.gone(client)
            case _:
                pass

    def _drop(self, client: ClientName, place: Place) -> bool:
        if self._hands.get(place) != client:
            return False
        del self._hands[place]
        return True

    def gone(self, client: ClientName) -> None:
        """The connection of a member is over, or the member has left."""
        for place in [each for each, holder in self._hands.items() if holder == client]:
            del self._hands[place]
        for key in [key for key in self._asked if key[0] == client]:
            del self._asked[key]

    def crashed(self, broker: BrokerName) -> None:
        """If this is the broker of the group, it has lost its memory."""
        if broker != self._home:
            return
        self._hands.clear()
        self._asked.clear()
        self._finished = set(self._confirmed)

    # --- dead letters -----------------------------------------------------------------------------

    def committed(self, pubend: PubendName, tick: int, encoded: bytes) -> None:
        if self.record.network.pubends[pubend].topic != self.plan.dead_letters:
            return
        why = decode_attributes(EventBatch((encoded,)))[0]
        place = PubendName(str(why["dead_letter_pubend"])), int(str(why["dead_letter_tick"]))
        where = f"{place[0]} {show_tick(place[1])}"
        if place in self._letters:
            raise self.violated(f"G3: {where} is a dead letter twice")
        if place in self._confirmed or place in self._finished:
            raise self.violated(f"G3: {where} is finished, and a dead letter")
        if why["dead_letter_attempts"] != self.plan.attempts_max:
            raise self.violated(f"{where} was given up after {why['dead_letter_attempts']!r}")
        self._letters.add(place)

    # --- the end ----------------------------------------------------------------------------------

    def waiting(self) -> list[str]:
        """What is not finished yet."""
        if self.start is None:
            return ["the group has not begun"]
        return [
            f"{pubend} {show_tick(tick)} is not finished"
            for pubend in self.start
            for tick in self._wanted(pubend)
            if (pubend, tick) not in self._handled | self._letters or (pubend, tick) in self._hands
        ]

    @property
    def letter_count(self) -> int:
        return len(self._letters)

    @property
    def finished_count(self) -> int:
        return len(self._handled)

    def _wanted(self, pubend: PubendName) -> list[int]:
        first = (self.start or {}).get(pubend, 0)
        ticks = self.record.logs[pubend].between(first, 1 << 63)
        return [tick for tick in ticks if self._matches((pubend, tick))]

    def _attributes(self, place: Place) -> dict[str, object]:
        encoded = self.record.logs[place[0]].events[place[1]]
        return dict(self.record.publications[encoded].attributes)

    def _matches(self, place: Place) -> bool:
        if place[1] not in self.record.logs[place[0]].events:
            return False
        return Filter.parse(self.plan.condition).matches(self._attributes(place))  # type: ignore[arg-type]

    def _key(self, place: Place) -> Hashable:
        if place not in self._keys:
            value = self._attributes(place).get(self.plan.share_by)
            self._keys[place] = None if value is None else (type(value) is bool, value)
        return self._keys[place]
