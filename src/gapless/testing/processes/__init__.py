"""Brokers as real processes on this machine, for your tests: run a network, and strike it.

`brokers` starts, kills, hangs and measures the processes; `proxy` cuts, stalls and delays a link;
`soak` does all of it under load and judges what clients saw by the simulator's checkers.
"""

from __future__ import annotations

from gapless.testing.processes.brokers import Processes, cell, topic
from gapless.testing.processes.proxy import Proxy

__all__ = ["Processes", "Proxy", "cell", "topic"]
