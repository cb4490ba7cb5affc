"""A request follows to the broker that can serve it, and a publisher stays exactly once."""

from __future__ import annotations

import asyncio

import pytest

from gapless.client.errors import LinkError, RefusedError
from gapless.client.requests import HOPS_MAX, OTHERS_MAX, OtherBrokers, ask_with_redirects
from gapless.core.client_messages import (
    Publish,
    PublisherPosition,
    PublisherQuery,
    Receipt,
    Refused,
)
from gapless.core.errors import UsageError
from gapless.core.identity import PublisherName, TopicName
from tests.broker.stage import run
from tests.client.desk import PUBEND, Desk

PLACE = ("b:1",)


def away(request: int = 0, place: tuple[str, ...] = PLACE) -> Refused:
    return Refused(request, "not here", "Go there.", elsewhere=place)


def question(request: int) -> PublisherQuery:
    return PublisherQuery(request, TopicName("t"), PublisherName("feed"))


def receipt(publish: Publish) -> Receipt:
    return Receipt(publish.request, PUBEND, tuple(range(len(publish.events))))


def test_a_request_follows_and_the_next_one_goes_straight_there() -> None:
    async def main() -> None:
        desk = Desk()
        desk.refusals = [away(), away()]
        for _ in range(2):
            answer = await ask_with_redirects(desk, question, "feed")
            assert answer.message == PublisherPosition(0, 0)
            assert answer.channel is desk.places["b:1"]
        assert len(desk.refusals) == 1, "the second was not asked here"
        desk.places["b:1"].is_up = False
        await ask_with_redirects(desk, question, "feed")
        assert desk.refusals == [], "a connection that is down is not waited for"
        await ask_with_redirects(desk, question, "else")
        assert list(desk.places) == ["b:1"]

    run(main())


def test_a_refusal_at_the_place_is_the_answer_and_the_place_is_forgotten() -> None:
    async def main() -> None:
        desk = Desk()
        desk.refusals = [away(), away()]
        await ask_with_redirects(desk, question, "feed")
        refused = Refused(0, "no", "Stop.")
        desk.places["b:1"].refusals = [refused]
        assert (await ask_with_redirects(desk, question, "feed")).message == refused
        await ask_with_redirects(desk, question, "feed")
        assert desk.refusals == [], "it began anew at home"

    run(main())


def test_brokers_that_send_each_other_the_same_request_are_not_followed_for_ever() -> None:
    async def main() -> None:
        desk = Desk()
        desk.refusals = [away()]
        there = desk.other_brokers.at(PLACE)
        assert isinstance(there, Desk)
        there.refusals = [away() for _ in range(2 * HOPS_MAX)]
        answer = await ask_with_redirects(desk, question)
        assert isinstance(answer.message, Refused)
        assert len(there.refusals) == HOPS_MAX + 1

    run(main())


def test_further_connections_are_bounded_and_the_one_idle_longest_goes_first() -> None:
    async def main() -> None:
        desks: dict[str, Desk] = {}

        def connect(addresses: str) -> Desk:
            return desks.setdefault(addresses, Desk())

        others = OtherBrokers(connect)
        for number in range(OTHERS_MAX):
            others.at((str(number),))
        desks["0"].is_idle = False
        others.at(("1",))
        others.at(("new",))
        await asyncio.sleep(0)
        assert [name for name, desk in desks.items() if desk.is_closed] == ["2"]
        for desk in desks.values():
            desk.is_idle = False
        with pytest.raises(UsageError, match="all of them in use"):
            others.at(("more",))
        await others.close()
        assert all(desk.is_closed for desk in desks.values())

    run(main())


def test_a_publisher_publishes_where_its_name_is_known() -> None:
    async def main() -> None:
        desk = Desk()
        desk.refusals = [away()]
        async with desk.publisher() as publisher:
            there = desk.places["b:1"]
            await publisher.send({})
            await asyncio.sleep(0)
            assert desk.published == []
            there.answer(receipt(there.published[0]))

    run(main())


def test_a_publisher_that_fails_over_to_a_broker_which_sends_it_on_sends_all_again_there() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            for _ in range(2):
                await publisher.send({})
                await asyncio.sleep(0)
            desk.lose(LinkError("gone"))
            desk.sent.clear()
            desk.come_back("b2")
            flushing = asyncio.create_task(publisher.flush())
            await asyncio.sleep(0)
            for publish in desk.published:
                desk.answer(away(publish.request))
            there = desk.places["b:1"]
            assert [each.sequence for each in there.published] == [0, 1], "once each, in order"
            desk.come_back("b2")
            assert len(there.published) == 2, "what happens at home does not matter any more"
            for publish in there.published:
                there.answer(receipt(publish))
            await flushing

    run(main())


def test_a_publisher_that_is_sent_round_in_circles_fails() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.publisher() as publisher:
            await publisher.send({})
            await asyncio.sleep(0)
            desk.answer(away(desk.published[0].request, ("b:0",)))
            for hop in range(HOPS_MAX):
                there = desk.places[f"b:{hop}"]
                there.answer(away(there.published[0].request, (f"b:{hop + 1}",)))
            with pytest.raises(RefusedError, match="not here"):
                await publisher.flush()
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(main())
