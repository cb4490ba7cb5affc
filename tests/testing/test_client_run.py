"""The shipped client under every fault, and that its own faults are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.client.backlog import Backlog
from gapless.client.publisher import Publisher
from gapless.core.token import Token
from gapless.testing.client_run import simulate_clients

if TYPE_CHECKING:
    from gapless.core.ticks import Span

SEEDS = range(1, 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_seed_breaks_a_promise(seed: int) -> None:
    assert simulate_clients(seed).violation == ""


def test_the_same_seed_takes_the_same_course() -> None:
    assert simulate_clients(7).digest == simulate_clients(7).digest != simulate_clients(8).digest


def first_violation() -> str:
    return next((found for seed in SEEDS if (found := simulate_clients(seed).violation)), "")


def test_a_client_that_skips_when_it_returns_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = 100_000 << 10  # a tenth of a second
    monkeypatch.setattr(
        Backlog,
        "received",
        lambda self: Token({name: tick + ahead for name, tick in self._received.items()}),
    )
    assert first_violation()


def test_a_client_that_keeps_losses_to_itself_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(self: Backlog, pubend: str, span: Span) -> bool:
        return self.add(pubend, [], span.end, None)  # type: ignore[arg-type]

    monkeypatch.setattr(Backlog, "add_gap", silent)
    assert "gap" in first_violation()


def test_a_publisher_that_does_not_send_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publisher, "_resume", lambda _: None)
    assert first_violation()
