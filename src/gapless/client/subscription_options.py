"""Options of a subscription, checked before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, get_args

from gapless.client import arguments
from gapless.client.parts import check_topics, part_names, split_token
from gapless.core.client_messages import Order, Sharing, TokenKeeper
from gapless.core.errors import UsageError
from gapless.core.token import Token

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gapless.core.identity import SubscriptionName, TopicName

Start = str | Token | datetime
"""`"latest"`, `"earliest"`, a token or its JSON text, or a time with its zone."""

Interruption = Literal["raise", "gap"]
Acknowledging = Literal[TokenKeeper, "each"]
"""Where the token is kept; `"each"`: at the broker, where each event is acknowledged alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionOptions:
    """What an application asked for. `name` is None for an anonymous subscription."""

    topic: TopicName
    condition: str = ""
    order: Order = "publisher"
    name: SubscriptionName | None = None
    token: Token | None = None
    earliest: bool = False
    instant: int | None = None  # microseconds
    tokens: TokenKeeper = "client"
    acknowledges_each: bool = False  # before the next one is handed out
    resumes: bool = False  # anonymous: goes on after a lost connection, with a gap
    silence: bool = False
    share: Sharing | None = None  # of a group
    in_hand_max: int = 0  # of a member; 0: as many as the broker allows
    topics: tuple[TopicName, ...] = ()  # of a part of a named subscription over several topics


DEAD_LETTERS = "dead_letters"
"""The topic of dead letters, unless another is given."""


def check_group(
    options: SubscriptionOptions,
    share_by: str,
    attempts_max: int | None,
    dead_letters: str | None,
    in_hand_max: int | None = None,
) -> SubscriptionOptions:
    """The options of a member of a group; `UsageError` if they contradict each other."""
    if options.name is None:
        raise UsageError("a group needs a name", "Give name=…, the same to all members.")
    if options.token is not None:
        raise UsageError("a group has no token to start at", "Leave start out: its broker knows.")
    if options.order != "publisher" or options.silence or options.resumes:
        raise UsageError(
            "a group has order by key, and tells no silence",
            "Leave order, silence and interruption out, or leave share_by out.",
        )
    if attempts_max is None and dead_letters is not None:
        raise UsageError("dead letters need attempts_max", "Say after how many attempts.")
    if options.acknowledges_each:
        raise UsageError("a group has no tokens to keep", "Leave tokens out: finish each event.")
    share = Sharing(arguments.name("share_by", share_by))
    if attempts_max is not None:
        most = arguments.count("attempts_max", attempts_max, 1)
        share = Sharing(share.share_by, most, arguments.topic(dead_letters or DEAD_LETTERS))
    in_hand = 0 if in_hand_max is None else arguments.count("in_hand_max", in_hand_max, 1)
    return replace(options, tokens="broker", share=share, in_hand_max=in_hand)


def check_options(
    topic: str,
    condition: str,
    *,
    name: str | None,
    order: Order,
    start: Start,
    tokens: Acknowledging,
    interruption: Interruption,
    silence: bool,
) -> SubscriptionOptions:
    """The options as given; `UsageError` if they contradict each other."""
    choices: Mapping[str, tuple[object, tuple[object, ...]]] = {
        "order": (order, get_args(Order)),
        "tokens": (tokens, ("client", "broker", "each")),
        "interruption": (interruption, get_args(Interruption)),
    }
    for what, (given, known) in choices.items():
        arguments.choice(what, given, known)
    if name is None and (start != "latest" or tokens != "client"):
        raise UsageError(
            "an anonymous subscription starts now and has no token to keep",
            "Give it a name, or leave start and tokens out.",
        )
    if name == "":
        raise UsageError("a subscription's name is not empty", "Give another, or none.")
    token, earliest, instant = parse_start(start)
    return SubscriptionOptions(
        topic=arguments.topic(topic),
        condition=arguments.condition(condition),
        order=order,
        name=None if name is None else arguments.subscription(name),
        token=token,
        earliest=earliest,
        instant=instant,
        tokens="broker" if tokens == "each" else tokens,
        acknowledges_each=tokens == "each",
        resumes=interruption == "gap",
        silence=silence,
    )


def check_parts(
    topics: Sequence[str],
    condition: str,
    *,
    name: str | None,
    order: Order,
    start: Start,
    tokens: Acknowledging,
    interruption: Interruption,
    silence: bool,
) -> list[SubscriptionOptions]:
    """The options of each part of a subscription over several topics, as given."""
    every = check_topics(topics)
    if tokens == "each":
        problem = 'tokens="each" is for one topic'
        raise UsageError(problem, 'Use tokens="broker", or a subscription for each topic.')
    if name is None and order == "total" and len(every) > 1:
        problem = "a total order over several topics needs a name"
        raise UsageError(problem, "Give name=…, and unsubscribe it at the end.")
    whole = check_options(
        every[0],
        condition,
        name=name,
        order=order,
        start=start,
        tokens=tokens,
        interruption=interruption,
        silence=silence,
    )
    names = {} if whole.name is None else part_names(whole.name, every)
    starts = {} if whole.token is None else split_token(whole.token, every)
    return [
        replace(
            whole,
            topic=topic,
            name=names.get(topic),
            token=starts.get(topic),
            topics=every if names and len(every) > 1 else (),
        )
        for topic in every
    ]


def parse_start(start: Start) -> tuple[Token | None, bool, int | None]:
    """A token, or whether to start at the oldest event, or an instant; none of them: start now."""
    if isinstance(start, Token):
        return start, False, None
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise UsageError(f"start={start} has no time zone", "Use datetime.now(UTC) and such.")
        return None, False, int(start.timestamp() * 1_000_000)
    if str(start).lstrip().startswith("{"):
        return Token.from_json(str(start)), False, None
    if start not in ("latest", "earliest"):
        raise UsageError(
            f"start={start!r} is no place to start",
            'Use "latest", "earliest", a token, its JSON text, or a datetime.',
        )
    return None, start == "earliest", None
