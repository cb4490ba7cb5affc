"""Leftovers: what a deleted durable topic leaves on the disk of a broker, and its removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.effects import Chop, Delete
from gapless.core.messages import Message
from gapless.core.topic_messages import TopicEntry
from gapless.durable.filtered_log import DELIVERED, HEADS
from gapless.knowledge import transactions
from gapless.knowledge.past import LIVES
from gapless.knowledge.pubend import PROMISES
from gapless.knowledge.receipts import FLOORS, OWNERS, PUBLISHERS
from gapless.node.promises import KEPT
from gapless.propagation.leaf import VIRTUAL_TIMES
from gapless.propagation.stamp import STAMPS

if TYPE_CHECKING:
    from gapless.core.effects import Write
    from gapless.core.identity import BrokerName
    from gapless.core.store import Store
    from gapless.node.network import Topic


class TopicGone(Message, frozen=True):
    """To ourselves: what was under way for a topic when it was deleted has ended."""

    entry: TopicEntry


def leftovers(topic: Topic, store: Store, here: BrokerName) -> list[Write]:
    """The writes that leave nothing of a topic here; none if nothing durable is left."""
    writes: list[Write] = []
    for pubend in topic.pubends:
        name = pubend.name
        for stream in (f"log/{name}", f"filtered/{name}"):
            start, end = store.bounds(stream)
            if start < end:
                writes.append(Chop(stream, end))
        tables = [f"{each}/{name}" for each in (PUBLISHERS, OWNERS)]
        facts = [(table, key) for table in tables for key in store.items(table)]
        facts += [(each, name) for each in (PROMISES, FLOORS, DELIVERED, HEADS, LIVES, KEPT)]
        writes += [Delete(*fact) for fact in facts if store.get(*fact) is not None]
        writes += transactions.leftovers(name, store)
    facts = [(STAMPS, f"{topic.label}@{here}"), (VIRTUAL_TIMES, topic.label)]
    return writes + [Delete(*fact) for fact in facts if store.get(*fact) is not None]
