"""Why: what one broker knows of the way of one event to one named subscription.

Theory of operation
    A caller asks every broker of the network and puts the answers together (`client.why`). Each
    broker tells what it has at hand, and asks nobody. At the pubend's host: is there an event at
    that tick, silence, nothing yet, or was it released? At every broker: what is known of the tick
    (D an event, S silence, L lost, Q nothing; P: passed and forgotten), and what was done with it
    for each cell below. At the home of the subscription: does the condition match that it had at
    that tick; is the event recorded as taken, sent, acknowledged; what has a group done with it?

Cost: a few lookups; one event is read and decoded at its host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.events import EventBatch
from gapless.core.identity import PubendName, SubscriptionName, TopicName
from gapless.core.ticks import Span
from gapless.filters.filter import Filter
from gapless.knowledge.answers import fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.core.events import Attributes
    from gapless.durable.subscriptions import DurableSubscription
    from gapless.knowledge.pubend import Pubend
    from gapless.knowledge.relay import Relay
    from gapless.node.durable.service import DurableService

    Decode = Callable[[EventBatch], Sequence[Attributes]]
    Facts = dict[str, object]


def way_of_event(
    durable: DurableService, decode: Decode, topic: str, pubend: str, tick: int, name: str
) -> Facts:
    """The facts of this broker: JSON-able."""
    entry = durable.network.topic.get(TopicName(topic))
    hosts = {each.name: str(each.host) for each in entry.pubends} if entry else {}
    place = PubendName(pubend)
    facts: Facts = {
        "broker": durable.here,
        "service": entry.service if entry else None,
        "pubends": {str(each): host for each, host in hosts.items()},
    }
    attributes: Attributes | None = None
    if (hosted := durable.streams.pubends.get(place)) is not None:
        state, event = host_state(hosted, tick)
        if event is not None:
            attributes = decode(EventBatch((event,)))[0]
        facts["host"] = {
            "state": state,
            "end": hosted.end,
            "released": hosted.released,
            "attributes": attributes,
        }
    if (relay := durable.streams.relays.get(place)) is not None:
        facts["knows"], event = knowledge_of(relay, tick)
        if event is not None and attributes is None:
            attributes = decode(EventBatch((event,)))[0]
        facts["below"] = {
            cell: passage(relay, cell, tick)
            for cell in relay.outlets
            if cell in durable.network.cell
        }
        subend = durable.streams.subends.get(place)
        facts["horizon"] = subend.horizon if subend is not None else None
    facts["attributes"] = attributes
    known = durable.subscriptions.get(SubscriptionName(name))
    if known is not None:
        facts["subscription"] = subscription_facts(durable, known, place, tick, attributes)
    elif (moved := durable.named.moved(SubscriptionName(name))) is not None:
        facts["moved_to"] = moved.broker
    return facts


def host_state(pubend: Pubend, tick: int) -> tuple[str, bytes | None]:
    """What the log of a pubend has at a tick: `event`, `silence`, `released`, `ahead`."""
    if tick >= pubend.end:
        return "ahead", None
    if tick < pubend.released:
        return "released", None
    [event] = fetch(pubend.store, pubend.stream, [tick])
    return ("silence" if event is None else "event"), event


def knowledge_of(relay: Relay, tick: int) -> tuple[str, bytes | None]:
    """One letter for what the broker knows of a tick, and the event if it is cached."""
    stream = relay.stream
    _, events = stream.events_in(Span(tick, tick + 1))
    if events:
        return "D", events[0]
    if tick < relay.lost_below:
        return "L", None
    if tick in stream.known:
        return "S", None
    return ("P" if tick < max(stream.base, relay.acked) else "Q"), None


def passage(relay: Relay, cell: str, tick: int) -> str:
    """What was done with a tick for a cell below: `sent`, `silent` (filtered), `settled`,
    `waiting`."""
    outlet = next(each for name, each in relay.outlets.items() if name == cell)
    if tick in outlet.silent_spans:
        return "silent"
    if tick in outlet.sent_spans:
        return "sent"
    return "settled" if tick < outlet.settled else "waiting"


def subscription_facts(
    durable: DurableService,
    known: DurableSubscription,
    pubend: PubendName,
    tick: int,
    attributes: Attributes | None,
) -> Facts:
    """What the home of a subscription knows of one event."""
    definition = known.definition
    session = durable.session(definition.name)
    former = next((one for one in definition.former if tick < one.until.get(pubend, 0)), None)
    is_oldest = former is not None and former is definition.former[0]
    facts: Facts = {
        "topic": definition.topic,
        "condition": definition.condition if former is None else former.condition,
        "is_former": former is not None,
        "is_forgotten": is_oldest and definition.altered > len(definition.former),
        "group": durable.groups.state_of_event(known, pubend, tick),
        "owner": definition.owner,
        "moves": definition.moves,
        "tokens": definition.tokens,
        "since": known.since.get(pubend, 0),
        "acknowledged": known.acknowledged.get(pubend),
        "attached": session is not None,
    }
    if pubend not in known.since:
        return facts
    stream = durable.named.streams[pubend]
    facts["recorded_below"] = stream.latest
    facts["taken"] = known.number in stream.log.takers_at(tick)
    sent = known.contact.sent
    if session is not None:
        facts["sent_below"] = min(session.sent_below(pubend), stream.delivered)
        facts["outstanding"] = session.client.outstanding
    else:
        facts["sent_below"] = sent.get(pubend) if sent is not None else None
    if attributes is not None:
        condition = durable.named.filters[known.number]
        if former is not None:
            condition = Filter.parse(former.condition)
        facts["matches"] = condition.matches(attributes)
    return facts
