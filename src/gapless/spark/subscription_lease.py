"""Subscription lease: a query has its subscriptions alone.

Theory of operation
    A query is known by a random name that is part of its offsets, so it survives with the
    checkpoint. A run is this process. The run takes the lease of each subscription before it reads
    (`client.lease`), and a thread shows every few seconds that it lives. The broker refuses another
    query by name; a later run of the same query takes over, and this one fails at its next call.
    A subscription that is not there, or was ended meanwhile, is made where the query stands.
    Where several topics are read, each has a subscription of its own: NAME/TOPIC.

Invariants
    I1  a run that was refused once acknowledges nothing more
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING
from uuid import uuid4

from gapless.client.errors import LinkError, RefusedError
from gapless.core.token import Token
from gapless.spark.topics import topic_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.client.subscription_options import Start
    from gapless.spark.options import ReadOptions
    from gapless.sync import Client

Offset = dict[str, int | str]
QUERY = "query"
"""The key of the query's name in its offsets; a pubend's name has a slash."""

BEAT_S = 3.0
"""How often a run shows that it lives: a lease lasts 10 s."""

log = logging.getLogger(__name__)


def token_of(offset: Offset) -> Token:
    """Where the query stands."""
    return Token({name: int(tick) for name, tick in offset.items() if name != QUERY})


class SubscriptionLease:
    """The subscriptions of one run. See the module docstring."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._query = ""
        self._run = uuid4().hex
        self._leased: dict[str, None] = {}  # topics
        self._refusal: RefusedError | None = None
        self._has_ended = threading.Event()
        self._beats: threading.Thread | None = None

    def offset(self, token: Token) -> Offset:
        return {**dict(token), QUERY: self._query}

    def name(self, topic: str) -> str:
        """Of the subscription to this topic."""
        is_one = not self._options.topic_pattern and len(self._options.topics) == 1
        return self._options.subscription if is_one else f"{self._options.subscription}/{topic}"

    def begin(self, client: Client, topics: Sequence[str], start: Start) -> Token:
        """As a new query: where the subscriptions stand, which are made if need be."""
        self._query = self._query or uuid4().hex
        stands = Token()
        for topic in topics:
            stands = stands.join(self._make(client, topic, start))
            self._take(client, topic)
        self._beat(client)
        return stands

    def hold(self, client: Client, topics: Sequence[str], offset: Offset) -> None:
        """As the query that has made this offset: see to it that the leases are this run's."""
        if self._refusal is not None:
            raise self._refusal
        if not self._query:
            self._query = str(offset.get(QUERY) or uuid4().hex)
        for topic in topics:
            if topic not in self._leased:
                self._take_or_make(client, topic, token_of(offset))
        self._beat(client)

    def _take_or_make(self, client: Client, topic: str, token: Token) -> None:
        own = Token({name: tick for name, tick in token if topic_of(name, [topic]) == topic})
        try:
            self._take(client, topic)
        except RefusedError:
            if self._exists(client, topic):
                raise
            self._make(client, topic, own if len(own) else "earliest")
            self._take(client, topic)

    def _take(self, client: Client, topic: str) -> None:
        client.lease(self.name(topic), query=self._query, run=self._run)
        self._leased[topic] = None

    def _make(self, client: Client, topic: str, start: Start) -> Token:
        condition, name = self._options.condition, self.name(topic)
        with client.subscribe(topic, condition, name=name, start=start) as subscription:
            return subscription.token

    def _exists(self, client: Client, topic: str) -> bool:
        try:
            client.acknowledge(self.name(topic), Token())
        except RefusedError:
            return False
        return True

    def acknowledge(self, client: Client, token: Token) -> None:
        """Release everything below the token. If a broker is away, with the next call."""
        for topic in list(self._leased):
            own = {name: tick for name, tick in token if topic_of(name, [topic]) == topic}
            try:
                client.acknowledge(self.name(topic), Token(own), run=self._run)
            except LinkError as error:
                log.warning("%s is not acknowledged yet: %s", self.name(topic), error)
            except RefusedError as error:
                if self._exists(client, topic):
                    self._refusal = error
                    raise
                self._take_or_make(client, topic, Token(own))

    # --- signs of life ----------------------------------------------------------------------------

    def _beat(self, client: Client) -> None:
        if self._beats is None:
            self._beats = threading.Thread(target=self._run_beats, args=(client,), daemon=True)
            self._beats.start()

    def _run_beats(self, client: Client) -> None:
        while not self._has_ended.wait(BEAT_S) and self._refusal is None:
            for topic in list(self._leased):
                try:
                    client.acknowledge(self.name(topic), Token(), run=self._run)
                except RefusedError as error:
                    if not self._has_ended.is_set() and self._exists(client, topic):
                        self._refusal = error
                except Exception as error:
                    log.debug("no sign of life to %s: %s", self.name(topic), error)

    def stop(self) -> None:
        self._has_ended.set()
