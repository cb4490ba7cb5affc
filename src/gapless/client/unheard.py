"""Events that nobody gets: told once for each publisher, by the logger "gapless.client"."""

from __future__ import annotations

import logging

logger = logging.getLogger("gapless.client")

NOTICE = "notice"
"""The records of these notices have this attribute."""


class UnheardNotice:
    """Says of each topic, once, that what is published to it is gone at once."""

    def __init__(self) -> None:
        self._topics: set[str] = set()

    def tell(self, topic: str) -> None:
        if topic not in self._topics:
            self._topics.add(topic)
            logger.warning(
                "nobody subscribes to topic %r, and it keeps nothing: what is published to it is "
                "released at once. Subscribe by a name first, or give the topic keep_seconds.",
                topic,
                extra={NOTICE: "unheard"},
            )
