"""Clients of a door: one for each token, as long as it is of use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gapless.client.errors import LinkError
from gapless.doors import clients
from gapless.doors.clients import BusyError, DoorClients, NotAdmittedError
from tests.broker.castle import Castle
from tests.broker.stage import make_broker, run, wait_until

if TYPE_CHECKING:
    from pathlib import Path


def test_requests_of_one_token_share_a_client_and_streams_have_their_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            pool = DoorClients(broker.url)
            async with pool.shared("") as first, pool.shared("") as second, pool.own("") as third:
                assert first is second
                assert third is not first
            async with pool.shared("") as again:
                assert again is first
            await pool.close()

    run(main())


def test_an_idle_client_is_closed_and_the_next_request_connects_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "IDLE_S", 0.01)

    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            pool = DoorClients(broker.url)
            async with pool.shared("") as first:
                await first.topics()
            await wait_until(lambda: not broker_clients(broker))
            async with pool.shared("") as second:
                assert second is not first
                await second.topics()
            await pool.close()

    run(main())


def broker_clients(broker: object) -> int:
    statistics: dict[str, dict[str, int]] = broker.statistics()  # type: ignore[attr-defined]
    return statistics["links"]["clients"]


def test_a_wrong_token_is_not_admitted_and_no_token_is_not_taken_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        monkeypatch.setenv("GAPLESS_TOKEN", castle.tokens["admin"])
        async with castle.broker() as broker:
            pool = DoorClients(broker.url, castle.ca)
            for token in ("", "wrong.token"):
                for _ in range(2):
                    with pytest.raises(NotAdmittedError):
                        async with pool.shared(token):
                            pass
                with pytest.raises(NotAdmittedError):
                    async with pool.own(token):
                        pass
            async with pool.shared(castle.tokens["desk"]) as client:
                assert [each.name for each in await client.topics()] == ["t"]
            await pool.close()

    run(main())


def test_where_all_clients_are_busy_a_further_token_is_refused_and_idle_ones_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "CLIENTS_MAX", 2)

    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker() as broker:
            pool = DoorClients(broker.url, castle.ca)
            feed, desk, rival = (castle.tokens[who] for who in ("feed", "desk", "rival"))
            async with pool.shared(feed), pool.shared(desk):
                with pytest.raises(BusyError):
                    async with pool.shared(rival):
                        pass
            async with pool.shared(rival) as client:
                await client.topics()
            await pool.close()

    run(main())


def test_a_broker_that_is_not_there_is_a_link_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "PATIENCE_S", 0.01)

    async def main() -> None:
        pool = DoorClients("gapless://127.0.0.1:1")
        for _ in range(2):
            with pytest.raises(LinkError):
                async with pool.shared(""):
                    pass
        await asyncio.wait_for(pool.close(), 20)

    run(main())
