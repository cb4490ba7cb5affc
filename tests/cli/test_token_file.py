"""What a killed subscriber finds in its files is enough to go on exactly where it was."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from gapless.cli.deliveries import show_json
from gapless.cli.subscribe import where_from
from gapless.cli.token_file import DeliveryJournal, TokenFile
from gapless.client.delivery import Gap
from gapless.core.errors import StorageError, UsageError
from gapless.core.events import Event
from gapless.core.identity import PubendName, TopicName
from gapless.core.ticks import Span, Tick
from gapless.core.token import Token

if TYPE_CHECKING:
    from pathlib import Path

TOPIC, ZERO, ONE = TopicName("t"), PubendName("t/0"), PubendName("t/1")


def event(pubend: PubendName, tick: int) -> str:
    return show_json(Event({"a": 1}, b"", TOPIC, pubend, Tick(tick)))


def test_a_journal_knows_how_far_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = DeliveryJournal(path)
    assert first.positions == {}
    for line in (event(ZERO, 5), event(ONE, 9), show_json(Gap(TOPIC, ZERO, Span(6, 20)))):
        first.write(line)
    first.sync()
    first.close()
    again = DeliveryJournal(path)
    assert again.positions == {"t/0": 20, "t/1": 10}
    again.close()


def test_a_torn_last_line_is_cut_off_and_comes_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text(event(ZERO, 5) + "\n" + event(ZERO, 6)[:10])
    journal = DeliveryJournal(path)
    assert journal.positions == {"t/0": 6}
    journal.write(event(ZERO, 6))
    journal.close()
    assert path.read_text() == event(ZERO, 5) + "\n" + event(ZERO, 6) + "\n"


def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("dear diary\n")
    with pytest.raises(UsageError, match="is no delivery"):
        DeliveryJournal(path)
    assert path.read_text() == "dear diary\n"
    with pytest.raises(StorageError, match="cannot write"):
        DeliveryJournal(tmp_path / "missing" / "journal")


def test_a_token_is_replaced_as_it_moves_and_only_then(tmp_path: Path) -> None:
    path = tmp_path / "token"
    kept = TokenFile(path)
    assert kept.read() is None
    assert not kept.write(Token())
    assert not path.exists(), "a token that says nothing is none"
    assert kept.write(Token({"t/0": 5}))
    assert not kept.write(Token({"t/0": 5}))
    assert path.read_text() == '{"t/0":5}\n'
    assert TokenFile(path).read() == Token({"t/0": 5})
    assert [each.name for each in tmp_path.iterdir()] == ["token"]


def test_a_file_without_a_token_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("5")
    with pytest.raises(UsageError, match="not a JSON object"):
        TokenFile(path).read()
    with pytest.raises(UsageError, match="cannot read"):
        TokenFile(tmp_path).read()
    with pytest.raises(UsageError, match="cannot write"):
        TokenFile(tmp_path / "missing" / "token").write(Token({"t/0": 5}))


def test_the_token_file_says_where_to_start_and_the_journal_what_was_seen_since(
    tmp_path: Path,
) -> None:
    kept, journal = TokenFile(tmp_path / "token"), DeliveryJournal(tmp_path / "journal")
    assert where_from("earliest", kept, journal) == "earliest"
    kept.write(Token({"t/0": 5, "t/1": 50}))
    assert where_from("earliest", kept, None) == Token({"t/0": 5, "t/1": 50})
    journal.write(event(ZERO, 7))
    journal.close()
    again = DeliveryJournal(tmp_path / "journal")
    assert where_from("latest", kept, again) == Token({"t/0": 8, "t/1": 50})
    again.close()


def test_a_token_file_that_cannot_be_written_is_told_before_anything_is_subscribed(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match="its folder is not there"):
        TokenFile(tmp_path / "nowhere" / "token")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_journal_on_a_full_disk_says_so(tmp_path: Path) -> None:
    journal = DeliveryJournal(tmp_path / "journal")
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), journal._file.fileno())
    with pytest.raises(StorageError, match="No space left on device"):
        journal.write("{}")
    journal.close()


def test_a_token_file_without_a_token_is_named(tmp_path: Path) -> None:
    path = tmp_path / "desk.token"
    path.write_text("garbage")
    with pytest.raises(UsageError, match=r"desk\.token has no token: the token is not JSON"):
        TokenFile(path).read()
