"""What journals say is read as it was meant."""

from __future__ import annotations

import math

import pyarrow as pa

from gapless.cli.deliveries import show_json
from gapless.core.events import Event
from gapless.core.identity import PubendName, TopicName
from gapless.core.ticks import Tick
from gapless.pipelines.journals import _parse


def test_a_number_that_json_has_not_is_a_number() -> None:
    event = Event({"x": -math.inf}, b"", TopicName("t"), PubendName("t/0"), Tick(7))
    [rows] = _parse(iter([pa.record_batch({"value": [show_json(event)]})]))
    [[(name, value)]] = rows.column("attributes").to_pylist()
    assert (name, value["float"]) == ("x", -math.inf)
