"""Rights: what a principal may do, on which topics, and which right each message needs.

Theory of operation
    A principal is who a client has proved to be. It has four rights, each on the topics whose
    names match one of the right's patterns (`*`, `?`, `[…]`, case counts). `NEEDS` says for each
    message that a client may send which right it needs, and in which field its topic stands: to
    add a message, add its line. What has no line is not taken from a client at all.
    The check comes before anything is looked up, and its answer depends on nothing but the
    principal's rights and the name it gave itself: so a refusal does not tell what exists.

Invariants
    I1  no right, no effect: `refusal` is None only if the principal has the right or none is needed
    I2  the refusal of a name that exists and of one that does not are the same

Cost: a few name patterns for each publication or subscription; nothing for each event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gapless.core.client_messages import (
    Acknowledge,
    AlterationNoted,
    AlterSubscription,
    Consumed,
    Forget,
    Publish,
    PublisherQuery,
    Refused,
    RetireBroker,
    Subscribe,
    Unsubscribe,
)
from gapless.core.errors import ProtocolError, UsageError, quoted
from gapless.core.group_messages import Finish, Reject
from gapless.core.range_messages import PositionsQuery, ReadRange
from gapless.core.roster_messages import RosterQuery, Strike
from gapless.core.topic_messages import AlterTopic, CreateTopic, DeleteTopic, TopicList, TopicsQuery
from gapless.core.transaction_messages import Abort, Commit, ProducerQuery, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.messages import Message

EVERYTHING = "*"


class Right(StrEnum):
    """What there is to be allowed."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    """And read what is kept; end a durable subscription of one's own."""

    CREATE = "create"
    """Make and delete topics."""

    ADMINISTER = "administer"
    """End durable subscriptions of others; see and remove names of publishers, producers and open
    transactions; on `*`: look at the admin port."""


class Need(NamedTuple):
    """A right, on the topic that stands in this field of the message, or on `*`."""

    right: Right
    field: str = "topic"


NEEDS: dict[type[Message], Need | None] = {
    Publish: Need(Right.PUBLISH),
    PublisherQuery: Need(Right.PUBLISH),
    Subscribe: Need(Right.SUBSCRIBE),
    Forget: None,  # names no topic: `name_refusal`
    AlterSubscription: None,
    AlterationNoted: None,
    Acknowledge: None,  # of subscriptions of the same connection, which were allowed; or by name
    Unsubscribe: None,
    Consumed: None,
    Finish: None,  # of memberships of the same connection, which were allowed
    Reject: None,
    Stage: Need(Right.PUBLISH),
    Commit: Need(Right.PUBLISH),
    Abort: Need(Right.PUBLISH),
    ProducerQuery: Need(Right.PUBLISH),
    ReadRange: Need(Right.SUBSCRIBE),
    PositionsQuery: Need(Right.SUBSCRIBE),
    RosterQuery: Need(Right.ADMINISTER),
    Strike: Need(Right.ADMINISTER),
    RetireBroker: Need(Right.ADMINISTER, EVERYTHING),
    CreateTopic: Need(Right.CREATE, "name"),
    DeleteTopic: Need(Right.CREATE, "name"),
    AlterTopic: Need(Right.CREATE, "name"),
    TopicsQuery: None,  # whoever asks is shown those it has any right on: `visible`
}
"""None: whoever is connected may send it."""

_NEEDS_BY_TAG = {kind.__struct_config__.tag: need for kind, need in NEEDS.items()}

ASK = "Ask whoever runs the broker for the right."


@dataclass(frozen=True)
class Rights:
    """By right: patterns of topics."""

    patterns: Mapping[Right, tuple[str, ...]] = field(default_factory=dict)

    def may(self, right: Right, topic: str) -> bool:
        return any(fnmatchcase(topic, pattern) for pattern in self.patterns.get(right, ()))

    def may_know(self, topic: str) -> bool:
        """Whether there is any right on it."""
        return any(self.may(right, topic) for right in Right)

    @property
    def administers(self) -> bool:
        """Whether the admin port is for it."""
        return EVERYTHING in self.patterns.get(Right.ADMINISTER, ())

    def __bool__(self) -> bool:
        return any(self.patterns.values())

    def has_all_of(self, other: Rights) -> bool:
        """Whether nothing that the other allows is missing here, pattern by pattern."""
        mine = {right: {*some} for right, some in self.patterns.items()}
        return all({*some} <= mine.get(right, set()) for right, some in other.patterns.items())

    def join(self, other: Rights) -> Rights:
        """What either allows."""
        both = {
            right: (*self.patterns.get(right, ()), *other.patterns.get(right, ()))
            for right in Right
        }
        return Rights({right: tuple(dict.fromkeys(some)) for right, some in both.items() if some})

    def show(self) -> str:
        """As `parse_rights` reads it."""
        return " ".join(f"{right}={','.join(some)}" for right, some in self.patterns.items())


