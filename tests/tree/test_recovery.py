"""What goes to one broker in one step goes in batches, and none is larger than the limits allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import BrokerName
from gapless.tree.messages import (
    CarriedMessage,
    Publication,
    PublicationConfirmed,
    PublicationId,
)
from gapless.tree.recovery import batches
from gapless.tree.settings import TreeSettings
from tests.tree.scene import Scene

if TYPE_CHECKING:
    from gapless.core.events import Attributes

SETTINGS = TreeSettings(batch_max=3, batch_bytes_max=10)


def publication(number: int, size: int) -> Publication:
    return Publication(PublicationId(BrokerName("A"), 1, number), (), body=bytes(size))


def test_batches_keep_the_order_and_hold_no_more_than_the_limits() -> None:
    few = [PublicationConfirmed(PublicationId(BrokerName("A"), 1, i)) for i in range(7)]
    small: list[CarriedMessage] = [*few]
    assert [len(batch) for batch in batches(small, SETTINGS)] == [3, 3, 1]
    assert [each for batch in batches(small, SETTINGS) for each in batch] == small
    large: list[CarriedMessage] = [publication(i, size) for i, size in enumerate((4, 7, 50, 1))]
    assert [len(batch) for batch in batches(large, SETTINGS)] == [2, 1, 1]
    assert list(batches([], SETTINGS)) == []


def test_a_batch_of_publications_crosses_a_link_as_one() -> None:
    scene = Scene("A-B", failures_tolerated=0)
    subscription = scene.subscribe("B")
    events: list[tuple[Attributes, bytes]] = [({"k": k}, b"") for k in range(4)]
    names, effects = scene.machine("A").publish_batch(events, scene.run.stage.now)
    [carried] = [effect.message for effect in effects]  # type: ignore[union-attr]
    assert [each.id for each in carried.messages] == names  # type: ignore[union-attr]
    for name, (attributes, _) in zip(names, events, strict=True):
        scene.run.ledger.published(name, attributes, [subscription])
    scene.world.processes[BrokerName("A")]._carry_out(effects)
    scene.wait()
    assert scene.got(subscription) == names
