"""Options are refused by name before anything is asked of a broker."""

from __future__ import annotations

import pytest

from gapless.core.errors import UsageError
from gapless.core.token import Token
from gapless.spark.options import parse_options

GIVEN = {"url": "gapless://h:1", "topic": "t"}
STREAM = {**GIVEN, "subscription": "s"}


@pytest.mark.parametrize(
    ("options", "is_stream", "said"),
    [
        ({"url": "x"}, False, "the option topic is missing. Add"),
        (GIVEN, True, "a streaming read needs the name of a durable subscription"),
        ({**GIVEN, "subscription": "s"}, False, "option subscription is for streaming reads"),
        ({**STREAM, "endingoffsets": "latest"}, True, "option endingOffsets is for batch reads"),
        ({**GIVEN, "startingofsets": "x"}, False, "'startingofsets'. Did you mean startingOffsets"),
        ({**GIVEN, "path": "x"}, False, "there is no option 'path'"),
        (
            {**GIVEN, "startingoffsets": "latest", "startingtimestamp": "1"},
            False,
            "startingOffsets and startingTimestamp",
        ),
        (
            {**STREAM, "maxeventspertrigger": "1", "maxoffsetspertrigger": "1"},
            True,
            "maxEventsPerTrigger and maxOffsetsPerTrigger",
        ),
        ({**GIVEN, "gaps": "rows", "failondataloss": "true"}, False, "contradict each other"),
        ({**GIVEN, "gaps": "loud"}, False, "gaps='loud'"),
        ({**GIVEN, "failondataloss": "perhaps"}, False, "failOnDataLoss='perhaps'"),
        ({**GIVEN, "startingoffsets": "early"}, False, "startingOffsets='early'"),
        ({**GIVEN, "startingoffsets": '{"t/0":-1}'}, False, "-1 is no tick"),
        ({**GIVEN, "startingtimestamp": "2026-01-01T00:00:00"}, False, "is no time"),
        ({**GIVEN, "endingtimestamp": "noon"}, False, "endingTimestamp='noon'"),
        ({**GIVEN, "mode": "DROPMALFORMED"}, False, "mode='DROPMALFORMED'"),
        ({**GIVEN, "minpartitions": "0"}, False, "minPartitions='0'"),
        ({**STREAM, "maxeventspertrigger": "many"}, True, "maxEventsPerTrigger='many'"),
        ({**GIVEN, "pubends": "a,b,a"}, False, "a thing twice"),
    ],
)
def test_what_is_unknown_missing_or_in_contradiction_is_named(
    options: dict[str, str], is_stream: bool, said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        parse_options(options, is_stream=is_stream)
    assert said in str(refused.value)


def test_places_are_tokens_names_and_times() -> None:
    def start(**options: str) -> object:
        return parse_options({**GIVEN, **options}, is_stream=False).start

    assert start() is None
    assert start(startingoffsets="earliest") == "earliest"
    assert start(startingoffsets=' {"t/0":7}') == Token({"t/0": 7})
    assert start(startingtimestamp="1700000000000") == 1_700_000_000_000_000
    assert start(startingtimestamp="1970-01-01T01:00:01+01:00") == 1_000_000


def test_secrets_are_not_shown() -> None:
    options = parse_options({**GIVEN, "token": "very secret"}, is_stream=False)
    assert options.credentials == {"token": "very secret"}
    assert "very secret" not in repr(options)
