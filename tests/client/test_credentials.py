"""A client believes only brokers it has reason to, and its token never leaves in the clear."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gapless import sync
from gapless.client.client import connect
from gapless.client.credentials import Credentials, find_credentials
from gapless.client.errors import LinkError, RefusedError
from gapless.core.errors import UsageError
from tests.broker.castle import Castle
from tests.broker.stage import make_broker, run

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_given_counts_before_the_environment() -> None:
    environment = {
        "GAPLESS_TOKEN": "a.b\n", "GAPLESS_CA": "x", "GAPLESS_CERTIFICATE": "c", "GAPLESS_KEY": "k",
    }  # fmt: skip
    found = find_credentials(is_tls=True, environment=environment)
    assert found == Credentials("a.b", "x", "c", "k")
    found = find_credentials(
        is_tls=True, token="t.t", ca="y", certificate="d", environment=environment
    )
    assert found == Credentials("t.t", "y", "d", ""), "a key goes with its certificate"
    assert find_credentials(is_tls=True, environment={}) == Credentials()
    assert "t.t" not in repr(found)


def test_without_tls_nothing_is_shown() -> None:
    assert find_credentials(is_tls=False, environment={"GAPLESS_TOKEN": "a.b"}) is None
    with pytest.raises(UsageError, match=r"token and ca cannot be used without TLS.*gapless\+tls"):
        find_credentials(is_tls=False, token="a.b", ca="x", environment={})
    with pytest.raises(UsageError, match="a key needs its certificate"):
        find_credentials(is_tls=True, key="x", environment={})


def test_files_that_are_no_good_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("no PEM")
    bad = str(tmp_path / "bad")
    for name in (bad, str(tmp_path / "none")):
        with pytest.raises(UsageError, match="cannot use the authority in"):
            Credentials(authority=name).context()
        with pytest.raises(UsageError, match="cannot use the certificate"):
            Credentials(certificate=name).context()


def test_a_broker_of_another_authority_is_not_believed(tmp_path: Path) -> None:
    async def main() -> None:
        castle, other = Castle(tmp_path / "a"), Castle(tmp_path / "b")
        async with castle.broker() as broker:
            for options in ({"ca": other.ca}, {"ca": None}):
                with pytest.raises(RefusedError, match=r"certificate of the broker at .* not good"):
                    await castle.client(broker, "admin", **options).__aenter__()

    run(main())


def test_a_certificate_that_has_ended_or_is_of_another_host_is_not_believed(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        castle.write(castle.authority.broker("b", days=-1), "brokers/b")
        async with castle.broker() as broker:
            with pytest.raises(RefusedError, match="expired"):
                await castle.client(broker, "admin").__aenter__()
        castle.write(castle.authority.client("b"), "brokers/b")
        async with castle.broker() as broker:
            with pytest.raises(RefusedError, match="not good"):
                await castle.client(broker, "admin").__aenter__()
        castle.write(castle.authority.broker("b"), "brokers/b")
        async with castle.broker(listen="127.0.0.2:0") as broker:
            with pytest.raises(RefusedError, match=r"127\.0\.0\.2"):
                await castle.client(broker, "admin").__aenter__()
        castle.write(castle.authority.broker("b", ["127.0.0.2"]), "brokers/b")
        async with (
            castle.broker(listen="127.0.0.2:0") as broker,
            castle.client(broker, "admin") as client,
        ):
            await client.publish("t", {})

    run(main())


def test_plain_and_tls_do_not_mix_and_both_ends_say_so(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path / "a")
        async with castle.broker() as broker:
            with pytest.raises(LinkError, match=r"TLS.*gapless\+tls://"):
                await connect(f"gapless://{broker.address}", patience_s=2.0).__aenter__()
        async with make_broker(tmp_path / "b") as broker:
            tls = connect(f"gapless+tls://{broker.address}", ca=castle.ca, token="a.b")
            with pytest.raises(RefusedError, match="does not speak TLS"):
                await tls.__aenter__()

    run(main())


def test_a_client_goes_on_with_the_broker_that_admits_it(tmp_path: Path) -> None:
    """One of several that refuses is not the end; all of them are, and at once."""

    async def main() -> None:
        castle, other = Castle(tmp_path / "a"), Castle(tmp_path / "b")
        other.write(castle.authority.broker("b"), "brokers/b")
        other.authority = castle.authority
        async with castle.broker() as broker, other.broker() as stranger:
            url = f"gapless+tls://{stranger.address},{broker.address}"
            token = castle.tokens["feed"]
            async with connect(url, token=token, ca=castle.ca) as client:
                await client.publish("t", {})
                assert client.address == broker.address
            url = f"gapless+tls://{stranger.address},{stranger.address}"
            with pytest.raises(RefusedError, match="not admitted"):  # long before its patience ends
                await connect(url, token=token, ca=castle.ca, patience_s=600).__aenter__()

    run(main())


def test_the_blocking_client_takes_the_same_options(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path)
        async with castle.broker() as broker:

            def publish() -> str:
                with sync.connect(broker.url, ca=castle.ca, token=castle.tokens["feed"]) as client:
                    return client.publish("t", {}).pubend

            assert await asyncio.to_thread(publish) == "t/0"

    run(main())
