"""Topics: which topics a query reads, and how far each of their pubends is settled.

Theory of operation
    A query reads one topic, several, or all whose names match a pattern. Names of pubends are
    unique over topics, so one token serves for all of them; each topic has a named subscription of
    its own. A topic that comes to match a pattern while a stream runs is found within `LOOK_S`, and
    read from its oldest event.
    A host that hangs must not stop the stream: whoever asks where pubends are settled waits for
    each host only `ANSWER_S`. A pubend whose host is silent has nothing new, and is asked again
    after `SILENT_S`. If all have been silent for as long as the user's patience, that is an error.
"""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING

from gapless.client.errors import LinkError
from gapless.core.errors import UsageError
from gapless.core.token import Token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.spark.options import ReadOptions, ShapeOptions
    from gapless.sync import Client

Positions = dict[str, tuple[int, int]]
"""By pubend: from which tick on it can be read, and up to where it is settled."""

ANSWER_S = 2.0
SILENT_S = 10.0
LOOK_S = 30.0

log = logging.getLogger(__name__)


def find_topics(client: Client, options: ShapeOptions) -> tuple[str, ...]:
    """The topics that are read now. `UsageError` if none matches the pattern."""
    if not options.topic_pattern:
        return options.topics
    pattern = re.compile(options.topic_pattern)
    known = [each.name for each in client.topics() if each.service == "durable"]
    names = tuple(sorted(name for name in known if pattern.fullmatch(name)))
    if not names:
        raise UsageError(
            f"no topic matches topicPattern={options.topic_pattern!r}",
            f"There are {', '.join(sorted(known)) or 'no topics'}.",
        )
    return names


def topic_of(pubend: str, topics: Sequence[str]) -> str:
    """The topic of a pubend that is read. A topic that was made again has a number in the names."""
    label = pubend.rpartition("/")[0]
    return label if label in topics else label.rpartition("@")[0]


def topic_name(pubend: str) -> str:
    """The same where the topics are not known: a number behind an @ is left out."""
    label = pubend.rpartition("/")[0]
    name, _, number = label.rpartition("@")
    return name if name and number.isdigit() else label


def positions_of(client: Client, topics: Sequence[str]) -> Positions:
    """Of all pubends of these topics."""
    return {name: ends for topic in topics for name, ends in client.positions(topic).items()}


class HostPolls:
    """Where pubends are settled, as far as their hosts answer. See the module docstring."""

    def __init__(self, options: ReadOptions) -> None:
        self._patience_s = options.patience_s
        self._answered_s = time.monotonic()
        self._pubends: dict[str, set[str]] = {}  # of each topic, as far as it was told
        self._asked_again_s: dict[str, float] = {}  # by silent pubend

    def settled(self, client: Client, topics: Sequence[str]) -> Token:
        """By pubend whose host answers, up to where it is settled."""
        found: dict[str, int] = {}
        for topic in topics:
            found |= {name: high for name, (_, high) in self._ask(client, topic).items()}
        if found:
            self._answered_s = time.monotonic()
        elif time.monotonic() > self._answered_s + self._patience_s:
            raise LinkError(f"no broker has answered for {self._patience_s:.0f} s")
        return Token(found)

    def _ask(self, client: Client, topic: str) -> Positions:
        known = self._pubends.get(topic, set())
        if known.isdisjoint(self._asked_again_s):
            try:
                positions = client.positions(topic)
            except LinkError as error:
                if not known:
                    raise
                log.warning("a host of topic %s is silent: %s", topic, error)
            else:
                self._pubends[topic] = set(positions)
                return positions
        positions = {}
        for pubend in sorted(known):
            if self._asked_again_s.get(pubend, 0.0) <= time.monotonic():
                try:
                    positions |= client.positions(topic, pubends=[pubend])
                    self._asked_again_s.pop(pubend, None)
                except LinkError as error:
                    self.is_silent(pubend, error)
        return positions

    def is_silent(self, pubend: str, error: LinkError) -> None:
        """Leave this pubend out for a while."""
        if pubend not in self._asked_again_s:
            log.warning("the host of %s is silent, others are read on: %s", pubend, error)
        self._asked_again_s[pubend] = time.monotonic() + SILENT_S
