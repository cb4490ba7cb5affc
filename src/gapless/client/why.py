"""Why: the way of an event to a named subscription, from what every broker says of it.

Theory of operation
    Brokers tell facts (`/why` at their admin ports, `node.durable.why`); this module draws the
    conclusion. It asks in the order in which an event travels: was it published, is it kept, is the
    subscription there and for this topic, had it begun, does its condition match, has the event
    reached the subscription's broker, was it recorded, sent, acknowledged? The first "no" is the
    verdict. Facts that lack, because a broker does not answer, are said to lack.
    The condition is matched where the event is, and where the subscription is: either broker may be
    silent. If the home has no copy of the event, the conclusion matches it by itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from gapless.client.errors import LinkError
from gapless.client.json_values import from_json, to_json
from gapless.core.errors import UsageError
from gapless.filters.filter import Filter
from gapless.filters.reasons import reasons

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    Facts = Mapping[str, Any]

ADMIN_PORT = 7118
ANSWER_S = 10.0

Verdict = Literal[
    "no such topic", "no such pubend", "not stored", "not published", "not durable yet",
    "no such subscription", "another topic", "began later", "filtered", "released", "on its way",
    "waiting", "sent", "acknowledged", "unknown",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class WayStep:
    """What one broker did with the event."""

    broker: str
    what: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The way of an event, and what came of it; `str()` has all of it as text."""

    verdict: Verdict
    reason: str
    """A sentence or two: why, and what to do."""
    steps: list[WayStep] = field(default_factory=list)
    event: str = ""
    """`PUBEND:TICK`"""
    attributes: dict[str, Any] | None = None
    """Of the event, if a broker has it."""

    def __str__(self) -> str:
        lines = [f"{step.broker}: {step.what}" for step in self.steps]
        return "\n".join([*lines, f"{self.verdict}: {self.reason}"])

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "event": self.event,
            "attributes": None if self.attributes is None else to_json(self.attributes),
            "steps": [{"broker": each.broker, "what": each.what} for each in self.steps],
        }


def parse_event(text: str) -> tuple[str, int]:
    """`PUBEND:TICK`, as receipts and events have them."""
    pubend, colon, tick = text.rpartition(":")
    if not colon or not pubend or not tick.isdecimal():
        raise UsageError(f"{text!r} is no event", "Write PUBEND:TICK, such as trades/0:1838057.")
    return pubend, int(tick)


def explain(
    answers: Mapping[str, Facts | None], topic: str, pubend: str, tick: int, name: str
) -> Explanation:
    """The conclusion from what each broker has answered; None: it does not answer."""
    known = {broker: facts for broker, facts in answers.items() if facts is not None}
    silent = sorted(broker for broker, facts in answers.items() if facts is None)
    host = next((facts["host"] for facts in known.values() if "host" in facts), None)
    homes = {b: facts["subscription"] for b, facts in known.items() if facts.get("subscription")}
    home = max(homes, key=lambda broker: homes[broker]["moves"]) if homes else None
    attributes = next((f["attributes"] for f in known.values() if f.get("attributes")), None)
    if host is not None and host["state"] == "event":
        attributes = host["attributes"]
    attributes = None if attributes is None else from_json(attributes)
    case = Case(known, silent, host, home, homes.get(home or ""), attributes)
    verdict, reason = case.judge(topic, pubend, tick, name)
    if silent:
        reason += f" These brokers do not answer: {', '.join(silent)}."
    steps = [WayStep(broker, tell_step(facts, tick)) for broker, facts in known.items()]
    steps.sort(key=lambda step: (step.broker == home, "host" not in known[step.broker]))
    return Explanation(verdict, reason, steps, f"{pubend}:{tick}", attributes)


