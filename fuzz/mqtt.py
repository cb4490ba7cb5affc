"""Fuzz the MQTT door: bytes are packets or a `PacketError`, and a session keeps its invariants.

    python -m fuzz.mqtt --inputs 10_000_000

An input is a packet of a client, changed here and there, or one that breaks the order of packets.
`play_bytes` reads it. `play_session` hands packets, events, answers of the broker and losses of the
connection to a session in any order, and checks the session after each. A failure prints its seed.
"""

from __future__ import annotations

import argparse
import random
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gapless.doors.mqtt import packets
from gapless.doors.mqtt.mapping import MqttMessage
from gapless.doors.mqtt.packets import (
    AnswerPacket,
    ConnectPacket,
    DisconnectPacket,
    Kind,
    PacketError,
    PingPacket,
    PublishPacket,
    Splitter,
    SubscribePacket,
    TopicFilter,
    UnsubscribePacket,
    Will,
    decode,
    encode,
)
from gapless.doors.mqtt.session import (
    OWN,
    Close,
    DropFilters,
    End,
    Key,
    MqttEvent,
    MqttSession,
    PackedEvents,
    PersistFacts,
    StoreMessage,
    TopicSubscription,
    WishFilters,
)

if TYPE_CHECKING:
    from gapless.doors.mqtt.session import Action

STEPS = 60
TOPICS = ("a", "a/b", "b", "$x")
ANSWERS = (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP)


def any_packet(dice: random.Random) -> packets.Packet:
    """A packet as clients send it."""
    number = dice.randint(1, 6)
    qos = dice.randrange(3)
    match dice.randrange(9):
        case 0:
            will = Will("w", b"w", qos, bool(dice.randrange(2)), {"will_delay": dice.randrange(3)})
            more: dict[str, Any] = {
                "receive_maximum": dice.randint(1, 3),
                "session_expiry": dice.choice((0, 5)),
            }
            return ConnectPacket(5, "c", bool(dice.randrange(2)), 3, will, "u", b"p", more)
        case 1 | 2:
            more = {"user": [("k", "v")], "content_type": "t", "message_expiry": dice.randrange(3)}
            properties = dice.choice((packets.NONE, {"topic_alias": dice.randint(1, 12)}, more))
            topic = dice.choice((*TOPICS, "")) if "topic_alias" in properties else "a"
            packet = number if qos else 0
            return PublishPacket(topic, b"x", qos, False, False, packet, properties)
        case 3 | 4 | 5:
            code = dice.choice((0, 0, 0, 0x92)) if dice.randrange(2) else 0
            kind = dice.choice(ANSWERS)
            return AnswerPacket(kind, number, code if code in packets.CODES[kind] else 0)
        case 6:
            return SubscribePacket(number, (TopicFilter(dice.choice(("a/#", "#", "a")), qos),))
        case 7:
            return UnsubscribePacket(number, ("a",))
        case _:
            return dice.choice((PingPacket(), DisconnectPacket(dice.choice((0, 4)))))


def play_bytes(dice: random.Random) -> None:
    """Read a changed packet, in two pieces, as each version."""
    data = bytearray(encode(any_packet(dice), 5))
    for _ in range(dice.randrange(4)):
        place = dice.randrange(len(data) + 1)
        match dice.randrange(3):
            case 0:
                data[place:place] = dice.randbytes(dice.randint(1, 3))
            case 1:
                del data[place : place + dice.randint(1, 3)]
            case _:
                data[place : place + 1] = dice.randbytes(1)
    cut = dice.randrange(len(data) + 1)
    for version in (5, 4):
        splitter = Splitter()
        with suppress(PacketError):
            for piece in (data[:cut], data[cut:]):
                for first, body in splitter.feed(bytes(piece)):
                    decode(first, body, version)


