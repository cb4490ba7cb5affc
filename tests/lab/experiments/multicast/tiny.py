"""The multicast experiment at its smallest."""

from __future__ import annotations

from gapless_lab.experiments.multicast.experiment import Size
from gapless_lab.experiments.multicast.network import Shape

SHAPE = Shape(2, 2, 2, 5)
TINY = Size(
    played=((40, 4), (80, 8)),
    structure=(300, 20),
    joined=40,
    repair_nodes=30,
    failed_shares=(0.1, 0.3),
    network=SHAPE,
    runs=1,
)