@dataclass(frozen=True, slots=True)
class Case:
    """What is known of one event and one subscription."""

    known: Mapping[str, Facts]
    silent: Sequence[str]
    host: Facts | None
    home: str | None
    subscription: Facts | None
    attributes: Mapping[str, Any] | None

    def judge(self, topic: str, pubend: str, tick: int, name: str) -> tuple[Verdict, str]:
        services = {f["service"] for f in self.known.values() if f["service"]}
        hosts = {p: h for f in self.known.values() for p, h in f["pubends"].items()}
        if not self.known:
            return "unknown", "No broker answers."
        if not services:
            return "no such topic", f"No broker knows the topic {topic!r}: was it created?"
        if "durable" not in services:
            kind = next(iter(services))
            return "not stored", f"{topic!r} is a {kind} topic: its events are not stored."
        if pubend not in hosts:
            return "no such pubend", f"{topic!r} has the pubends {', '.join(sorted(hosts))}."
        if self.subscription is None:
            return self._judge_missing(name)
        if self.subscription["topic"] != topic:
            other = self.subscription["topic"]
            return "another topic", f"{name!r} subscribes to {other!r}, not to {topic!r}."
        return (
            self._judge_publication(tick, hosts[pubend])
            or self._judge_start(tick, name)
            or self._judge_condition()
            or self._judge_way(tick)
        )

    def _judge_missing(self, name: str) -> tuple[Verdict, str]:
        moved = {f["moved_to"] for f in self.known.values() if f.get("moved_to")}
        if moved & set(self.silent):
            return "unknown", f"{name!r} has moved to {', '.join(sorted(moved))}."
        if self.silent:
            return "unknown", f"No broker that answers has a subscription {name!r}."
        reason = f"No broker has a subscription {name!r}: it was never made, or was ended."
        return "no such subscription", reason

    def _judge_publication(self, tick: int, host: str) -> tuple[Verdict, str] | None:
        if self.host is None:
            if self.attributes is not None:
                return None
            return "unknown", f"{host}, which hosts the pubend, does not answer: was it published?"
        match self.host["state"]:
            case "silence":
                return "not published", "The pubend has no event at this tick, and never will."
            case "ahead":
                reason = f"The pubend is at {self.host['end']}: this tick is not durable yet."
                return "not durable yet", f"{reason} A publisher that has a receipt has another."
            case "released":
                assert self.subscription is not None
                if tick < self.subscription["acknowledged"]:
                    return self._judge_start(tick, "The subscription") or (
                        "acknowledged",
                        "It was released after all subscriptions had acknowledged it.",
                    )
                reason = f"The pubend has released everything below {self.host['released']}: "
                return "released", f"{reason}its limits are reached, and the client gets a gap."
            case _:
                return None

    def _judge_start(self, tick: int, name: str) -> tuple[Verdict, str] | None:
        found = self.subscription
        assert found is not None
        if tick < found["since"] and tick < found["acknowledged"] and not found["moves"]:
            return "began later", (
                f"{name} takes events from {found['since']} on; what is before that was "
                "published before it began, or it has acknowledged that at its start."
            )
        return None

    def _judge_condition(self) -> tuple[Verdict, str] | None:
        found = self.subscription
        assert found is not None
        if found.get("taken") or self.attributes is None:
            return None
        if found.get("is_forgotten"):
            return "unknown", (
                "The condition that the subscription had then is forgotten: it has acknowledged "
                "everything of that time."
            )
        condition = Filter.parse(found["condition"])
        if condition.matches(self.attributes):
            return None
        parts = "; ".join(str(each) for each in reasons(condition, self.attributes))
        which = "condition that it had then" if found.get("is_former") else "condition"
        return "filtered", f"The {which} does not match: {parts}."

    def _judge_way(self, tick: int) -> tuple[Verdict, str]:
        found, home = self.subscription, self.home
        assert found is not None
        assert home is not None
        if (group := found.get("group")) is not None and group["state"] != "pending":
            return judge_member(group, home)
        if tick < found["acknowledged"]:
            return "acknowledged", "A client has acknowledged it: it has consumed the event."
        reached = found.get("recorded_below", 0)
        if not found.get("taken") and tick >= max(reached, found["since"]):
            horizon = self.known[home].get("horizon")
            doubt = f"; it is settled there below {horizon}" if horizon is not None else ""
            return "on its way", f"It has not been settled at {home} yet{doubt}. {self._obstacle()}"
        if group is not None and group["attempts"]:
            tried = f"Members had it in hand {group['attempts']} times and did not finish it"
            return "waiting", f"{tried}. The last reason: {group['reason'] or 'none given'}."
        sent = found.get("sent_below")
        if group is None and sent is not None and tick < sent:
            whom = "the client" if found["attached"] else "a client that has left since"
            reason = f"{home} has sent it to {whom}, which has not acknowledged it."
            if found["attached"] and found["outstanding"]:
                reason += f" {found['outstanding']:,} events wait there to be consumed."
            return "sent", reason
        if found["attached"]:
            return "waiting", f"The client at {home} catches up, and has not got that far."
        if found.get("may_subscribe") is False:
            owner = found["owner"]
            return "waiting", f"Its owner {owner!r} no longer has the right to subscribe here."
        return "waiting", f"No client is attached to it at {home}: the event is kept for it."

    def _obstacle(self) -> str:
        """Where the event is stuck, as far as that can be seen."""
        if self.silent:
            return "A broker on the way may be down."
        lacking = [b for b, f in self.known.items() if f.get("knows") == "Q" and b != self.home]
        if lacking:
            return f"It has not reached {', '.join(sorted(lacking))}: is a link cut?"
        return "The last link may be cut, or the broker busy."