class Play:
    """A session, and a driver that does everything late or in another order."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.now_s = 100.0
        self.session = MqttSession("c")
        self.expiry_s = dice.choice((0, 5))
        self.pending: list[Action] = []
        self.tick = 0
        self.is_over = False

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case StoreMessage() | PersistFacts():
                    self.pending.append(action)
                case WishFilters(packet):
                    for each in packet.filters:
                        made = TopicSubscription(filter=each.filter, qos=each.qos)
                        self.session.subscriptions[each.filter] = made
                    codes = bytes(each.qos for each in packet.filters)
                    self.perform(self.session.subscribed(packet.packet, codes))
                case DropFilters(packet):
                    for name in packet.filters:
                        self.session.drop(name)
                    self.perform(self.session.unsubscribed(packet.packet, b"\0"))
                case Close():
                    self.perform(self.session.lose(self.now_s))
                case End():
                    self.is_over = True
                case _:
                    pass
        self.session.check()

    def step(self) -> None:
        dice, session = self.dice, self.session
        self.now_s += dice.choice((0.0, 0.1, 1.0))
        choice = dice.randrange(6)
        if session.connection is None:
            packet = ConnectPacket(
                *(5, "c", False, 3, None, None, None),
                {"session_expiry": self.expiry_s, "receive_maximum": dice.randint(1, 3)},
            )
            self.perform(session.connect(packet, self.now_s, present=True))
        elif choice <= 1:
            try:
                self.perform(session.receive(any_packet(dice), self.now_s))
            except PacketError as error:
                self.perform(session.refuse(error, self.now_s))
        elif choice == 2 and session.subscriptions:
            self.deliver(dice.choice(list(session.subscriptions.values())))
        elif choice == 3 and self.pending:
            self.finish(self.pending.pop(dice.randrange(len(self.pending))))
        elif choice == 4:
            self.perform(session.fire(self.now_s))
        elif choice == 5 and dice.randrange(4) == 0:
            self.perform(session.lose(self.now_s))

    def deliver(self, by: TopicSubscription) -> None:
        """An event of a group, of the session's own subscription, or of a feed."""
        dice, session = self.dice, self.session
        self.tick += dice.randrange(2)
        key = Key("mqtt", "mqtt/0", self.tick)
        message = MqttMessage("a", b"x", dice.randrange(3))
        if by.group:
            self.perform(session.deliver(MqttEvent(key, message, {}, by.filter), by, self.now_s))
            if dice.randrange(4) == 0:
                session.unsend(by.filter)
        elif session.is_durable:
            self.perform(session.deliver(MqttEvent(key, message, {}, OWN), None, self.now_s))
            if dice.randrange(4) == 0:
                self.perform(session.released([key]))
        else:
            batch = PackedEvents([MqttEvent(key, message, {})], dice.randrange(4))
            if session.take_batch(batch, by) is None:
                self.perform(session.deliver(batch.events[0], by, self.now_s))
        session.check()

    def finish(self, action: Action) -> None:
        if isinstance(action, StoreMessage):
            code = self.dice.choice((0, 0, 0, 0x97))
            self.perform(self.session.stored(action, code, "no room" if code else ""))
        elif isinstance(action, PersistFacts):
            self.perform(list(action.then))


def play_session(dice: random.Random) -> None:
    """A session's life, until it ends."""
    play = Play(dice)
    for _ in range(STEPS):
        play.step()
        if play.is_over:
            return


def run(inputs: int, seed: int) -> None:
    """Play that many inputs: nine of ten are bytes; a step of a session counts as one."""
    done = 0
    while done < inputs:
        dice = random.Random(seed)
        try:
            if seed % 500 == 0:
                play_session(dice)
                done += STEPS
            else:
                play_bytes(dice)
                done += 1
        except Exception:
            print(f"seed {seed}", file=sys.stderr)
            raise
        seed += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    run(given.inputs, given.seed)
    print(f"{given.inputs:,} inputs, no failure")


if __name__ == "__main__":
    main()
