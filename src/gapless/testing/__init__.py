"""Testing: a simulated network for your own tests, and the simulator that proves the brokers.

`SimulatedNetwork` runs an application of yours, with the shipped client, against simulated brokers:
minutes of crashes and cut links take a second, and the same seed takes the same course.

The rest is the simulator: `world` is the heap of steps, `process` one broker in it, the same `Node`
that ships; `links`, `clock` and `disk` carry out what a broker asks for, with faults. `actors`
publish and subscribe. `watch` keeps a `record` of facts and shows it to the `checkers`. `options`
draws all of it from a seed, `run` plays one seed. `planted` breaks protocols on purpose.
"""

from __future__ import annotations

from gapless.testing.network import SimulatedNetwork

__all__ = ["SimulatedNetwork"]