def judge_member(group: Facts, home: str) -> tuple[Verdict, str]:
    """What a group has done with an event that it has received."""
    match group["state"]:
        case "finished":
            return "acknowledged", "A member has finished it, or it has become a dead letter."
        case "dying":
            return "waiting", f"It becomes a dead letter. The last reason: {group['reason']}."
        case _:
            return "sent", f"{home} has sent it to a member of the group, which has it in hand."


KNOWS = {
    "D": "has the event",
    "S": "knows of no event there that it needs",
    "L": "knows that it is lost",
    "Q": "knows nothing of this tick",
    "P": "has passed it",
}


def tell_step(facts: Facts, tick: int) -> str:
    """One broker's part, in words."""
    said = list[str]()
    if "host" in facts:
        said.append(
            {
                "event": "logged it",
                "silence": "has no event at this tick",
                "released": "has released it",
                "ahead": "is not that far",
            }[facts["host"]["state"]]
        )
    elif "knows" in facts:
        said.append(KNOWS[facts["knows"]])
    words = {
        "sent": "sent it to", "silent": "filtered it for", "settled": "is done with it for",
        "waiting": "has not sent it to",
    }  # fmt: skip
    said += [f"{words[what]} {cell}" for cell, what in facts.get("below", {}).items()]
    found = facts.get("subscription")
    if found:
        said.append("is the home of the subscription")
        if "matches" in found:
            said.append("which matches" if found["matches"] else "which does not match")
        if found.get("taken"):
            said.append("recorded it for the subscription")
        if found.get("sent_below") is not None and tick < found["sent_below"]:
            said.append("sent it to the client")
        if tick < found["acknowledged"]:
            said.append("has its acknowledgement")
    elif facts.get("moved_to"):
        said.append(f"let the subscription go to {facts['moved_to']}")
    return ", ".join(said) or "has no part in it"


# --- asking ---------------------------------------------------------------------------------------


def fetch_json(url: str, token: str, context: ssl.SSLContext | None) -> Any | None:
    """What an admin port answers; None if it does not."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(url, headers=headers), timeout=ANSWER_S, context=context) as answer:
            return json.load(answer)
    except HTTPError as error:
        with error:
            text = error.read(10_000).decode(errors="replace").strip()
        if error.code in (400, 401, 403):
            raise UsageError(f"{url.split('/why')[0]} refuses: {text}") from None
        return None
    except (URLError, HTTPException, OSError, ValueError):
        return None


def other_topic(answers: Mapping[str, Facts | None], topic: str) -> bool:
    """Is the subscription known, and on another topic?"""
    known = [each["subscription"] for each in answers.values() if each and each.get("subscription")]
    return bool(known) and all(each["topic"] != topic for each in known)


async def ask_why(
    admin: Sequence[str] | Mapping[str, str],
    topic: str,
    subscription: str,
    event: str | None,
    where: str | None,
    *,
    token: str = "",
    context: ssl.SSLContext | None = None,
) -> Explanation:
    """Ask these admin ports, and conclude. Without an `event`, the newest that matches `where`. A
    mapping has the names of the brokers, for those that do not answer."""
    from urllib.parse import urlencode

    if (event is None) == (where is None):
        raise UsageError("which event is meant?", "Give PUBEND:TICK, or a condition with where.")
    scheme = "http" if context is None else "https"

    async def ask(path: str, **query: object) -> dict[str, Any]:
        urls = [f"{scheme}://{each}/{path}?{urlencode(query)}" for each in admin]
        found = [asyncio.to_thread(fetch_json, url, token, context) for url in urls]
        return dict(zip(admin, await asyncio.gather(*found), strict=True))

    if where is not None:
        Filter.parse(where)
        answers = await ask("find", topic=topic, where=where)
        if not any(each is not None for each in answers.values()):
            raise LinkError(f"no admin port answers at {', '.join(admin)}")
        matching = [one for each in answers.values() for one in each or ()]
        if not matching:
            reason = (
                f"No event of {topic!r} that is kept matches {where}: it was never published, its "
                "publisher has no receipt, or it has been released."
            )
            return Explanation("not published", reason)
        event = max(matching, key=lambda one: one["tick"])["event"]
    pubend, tick = parse_event(event or "")
    answers = await ask("why", topic=topic, pubend=pubend, tick=tick, subscription=subscription)
    if other_topic(answers, topic):  # the part of this topic may be meant
        part = f"{subscription}/{topic}"
        found = await ask("why", topic=topic, pubend=pubend, tick=tick, subscription=part)
        if any(each and each.get("subscription") for each in found.values()):
            answers, subscription = found, part
    if not any(each is not None for each in answers.values()):
        raise LinkError(f"no admin port answers at {', '.join(admin)}")
    names = dict(admin) if isinstance(admin, Mapping) else {}
    named = {
        each["broker"] if each is not None else names.get(address, address): each
        for address, each in answers.items()
    }
    return explain(named, topic, pubend, tick, subscription)
