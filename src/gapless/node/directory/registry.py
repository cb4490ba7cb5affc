"""The registry: at which broker each name of a durable subscription is at home, as its registrar
keeps it.

Theory of operation
    Each name has one registrar among the brokers that host subscribers, by rendezvous hashing, as
    topics have owners. The registrar answers when its note is durable, not before. A free name goes
    to the first broker that claims it. Statements about a name are ordered by its count of moves,
    so that they may come late, twice or in any order. A life that ends raises `floor`, the count
    at which the next life of any name begins. So messages about a life that is over never meet the
    next one, and the registrar need not remember names that are nowhere. (`floor` leaves room for
    one move: a copy may be on its way when a subscription ends.)
    A claim by the broker that is noted already is a new claim only if it is younger than the noted
    one: that broker crashed before it made the subscription, or has ended it since.
    A broker that claims a name which was at home with it says where the name went. If that life is
    over, its statement leads to a broker that would end the next life; so the registrar remembers
    the newest ends.
    An entry that leads to a broker without such a subscription does no harm: a client that is sent
    there makes that broker claim the name. A missing entry would do harm.

Invariants (checked by `check`)
    I1  of one name the statement of the highest rank stays, until it is freed
    I2  no life starts below the end of another that was noted: every entry that was claimed is
        below `floor`, or at it

    I3  at most `FREED_MAX` ends are remembered, and none over a restart

Cost: an entry is about 100 bytes on disk and in memory; one write for a claim, a move, an end.
What is asked about a name that is being written is passed over: it is asked again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from gapless.core.effects import Delete, Persist, Put, Tell
from gapless.core.identity import BrokerName, SubscriptionName
from gapless.core.ledger import Account
from gapless.core.lengths import COUNT_MAX
from gapless.core.messages import Message
from gapless.core.name_messages import NameAnswer, NameEntry, NameQuestion
from gapless.core.portion import WHOLE, Portion
from gapless.node.recent import remember
from gapless.node.routing import score

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.effects import Effect, Write
    from gapless.core.store import Store
    from gapless.node.config import Config
    from gapless.node.network import Network

NAMES = "names"
FLOORS = "name floors"
FLOOR = "floor"
FREED_MAX = 10_000


class Noted(Message, frozen=True):
    """To ourselves: what was to be noted is durable (or, not `ok`, had no room)."""

    question: NameQuestion
    entry: NameEntry | None
    ok: bool = True


def registrar_of(network: Network, name: SubscriptionName) -> BrokerName | None:
    """The broker that knows where the name is at home; None where nobody hosts subscribers."""
    names = [cell.brokers[0].name for cell in network.cells if cell.subscribers]
    return min(names, key=lambda each: (score(name, each), each), default=None)


class Registry:
    """The names of which one broker is the registrar. See the module docstring."""

    def __init__(
        self,
        name: BrokerName,
        network: Network,
        config: Config,
        store: Store,
        own: Callable[[SubscriptionName], NameEntry | None],
    ) -> None:
        """`own`: what our own subscriptions say of a name."""
        self.name = name
        self.network = network
        self.config = config
        self.own = own
        self.floor = int.from_bytes(store.get(FLOORS, FLOOR) or b"", "little")
        self.is_recalling = False  # the disk is another one: which names exist is being asked for
        self.writing: set[SubscriptionName] = set()
        self._freed: dict[SubscriptionName, int] = {}  # by name: the moves of a life that is over
        share = config.principal_share_percent
        self.account = Account("names of subscriptions", config.names_max, share)
        self.entries: dict[SubscriptionName, NameEntry] = {}
        for text, fact in store.items(NAMES).items():
            self._set(SubscriptionName(text), decode(fact))

    def find(self, name: SubscriptionName) -> NameEntry | None:
        """Where the name is at home, as far as is noted; brokers that are no more do not count."""
        newest = newer(self.entries.get(name), self.own(name))
        return newest if newest is not None and newest.home in self.network.cell_of else None

    # --- what is asked by other brokers -----------------------------------------------------------

    def receive(self, question: NameQuestion) -> tuple[NameAnswer | None, list[Effect]]:
        """The answer, if it can be given at once, and effects."""
        if question.name in self.writing or self._must_wait(question):
            return None, []
        entry = self.decide(question)
        if entry is not None and (problem := self.refusal(question, entry.owner)):
            return answer_to(question, None, problem), []
        if entry == self.entries.get(question.name):
            return answer_to(question, entry), []
        return None, self.note(question, entry)

    def refusal(self, question: NameQuestion, owner: str) -> str:
        """Why no further name of this owner is noted; empty if it may be, or is noted already. What
        exists is noted as long as there is room: the share is for what is to come."""
        if question.name in self.entries:
            return ""
        if len(self.entries) >= self.config.names_max:
            return f"{self.name!r} has noted {len(self.entries)} names, which is its limit"
        return self.account.refusal(owner, 1) if question.want == "claim" else ""

    def note(self, question: NameQuestion, entry: NameEntry | None) -> list[Effect]:
        """Write down what is decided; it is answered when that is durable."""
        self.writing.add(question.name)
        done, failed = Noted(question, entry), Noted(question, entry, ok=False)
        return [Persist(self._writes(question.name, entry), (Tell(done),), (Tell(failed),))]

    def noted(self, message: Noted) -> NameAnswer | None:
        """A write has ended. If there was no room, it is as if nobody had asked."""
        self.writing.discard(message.question.name)
        if not message.ok:
            return None
        self._set(message.question.name, message.entry)
        return answer_to(message.question, message.entry)

    # --- what we ask ourselves --------------------------------------------------------------------

    def ask(self, question: NameQuestion) -> tuple[NameAnswer | None, list[Effect]]:
        """The same for our own: it counts at once, since what depends on it goes to the same disk
        after it. If there is no room, our own subscriptions still say what is lost."""
        if question.name in self.writing or self._must_wait(question):
            return None, []
        entry = self.decide(question)
        if entry is not None and (problem := self.refusal(question, entry.owner)):
            return answer_to(question, None, problem), []
        effects: list[Effect] = []
        if entry != self.entries.get(question.name):
            self._set(question.name, entry)
            effects.append(Persist(self._writes(question.name, entry)))
        return answer_to(question, entry), effects

    # --- another disk -----------------------------------------------------------------------------

    def begin_recall(self) -> None:
        """Not all names may be known: nobody is told whose one is, until `end_recall`."""
        self.is_recalling = True

    def end_recall(self) -> None:
        self.is_recalling = False

    def _must_wait(self, question: NameQuestion) -> bool:
        """Is it asked whose a name is while not all names are known?"""
        return self.is_recalling and question.want in ("claim", "look")

    def raise_floor(self, moves: int) -> None:
        """No life may begin that has moved less often than one that was before."""
        self.floor = max(self.floor, min(moves + 2, COUNT_MAX // 2))

    # --- deciding ---------------------------------------------------------------------------------

    def decide(self, question: NameQuestion) -> NameEntry | None:
        """What is to be noted of the name from now on."""
        now, stated = self.find(question.name), question.known
        if question.want == "free":
            if stated is None or (now is not None and now.rank > stated.rank):
                return now
            self.floor = max(self.floor, stated.moves + 2)
            moves = max(stated.moves, self._freed.get(question.name, -1))
            remember(self._freed, question.name, moves, FREED_MAX)
            return None
        if question.want == "claim" and stated is not None:
            stated = stated if stated.moves > self._freed.get(question.name, -1) else None
        if stated is not None and self.is_news(now, stated):
            owner = stated.owner or (now.owner if now is not None else "")
            now = replace(stated, owner=owner)
        if question.want != "claim":
            return now
        claim = (question.epoch, question.number)
        if now is None:
            return NameEntry(question.sender, self.floor, question.owner, *claim)
        if now.home != question.sender or claim <= (now.epoch, now.number):
            return now
        self.floor = max(self.floor, now.moves + 2)
        lost = min(now.epoch + 1, now.lost or now.epoch + 1)
        return NameEntry(question.sender, self.floor, question.owner, *claim, lost=lost)

    def is_news(self, now: NameEntry | None, known: NameEntry | None) -> bool:
        """Does the second say more than the first? Nobody takes the name of another by saying that
        it has moved."""
        if known is None or known.home not in self.network.cell_of:
            return False
        if now is None:
            return True
        if known.owner not in ("", now.owner):
            return known.rank == now.rank and not now.owner  # whose it is was not known
        return (known.rank, known.altered) > (now.rank, now.altered)

    def _writes(self, name: SubscriptionName, entry: NameEntry | None) -> tuple[Write, ...]:
        """A floor that was raised goes along: by an end, or by a claim at the new floor."""
        write = Delete(NAMES, name) if entry is None else Put(NAMES, name, encode(entry))
        if self.floor and (entry is None or entry.moves == self.floor):
            return write, Put(FLOORS, FLOOR, self.floor.to_bytes(8, "little"))
        return (write,)

    def _set(self, name: SubscriptionName, entry: NameEntry | None) -> None:
        if (old := self.entries.pop(name, None)) is not None:
            self.account.give_back(old.owner)
        if entry is not None:
            self.account.take(entry.owner)
            self.entries[name] = entry

    def check(self, portion: Portion = WHOLE) -> None:
        for name, entry in portion.of(self.entries.items()):
            assert entry.number == 0 or entry.moves <= self.floor, f"I2 {name}"
            assert registrar_of(self.network, name) is not None
        assert len(self._freed) <= FREED_MAX, "I3"
        self.account.check()
        assert self.account.total == len(self.entries), "each name counts for its owner"


def newer(one: NameEntry | None, other: NameEntry | None) -> NameEntry | None:
    """Which of two statements holds."""
    if one is None or other is None:
        return one or other
    return one if (one.rank, one.altered) >= (other.rank, other.altered) else other


def is_same_life(known: NameEntry | None, entry: NameEntry | None) -> bool:
    """Is the second where the first has moved to? A new life would begin two moves on."""
    if known is None or entry is None:
        return False
    return (entry.moves, entry.number) == (known.moves + 1, 0)


def answer_to(question: NameQuestion, entry: NameEntry | None, problem: str = "") -> NameAnswer:
    return NameAnswer(
        question.name, question.receiver, question.sender, question.number, entry, problem
    )


def encode(entry: NameEntry) -> bytes:
    return json.dumps(asdict(entry), sort_keys=True).encode()


def decode(fact: bytes) -> NameEntry:
    return NameEntry(**json.loads(fact))
