"""Parts: a named subscription over several topics is one named subscription for each of them.

The first part, in the order of topics, has the name that the user gave; every other one has that
name, a slash and its topic. Brokers keep all topics with each part, so that whoever knows the name
finds the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.client import arguments
from gapless.client.errors import RefusedError
from gapless.client.requests import ask_for
from gapless.core.client_messages import TOPICS_MAX, Acknowledge, Done
from gapless.core.errors import UsageError
from gapless.core.token import Token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.client.channel import Channel
    from gapless.core.identity import SubscriptionName, TopicName


def check_topics(given: Sequence[str]) -> tuple[TopicName, ...]:
    """The topics of one subscription, sorted; `UsageError` if they are none."""
    topics = tuple(sorted({arguments.topic(each) for each in given}))
    if not topics or len(topics) != len(given) or len(topics) > TOPICS_MAX:
        problem = f"{len(given)} topics, {len(topics)} of them different, are no subscription"
        raise UsageError(problem, f"Give 1 to {TOPICS_MAX} topics, each once.")
    return topics


def part_names(
    name: SubscriptionName, topics: Sequence[TopicName]
) -> dict[TopicName, SubscriptionName]:
    """By topic: the name of the part. `topics` is sorted."""
    return {
        topic: arguments.subscription(f"{name}/{topic}" if number else name)
        for number, topic in enumerate(topics)
    }


def topic_of(pubend: str) -> str:
    """The topic of a pubend: its name is the topic, perhaps with the number of its creation, and
    its own number. No topic's name has an @."""
    return pubend.rpartition("/")[0].partition("@")[0]


def split_token(token: Token, topics: Sequence[TopicName]) -> dict[TopicName, Token]:
    """By topic: its part of the token. `UsageError` if it names another topic."""
    if strange := [pubend for pubend, _ in token if topic_of(pubend) not in topics]:
        problem = f"the token names {strange[0]!r}, which is of none of {', '.join(topics)}"
        raise UsageError(problem, "Give the token of a subscription to these topics.")
    return {
        topic: Token({pubend: tick for pubend, tick in token if topic_of(pubend) == topic})
        for topic in topics
    }


async def find_parts(channel: Channel, name: SubscriptionName) -> dict[TopicName, SubscriptionName]:
    """The parts of a subscription that a broker has; none: it is on one topic alone.
    `RefusedError` if there is no subscription of that name."""
    done = await ask_for(
        channel,
        lambda request: Acknowledge(0, {}, request, name),
        Done,
        f"subscription {name}",
    )
    parts = part_names(name, done.topics)
    ending = next((f"/{topic}" for topic in done.topics[1:] if name.endswith(f"/{topic}")), "")
    if ending:
        whole = name.removesuffix(ending)
        problem = f"{name!r} is a part of the subscription {whole!r}"
        raise RefusedError(problem, f"Use {whole!r}: it has topics {', '.join(done.topics)}.")
    return parts
