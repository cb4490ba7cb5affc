"""A token proves one principal and no other; its file keeps no secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.broker.security.principals import Principals, read_principals, write_private
from gapless.broker.security.rights import ALL_RIGHTS, Right, Rights, parse_rights
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

PUBLISHES = parse_rights(["publish=t"])


def test_a_token_is_known_after_it_was_written_and_read(tmp_path: Path) -> None:
    principals = Principals()
    first = principals.add_token("desk.7", PUBLISHES)
    second = principals.add_token("desk.7", parse_rights(["subscribe=t"]))
    other = principals.add_token("admin", ALL_RIGHTS)
    path = tmp_path / "principals.json"
    principals.write(path)
    principals.write(path)
    read = read_principals(path)
    for token in (first, second):
        found = read.by_token(token)
        assert found is not None
        assert found.name == "desk.7"
        assert set(found.rights.patterns) == {Right.PUBLISH, Right.SUBSCRIBE}
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    for token in (first, second, other):
        assert token.rpartition(".")[2] not in text


def test_nothing_but_the_token_itself_will_do() -> None:
    principals = Principals()
    token, other = principals.add_token("a", PUBLISHES), principals.add_token("b", PUBLISHES)
    secret = token.rpartition(".")[2]
    assert principals.by_token(token) is not None
    wrong = ["", "a", "a.", ".", f".{secret}", secret, token[:-1], f"{token}x", f"b.{secret}"]
    wrong += [f"nobody.{secret}", f"a.{other.rpartition('.')[2]}", token.swapcase(), "a.\udcff"]
    for each in wrong:
        assert principals.by_token(each) is None, each


def test_two_tokens_of_equal_secret_would_have_unlike_hashes() -> None:
    principals = Principals()
    principals.add_token("a", PUBLISHES)
    principals.add_token("a", PUBLISHES)
    (salt, _), (other, _) = principals.entries["a"].hashes
    assert salt != other


def test_rights_by_pattern_are_added_and_serve_certificates() -> None:
    principals = Principals(rights={"desk-*": parse_rights(["subscribe=t"])})
    principals.add("desk-1", PUBLISHES)
    assert set(principals.rights_of("desk-1").patterns) == {Right.PUBLISH, Right.SUBSCRIBE}
    by_name = principals.by_name("desk-2")
    assert by_name is not None
    assert by_name.rights == parse_rights(["subscribe=t"])
    assert principals.by_name("stranger") is None
    assert principals.by_token("desk-2.secret") is None, "a pattern makes no token"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a" * 101, "ü\n"])
def test_an_odd_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no name"):
        Principals().add_token(name, Rights())


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"principals": []}', '{"principals": {"a": {}}}',
        '{"principals": {"a": {"rights": {"fly": ["*"]}, "tokens": []}}}',
        '{"principals": {"a": {"rights": {}, "tokens": [{"salt": "x", "hash": ""}]}}}',
    ],
)  # fmt: skip
def test_a_file_that_is_none_of_principals_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "principals.json"
    path.write_text(text)
    with pytest.raises(UsageError):
        read_principals(path)


def test_a_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="security init"):
        read_principals(tmp_path / "none")


def test_a_private_file_is_never_written_over(tmp_path: Path) -> None:
    write_private(tmp_path / "key", b"one")
    with pytest.raises(FileExistsError):
        write_private(tmp_path / "key", b"two")
    assert (tmp_path / "key").read_bytes() == b"one"
