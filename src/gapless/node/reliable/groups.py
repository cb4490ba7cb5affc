"""SharedSubscriptions: clients that want the same of a topic share one subscription of a service.

A group is known by its topic and condition, and by the name that the service gave its subscription.
Who comes to one that is in force begins at once; else it waits with the others. When the last has
left, the group is gone, and whoever took it out ends its subscription.

Invariants (checked by `check`)
    I1  a group has a member, begun or waiting; both tables have the same groups
    I2  who waits is of a group that is not in force yet
    I3  a subscription of a client is in exactly one group
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gapless.core.identity import ClientName, TopicName
    from gapless.node.delivery.audience import Key

NameT = TypeVar("NameT")


@dataclass(slots=True, eq=False)
class SharedSubscription(Generic[NameT]):
    """Subscriptions of clients to one topic with one condition."""

    topic: TopicName
    label: TopicName
    condition: str
    name: NameT
    is_in_force: bool = False
    members: dict[Key, None] = field(default_factory=dict)
    waiting: dict[Key, int] = field(default_factory=dict)  # the request to answer
    heard: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By source, the last that came from there: the number of its life, and its own."""

    def let_in(self) -> dict[Key, int]:
        """It is in force: who waits is a member from now on. Their requests."""
        self.is_in_force = True
        waiting, self.waiting = self.waiting, {}
        self.members.update(dict.fromkeys(waiting))
        return waiting


class SharedSubscriptions(Generic[NameT]):
    """All groups of one service at one broker."""

    def __init__(self) -> None:
        self._by_condition: dict[tuple[TopicName, str], SharedSubscription[NameT]] = {}
        self._by_name: dict[NameT, SharedSubscription[NameT]] = {}
        self._of_client: dict[ClientName, dict[int, SharedSubscription[NameT]]] = {}

    def __iter__(self) -> Iterator[SharedSubscription[NameT]]:
        return iter(self._by_name.values())

    def __contains__(self, key: Key) -> bool:
        return key[1] in self._of_client.get(key[0], ())

    @property
    def subscription_count(self) -> int:
        return sum(map(len, self._of_client.values()))

    def find(self, label: TopicName, condition: str) -> SharedSubscription[NameT] | None:
        return self._by_condition.get((label, condition))

    def named(self, name: NameT) -> SharedSubscription[NameT] | None:
        return self._by_name.get(name)

    def add(self, group: SharedSubscription[NameT]) -> None:
        self._by_condition[group.label, group.condition] = self._by_name[group.name] = group

    def enter(self, group: SharedSubscription[NameT], key: Key, request: int) -> None:
        self._of_client.setdefault(key[0], {})[key[1]] = group
        group.waiting[key] = request

    def of_client(self, client: ClientName) -> list[Key]:
        return [(client, number) for number in self._of_client.get(client, ())]

    def leave(self, keys: Iterable[Key]) -> list[SharedSubscription[NameT]]:
        """These subscriptions are over; groups that nobody is left in, which are gone."""
        empty: list[SharedSubscription[NameT]] = []
        for key in keys:
            group = self._take(key)
            group.members.pop(key, None)
            group.waiting.pop(key, None)
            if not group.members and not group.waiting:
                self._delete(group)
                empty.append(group)
        return empty

    def remove(self, group: SharedSubscription[NameT]) -> None:
        """A group with all who are in it."""
        for key in (*group.members, *group.waiting):
            self._take(key)
        self._delete(group)

    def _take(self, key: Key) -> SharedSubscription[NameT]:
        client, number = key
        group = self._of_client[client].pop(number)
        if not self._of_client[client]:
            del self._of_client[client]
        return group

    def _delete(self, group: SharedSubscription[NameT]) -> None:
        del self._by_condition[group.label, group.condition], self._by_name[group.name]

    def check(self) -> None:
        groups = list(self._by_name.values())
        assert set(groups) == set(self._by_condition.values()), "I1"
        keys = [key for group in groups for key in (*group.members, *group.waiting)]
        assert all(group.members or group.waiting for group in groups), "I1"
        assert not any(group.is_in_force and group.waiting for group in groups), "I2"
        placed = {key for client in self._of_client for key in self.of_client(client)}
        assert len(keys) == len(placed), "I3"
        assert set(keys) == placed, "I3"
