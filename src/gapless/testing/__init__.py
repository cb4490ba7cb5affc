"""Testing: a simulated network for your own tests, and the simulator that proves the brokers.

`SimulatedNetwork` runs an application of yours, with the shipped client, against simulated brokers:
minutes of crashes and cut links take a second, and the same seed takes the same course.
"""

from __future__ import annotations

from gapless.testing.network import SimulatedNetwork

__all__ = ["SimulatedNetwork"]