ALL_RIGHTS = Rights(dict.fromkeys(Right, (EVERYTHING,)))


def read_rights(table: object, where: str) -> Rights:
    """Of a table of lists, as network files and the file of principals have it."""
    if not isinstance(table, dict):
        raise UsageError(f"{where} is no table of rights", 'Write { publish = ["trades*"] }.')
    known = set(Right)
    for name, patterns in table.items():
        if name not in known:
            raise UsageError(f"{where}: there is no right {name!r}", f"There are: {_names()}.")
        if not isinstance(patterns, list) or not all(isinstance(p, str) and p for p in patterns):
            raise UsageError(f"{where}: {name} is no list of patterns", 'Write ["trades*"].')
    return Rights({Right(name): tuple(some) for name, some in table.items() if some})


def parse_rights(texts: list[str]) -> Rights:
    """Of `publish=trades*,orders` and the like; `all` is every right on every topic."""
    found = Rights()
    for word in (word for text in texts for word in text.split()):
        name, equals, patterns = word.partition("=")
        if word == "all":
            found = found.join(ALL_RIGHTS)
        elif not equals or not patterns or name not in set(Right):
            raise UsageError(
                f"{word!r} is no right", f"Write all, or RIGHT=PATTERN,… with: {_names()}."
            )
        else:
            some = tuple(each for each in patterns.split(",") if each)
            found = found.join(Rights({Right(name): some}))
    return found


def _names() -> str:
    return ", ".join(Right)


def refusal(rights: Rights, message: Message) -> Refused | None:
    """Why the message may not be carried out; None if it may. `ProtocolError`: not of a client."""
    kind = type(message)
    if kind not in NEEDS:
        raise ProtocolError(f"{kind.__name__} is not for clients")
    need = NEEDS[kind]
    if need is None:
        return None
    topic = EVERYTHING if need.field == EVERYTHING else str(getattr(message, need.field))
    if rights.may(need.right, topic):
        return _dead_letter_refusal(rights, message)
    return _refused(message, f"not allowed to {need.right} on topic {quoted(topic)}")


def _dead_letter_refusal(rights: Rights, message: Message) -> Refused | None:
    """A group publishes its dead letters in the name of the client that makes it."""
    share = message.share if isinstance(message, Subscribe) else None
    topic = share.dead_letters if share is not None else None
    if topic is None or rights.may(Right.PUBLISH, topic):
        return None
    return _refused(message, f"not allowed to {Right.PUBLISH} on topic {quoted(topic)}")


def begin_refusal(rights: Rights, head: Mapping[str, str | int]) -> Refused | None:
    """The same for a message of which only the first fields are known; None: look at all of it.
    `ProtocolError`: it may not be carried out, and there is no way to answer it."""
    need = _NEEDS_BY_TAG.get(head.get("kind", ""))
    topic = head.get(need.field) if need is not None else None
    if need is None or not isinstance(topic, str) or rights.may(need.right, topic):
        return None
    problem = f"not allowed to {need.right} on topic {quoted(topic)}"
    request = head.get("request")
    if not isinstance(request, int):
        raise ProtocolError(problem, ASK)
    return Refused(request, problem, ASK)


def name_refusal(
    rights: Rights, message: Forget | Acknowledge | AlterSubscription, topic: str
) -> Refused | None:
    """The same for the end of a durable subscription of one's own, on this topic, for what is
    acknowledged under its name, and for its change. Whether one of somebody else may be ended or
    changed the node decides."""
    if rights.may(Right.SUBSCRIBE, topic) or rights.may(Right.ADMINISTER, topic):
        return None
    return Refused(
        message.request,
        f"there is no subscription {quoted(message.name)} of yours",
        "Check the name, and who you are connected as.",
    )


def visible(rights: Rights, message: TopicList) -> TopicList:
    """The topics on which there is any right; of others it is not told that they exist. Who created
    them is told to those who administer them."""
    known = [topic for topic in message.topics if rights.may_know(topic.name)]
    return replace(
        message,
        topics=tuple(
            each
            if not each.owner or rights.may(Right.ADMINISTER, each.name)
            else replace(each, owner="")
            for each in known
        ),
    )


def _refused(message: Message, problem: str) -> Refused:
    request = getattr(message, "request", None)
    if request is None:  # there is no way to answer it but the end of the link
        raise ProtocolError(problem, ASK)
    return Refused(request, problem, ASK)
