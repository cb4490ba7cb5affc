"""NamedGroups: the groups of one broker, their feeds, and their clients.

Theory of operation
    A group is attached to its named subscription like a client, under a name of its own: that is
    its feed. The node hands to `receive` what the broker sends to that name. A client that attaches
    to the group becomes a member as soon as the feed has begun; the feed is open while there is a
    member. Each step only notes which groups it has touched. At its end (`settle`) these open or
    close their feeds, hand out events, acknowledge their low-water marks, and go on with their dead
    letters. Then the facts of all groups that have changed are written, unless a write is under
    way: what happens meanwhile gathers. Answers to members leave with the write that has what they
    are about.

Invariants (checked by `check`): those of the groups, and
    I1  a group with members has a feed, at the end of a step
    I2  every member is of a connected client
    I3  what must be durable is being written, or will be: there is a deadline, or a write

Source: docs/protocols/groups.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.client_messages import (
    CaughtUp,
    Deliveries,
    Done,
    Ended,
    FellBehind,
    Lost,
    PublisherPosition,
    Receipt,
    Refused,
    Subscribed,
)
from gapless.core.effects import Delete, Effect, Persist, Put, Send, Tell
from gapless.core.errors import listed, quoted
from gapless.core.events import EventBatch
from gapless.core.group_messages import Finish, Handed, Reject, TakenBack
from gapless.core.identity import ClientName, Instant, PeerName, PubendName
from gapless.core.messages import Message
from gapless.core.portion import WHOLE, Portion
from gapless.core.share_key import share_key
from gapless.core.token import Token
from gapless.knowledge.batch import cut
from gapless.node.deadlines import earliest
from gapless.node.groups.member_group import GroupLimits
from gapless.node.groups.progress import NEVER
from gapless.node.subscriptions.dead_letters import DeadLetters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gapless.core.client_messages import Subscribe
    from gapless.durable.subscriptions import DurableSubscription
    from gapless.knowledge.pubend import Pubend
    from gapless.node.context import Context
    from gapless.node.groups.lane import GroupMember, MemberKey, OpenEvent
    from gapless.node.groups.member_group import MemberGroup
    from gapless.node.subscriptions.attachments import Attachments

GROUPS = "groups"
"""Table on disk: by the number of the subscription, the fact of its group."""

FEED = "feed of group "
"""How the names of feeds begin. No driver gives a client such a name."""

SHOWN_MAX = 4
"""Ticks that a refusal names."""

NOT_IN_HAND = "Finish or reject an event once, and on the connection that it came on."


class GroupsPersisted(Message, frozen=True):
    """To ourselves: the facts of some groups are durable (or, not `ok`, had no room)."""

    ok: bool = True


class FeedTold(Message, frozen=True):
    """To ourselves: a write is durable after which the feed of a group gets this message."""

    feed: PeerName
    message: Message


def is_feed(peer: PeerName) -> bool:
    return peer.startswith(FEED)


def keep_inside(effect: Effect) -> Effect:
    """The effect with what it sends to feeds after a write as messages to ourselves."""
    if not isinstance(effect, Persist):
        return effect
    if not any(isinstance(each, Send) and is_feed(each.to) for each in effect.then):
        return effect
    then = tuple(
        Tell(FeedTold(each.to, each.message))
        if isinstance(each, Send) and is_feed(each.to)
        else each
        for each in effect.then
    )
    return Persist(effect.writes, then, effect.otherwise)


@dataclass(slots=True, eq=False)
class NamedGroup:
    """One group. See the module docstring."""

    subscription: DurableSubscription
    feed: ClientName
    group: MemberGroup
    letters: DeadLetters
    applicants: dict[MemberKey, Subscribe] = field(default_factory=dict)
    """Clients that become members when the feed has begun, and their requests."""

    has_session: bool = False
    is_begun: bool = False  # the feed has told where it starts
    lags: set[PubendName] = field(default_factory=set)  # where the feed catches up
    acknowledged: Token = field(default_factory=Token)
    answers: list[Effect] = field(default_factory=list)  # when the next write is durable

    @property
    def deadline(self) -> Instant | None:
        return earliest((self.group.deadline, self.letters.deadline))


class NamedGroups:
    """All groups of one broker. See the module docstring."""

    def __init__(
        self, context: Context, attachments: Attachments, pubends: Mapping[PubendName, Pubend]
    ) -> None:
        self._context = context
        self._config = context.config
        self._attachments = attachments
        self._clients = attachments.subscribers.clients
        self._pubends = pubends
        self.is_used = False  # has there been a group in this life of the broker?
        self._groups: dict[int, NamedGroup] = {}  # by number of the subscription
        self._memberships: dict[ClientName, dict[int, NamedGroup]] = {}
        self._is_paused = False  # the broker is drained
        self._touched: dict[NamedGroup, None] = {}
        self._due: dict[NamedGroup, Instant] = {}
        self._retry: Instant | None = None  # a write that had no room
        self._unwritten: dict[NamedGroup, None] = {}
        self._write: list[tuple[NamedGroup, list[Effect]]] | None = None

    # --- clients ----------------------------------------------------------------------------------

    def join(
        self, subscription: DurableSubscription, client: ClientName, message: Subscribe
    ) -> list[Effect]:
        """Attach a client to the group of a subscription; the answer comes at the end of a step."""
        shared = self._shared(subscription)
        count = len(shared.group.members) + len(shared.applicants)
        if count >= self._config.group_members_max:
            name = quoted(subscription.definition.name)
            problem = f"the group {name} has {count} members, which is its limit"
            remedy = "Use a member that is there, or end one."
            return [Send(client, Refused(message.request, problem, remedy))]
        shared.applicants[client, message.subscription] = message
        self._memberships.setdefault(client, {})[message.subscription] = shared
        self._touched[shared] = None
        return []

    def _shared(self, subscription: DurableSubscription) -> NamedGroup:
        number, definition = subscription.number, subscription.definition
        if number not in self._groups:
            self.is_used = True
            feed, config = ClientName(f"{FEED}{number}"), self._config
            limits = GroupLimits(
                config.group_member_events_max,
                config.client_queue_bytes_max,
                config.group_keys_max,
                definition.attempts_max,
            )
            fact = self._context.store.get(GROUPS, str(number))
            group = self._context.parts.member_group(limits, fact)
            letters = DeadLetters(self._context, self._pubends, group, definition, feed)
            self._groups[number] = NamedGroup(subscription, feed, group, letters)
        return self._groups[number]

    def pause(self) -> None:
        """Take in nothing more: members finish what the groups have got so far."""
        self._is_paused = True

    def obstacle(self, subscription: DurableSubscription) -> str:
        """Why a group that is paused cannot go on elsewhere yet; empty if it can."""
        group = self._shared(subscription).group
        if open_count := group.open_count:
            return f"its members have {open_count} events to finish"
        if group.has_islands:
            return "events are finished out of order: start a member"
        return ""

    def has(self, client: ClientName, number: int) -> bool:
        """Has the number on this connection a membership?"""
        return number in self._memberships.get(client, {})

    def leave(self, client: ClientName, number: int, *, is_lost: bool = False) -> bool:
        """End a membership, in order or with its connection; False if there is none."""
        shared = self._memberships.get(client, {}).pop(number, None)
        if shared is None:
            return False
        if not self._memberships[client]:
            del self._memberships[client]
        if shared.applicants.pop((client, number), None) is None:
            shared.group.leave((client, number), is_lost=is_lost)
        self._touched[shared] = None
        return True

    def disconnect(self, client: ClientName) -> None:
        for number in list(self._memberships.get(client, {})):
            self.leave(client, number, is_lost=True)

    def request(self, client: ClientName, message: Finish | Reject, now: Instant) -> list[Effect]:
        """A member says what became of events that it has in hand."""
        key = client, message.subscription
        shared = self._memberships.get(client, {}).get(message.subscription)
        if shared is None or key in shared.applicants:
            problem = f"subscription {message.subscription} is no member of a group"
            return self._refuse(client, message, problem, "Join the group first.")
        missing = shared.group.missing(key, message.pubend, message.ticks)
        if missing and message.request:
            shown = listed([str(tick) for tick in missing], SHOWN_MAX)
            problem = f"this member does not have {shown} of {quoted(message.pubend)} in hand"
            return self._refuse(client, message, problem, NOT_IN_HAND)
        absent, effects = set(missing), list[Effect]()
        ticks = [tick for tick in message.ticks if tick not in absent]
        if not ticks:
            return [Send(client, Done(message.request))] if message.request else []
        if isinstance(message, Finish):
            shared.group.finish(key, message.pubend, ticks)
        else:
            until = Instant(now + message.delay) if message.delay else None
            reason, counts = message.reason, message.counts
            shared.group.reject(
                key, message.pubend, ticks, reason=reason, counts=counts, until=until
            )
            if counts:
                taken_back = TakenBack(message.subscription, message.pubend, message.ticks)
                effects.append(Send(client, taken_back))
        if message.request:
            shared.answers.append(Send(client, Done(message.request)))
        self._touched[shared] = None
        return effects

    def _refuse(
        self, client: ClientName, message: Finish | Reject, problem: str, remedy: str
    ) -> list[Effect]:
        if not message.request:
            return []
        return [Send(client, Refused(message.request, problem, remedy))]

    # --- what the feed gets -----------------------------------------------------------------------

    def receive(self, feed: PeerName, message: Message, now: Instant) -> list[Effect]:
        """Take in what the broker sends to the feed of a group."""
        shared = self._groups.get(int(feed.removeprefix(FEED)))
        if shared is None:
            return []  # it has ended meanwhile
        self._touched[shared] = None
        match message:
            case Subscribed(start=start, behind=behind):
                shared.is_begun = True
                shared.lags = set(map(PubendName, behind))
                shared.group.begin({PubendName(name): tick for name, tick in start.items()})
            case Deliveries():
                self._take(shared, message)
            case CaughtUp(pubend=pubend):
                shared.lags.discard(pubend)
            case FellBehind(pubend=pubend):
                shared.lags.add(pubend)
            case Lost(pubend=pubend, span=span):
                return [
                    Send(client, Lost((number,), pubend, span))
                    for client, number in shared.group.members
                ]
            case Ended(problem=problem, remedy=remedy, elsewhere=elsewhere):
                return self._end(shared, problem, remedy, elsewhere=elsewhere)
            case Refused(request=0, problem=problem, remedy=remedy):
                return self._end(shared, problem, remedy, elsewhere=False)
            case Receipt() | PublisherPosition() | Refused():
                shared.letters.receive(message, now)
            case _:
                raise AssertionError(f"{message} is nothing that a group asked for")
        return []

    def _take(self, shared: NamedGroup, message: Deliveries) -> None:
        pubend = message.pubend
        if pubend is None or not shared.is_begun or self._is_paused:
            return
        if message.only is None and pubend in shared.lags:
            return  # it is about subscriptions that are level
        share_by = shared.subscription.definition.share_by
        attributes = self._context.encoding.attributes_of(message.events) if message.ticks else ()
        keys = [share_key(each, share_by) for each in attributes]
        shared.group.receive(pubend, message.ticks, message.events.events, keys, message.through)

    def _end(
        self, shared: NamedGroup, problem: str, remedy: str, *, elsewhere: bool
    ) -> list[Effect]:
        """The feed has ended: so has every membership."""
        effects: list[Effect] = [
            Send(client, Refused(each.request, problem, remedy, retry=True))
            for (client, _), each in shared.applicants.items()
        ]
        for client, number in shared.group.members:
            effects.append(Send(client, Ended(number, problem, remedy, elsewhere)))
        for client, number in [*shared.applicants, *shared.group.members]:
            self.leave(client, number)
        shared.has_session = False  # it is closed already
        self._close(shared)
        return effects

    # --- the end of a step ------------------------------------------------------------------------

    @property
    def is_quiet(self) -> bool:
        return not self._touched

    def settle(self, now: Instant) -> list[Effect]:
        """Let every group that this step has touched go on."""
        effects: list[Effect] = []
        while self._touched:
            touched, self._touched = self._touched, {}
            for shared in touched:
                effects += self._go_on(shared, now)
                if shared.group.is_changed or shared.answers:
                    self._unwritten[shared] = None
        return effects + self._write_facts()

    def _go_on(self, shared: NamedGroup, now: Instant) -> list[Effect]:
        definition = shared.subscription.definition
        subscriptions = self._attachments.named.subscriptions
        if subscriptions.get(definition.name) is not shared.subscription:
            return self._forget(shared)
        if not (shared.applicants or shared.group.members):
            return self._close(shared)
        effects: list[Effect] = []
        if not shared.has_session:
            effects += self._open(shared)
        if shared.is_begun:
            effects += self._admit(shared)
        for member, events in shared.group.hand_out(now):
            effects += self._pack(shared, member, events)
        effects += shared.letters.go_on(now)
        effects += self._acknowledge(shared, now)
        if (deadline := shared.deadline) is not None:
            self._due[shared] = deadline
        else:
            self._due.pop(shared, None)
        return effects

    def _open(self, shared: NamedGroup) -> list[Effect]:
        definition = shared.subscription.definition
        self._clients.connect(shared.feed, definition.owner)
        start = shared.subscription.start.join(Token(shared.group.low()))
        shared.has_session = True
        return self._attachments.open_feed(shared.subscription, shared.feed, start)

    def _admit(self, shared: NamedGroup) -> list[Effect]:
        effects: list[Effect] = []
        start = {str(pubend): tick for pubend, tick in shared.group.low().items()}
        moves = shared.subscription.definition.moves
        for key, each in shared.applicants.items():
            shared.group.join(key, each.in_hand_max)
            effects.append(Send(key[0], Subscribed(each.request, key[1], start, (), moves)))
        shared.applicants.clear()
        return effects

    def _pack(
        self, shared: NamedGroup, member: GroupMember, events: Sequence[OpenEvent]
    ) -> list[Effect]:
        """One message for each run of events of one pubend that fits one."""
        client, number = member.key
        topic, effects = shared.subscription.definition.topic, list[Effect]()
        bounds = [
            0,
            *(i for i in range(1, len(events)) if events[i].pubend != events[i - 1].pubend),
        ]
        for first, end in zip(bounds, [*bounds[1:], len(events)], strict=True):
            run = events[first:end]
            limits = self._config.batch_events_max, self._config.batch_bytes_max
            for low, high in cut([each.encoded for each in run], *limits):
                part = run[low:high]
                tried = tuple(shared.group.attempts(each).number for each in part)
                handed = Handed(
                    number,
                    topic,
                    part[0].pubend,
                    tuple(each.tick for each in part),
                    EventBatch(tuple(each.encoded for each in part)),
                    tried if any(tried) else (),
                )
                effects.append(Send(client, handed))
        return effects

    def _acknowledge(self, shared: NamedGroup, now: Instant) -> list[Effect]:
        """Give the feed room for what the low-water marks have passed, and let it be released."""
        if passed := shared.group.take_passed():
            self._clients[shared.feed].consume(passed)
            self._attachments.stir_feed(shared.subscription.definition.name)
        low = Token(shared.group.low())
        if not shared.is_begun or low == shared.acknowledged:
            return []
        shared.acknowledged = low
        name = shared.subscription.definition.name
        return self._attachments.named.subscriptions.acknowledge(name, low, now)

    def _close(self, shared: NamedGroup) -> list[Effect]:
        """No member is left: the feed ends, and what was not finished comes again."""
        if shared.has_session:
            self._attachments.close_feed(shared.subscription.definition.name)
        shared.has_session = shared.is_begun = False
        self._clients.disconnect(shared.feed)
        shared.group.suspend()
        self._due.pop(shared, None)
        return []

    def _forget(self, shared: NamedGroup) -> list[Effect]:
        """The subscription has ended. While there is a session, its end is on the way to us."""
        if not shared.has_session and shared.subscription.number in self._groups:
            del self._groups[shared.subscription.number]
            shared.group.is_changed = False
            shared.answers.clear()
            self._unwritten.pop(shared, None)
        return []

    def ended(self, subscription: DurableSubscription) -> list[Effect]:
        """A subscription has ended: forget its group, whose members are told by its session."""
        if (shared := self._groups.get(subscription.number)) is not None:
            self._touched[shared] = None
        return [Persist((Delete(GROUPS, str(subscription.number)),))]

    def restore(self) -> list[Effect]:
        """Delete facts of subscriptions that have ended; a crash may have left some."""
        numbers = {str(each.number) for each in self._attachments.named.subscriptions.all()}
        facts = self._context.store.items(GROUPS)
        writes = tuple(Delete(GROUPS, key) for key in sorted(facts) if key not in numbers)
        return [Persist(writes)] if writes else []

    # --- writes, time -----------------------------------------------------------------------------

    def _write_facts(self) -> list[Effect]:
        """Write what has changed, unless a write is under way or has to wait."""
        if self._write is not None or self._retry is not None:
            return []
        changed, self._unwritten = self._unwritten, {}
        if not changed:
            return []
        self._write = []
        writes: list[Put] = []
        for shared in changed:
            writes.append(Put(GROUPS, str(shared.subscription.number), shared.group.encode()))
            shared.letters.encoded()
            self._write.append((shared, shared.answers))
            shared.answers = []
        done, failed = Tell(GroupsPersisted()), Tell(GroupsPersisted(ok=False))
        return [Persist(tuple(writes), (done,), (failed,))]

    def persisted(self, message: GroupsPersisted | FeedTold, now: Instant) -> list[Effect]:
        """A write has ended: answers leave that were about it."""
        if isinstance(message, FeedTold):
            return self.receive(message.feed, message.message, now)
        assert self._write is not None
        written, self._write = self._write, None
        effects: list[Effect] = []
        for shared, answers in written:
            if self._groups.get(shared.subscription.number) is not shared:
                continue  # it has ended meanwhile, and so have its members
            self._touched[shared] = None
            if message.ok:
                shared.letters.written()
                effects += answers
            else:
                shared.group.is_changed = True
                shared.answers[:0] = answers
        if not message.ok:
            self._retry = Instant(now + self._config.storage_retry)
        return effects

    @property
    def deadline(self) -> Instant | None:
        return earliest((self._retry, *self._due.values()))

    def fire(self, now: Instant) -> None:
        if self._retry is not None and self._retry <= now:
            self._retry = None
            self._touched.update(dict.fromkeys(self._groups.values()))
        for shared in [each for each, due in self._due.items() if due <= now]:
            self._touched[shared] = None

    # --- figures, invariants ----------------------------------------------------------------------

    @property
    def feed_count(self) -> int:
        return sum(each.has_session for each in self._groups.values())

    def describe(self, subscription: DurableSubscription) -> dict[str, object] | None:
        """Figures of the group of a subscription; None if it is no group."""
        definition = subscription.definition
        if not definition.share_by:
            return None
        about: dict[str, object] = {"share_by": definition.share_by}
        if definition.dead_letters is not None:
            about["attempts_max"] = definition.attempts_max
            about["dead_letters"] = definition.dead_letters
        shared = self._groups.get(subscription.number)
        if shared is None:
            return about | {"members": 0}
        group = shared.group
        return about | {
            "members": len(group.members),
            "in_hand": sum(len(each.in_hand) for each in group.members.values()),
            "unfinished": group.open_count,
            "finished_ahead": sum(map(len, group.progress.values())),
            "dead_letters_pending": len(group.dying),
        }

    def state_of_event(
        self, subscription: DurableSubscription, pubend: PubendName, tick: int
    ) -> dict[str, object] | None:
        """What the group has done with an event; None if it is no group, or knows nothing of it."""
        shared = self._groups.get(subscription.number)
        progress = shared.group.progress.get(pubend) if shared is not None else None
        if progress is None:
            return None
        tried = progress.attempts.get(tick, NEVER)
        about: dict[str, object] = {"attempts": tried.number, "reason": tried.reason}
        event = progress.open.get(tick)
        if event is not None:
            is_in_hand = event.member is not None
            state = "dying" if event.is_dying else "in hand" if is_in_hand else "pending"
            return about | {"state": state}
        return about | {"state": "finished" if progress.is_finished(tick) else "pending"}

    def check(self, portion: Portion = WHOLE) -> None:
        for number, shared in portion.of(self._groups.items()):
            shared.group.check()
            assert shared.subscription.number == number
            name = shared.subscription.definition.name
            session = self._attachments.table.session(name)
            has_session = session is not None and session.name == shared.feed
            assert shared.has_session == has_session, f"I1 {name}"
            assert shared.has_session or not shared.group.members, f"I1 {name}"
            assert all(client in self._clients for client, _ in shared.group.members), "I2"
            if shared.group.is_changed or shared.answers:
                assert self._write is not None or self._retry is not None, "I3"
