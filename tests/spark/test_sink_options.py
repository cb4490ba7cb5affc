"""Options of the sink: what is unknown or contradicts another is refused by name."""

from __future__ import annotations

import pytest

from gapless.core.errors import UsageError
from gapless.spark.sink_options import SinkOptions, parse_sink_options

URL = {"url": "gapless://127.0.0.1:7117"}


def test_options_come_in_any_case_and_mean_what_they_say() -> None:
    given = URL | {
        "TOPIC": "trades",
        "txnappid": "ledger",
        "txnVersion": "7",
        "attributes": "a, b",
        "body": "json",
        "patienceSeconds": "5",
        "token": "secret",
    }
    assert parse_sink_options(given, is_stream=False) == SinkOptions(
        url=URL["url"],
        topic="trades",
        attributes=("a", "b"),
        is_json=True,
        producer="ledger",
        transaction=7,
        patience_s=5.0,
        credentials={"token": "secret"},
    )
    assert "secret" not in repr(parse_sink_options(given, is_stream=False))


def test_no_attributes_at_all_can_be_asked_for() -> None:
    assert parse_sink_options(URL, is_stream=True).attributes is None
    assert parse_sink_options(URL | {"attributes": ""}, is_stream=True).attributes == ()


def test_sparks_own_options_are_no_concern_of_ours() -> None:
    parse_sink_options(URL | {"checkpointLocation": "somewhere"}, is_stream=True)


@pytest.mark.parametrize(
    ("given", "is_stream", "said"),
    [
        ({}, True, "url is missing"),
        (URL | {"topik": "t"}, True, "no option 'topik'. Did you mean topic"),
        (URL | {"subscription": "s"}, True, "no option 'subscription'"),
        (URL | {"txnVersion": "3"}, True, "txnVersion is for batch writes"),
        (URL | {"txnVersion": "3"}, False, "go together"),
        (URL | {"txnAppId": "a"}, False, "go together"),
        (URL | {"txnAppId": "a", "txnVersion": "-1"}, False, "txnVersion='-1' is no whole number"),
        (URL | {"body": "xml"}, True, "body='xml' is no choice"),
        (URL | {"attributes": "a,b,a"}, True, "names a column twice"),
        (URL | {"patienceSeconds": "0"}, True, "patienceSeconds='0'"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    given: dict[str, str], is_stream: bool, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        parse_sink_options(given, is_stream=is_stream)


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_log_is_not_overwritten(is_stream: bool) -> None:
    with pytest.raises(UsageError, match="cannot be overwritten"):
        parse_sink_options(URL, is_stream=is_stream, overwrite=True)
