"""`--set` and the settings file reach the broker, or are refused with what to write."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gapless.broker import settings
from gapless.broker.settings import Settings
from gapless.cli.configuration import PLACES, basic_settings, read_file, read_limits
from gapless.core.errors import UsageError
from gapless.node.config import Config
from tests.broker.stage import LINE
from tests.children import PATIENCE_S, PROGRAM, child, told, warned
from tests.cli.test_serve import gapless, serving

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_limits_of_the_node_and_of_the_process_are_told_apart(tmp_path: Path) -> None:
    assert read_limits(None) == (Config(), {})
    given = ["subscriptions_max=1_000", "propagates=false", "silence_s=2.5", "connections_max=7"]
    config, process = read_limits(given)
    assert config == Config(subscriptions_max=1_000, propagates=False)
    assert process == {"silence_s": 2.5, "connections_max": 7}
    assert Settings(data=tmp_path, **process).silence_s == 2.5


def test_a_link_bears_more_than_the_node_lets_wait_for_it(tmp_path: Path) -> None:
    large = 500_000_000
    config, process = read_limits([f"client_queue_bytes_max={large}"])
    assert config.client_queue_bytes_max == large
    assert Settings(data=tmp_path, **process).client_queue_bytes_max > large
    assert read_limits(["client_queue_bytes_max=1000"])[1] == {}


@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        ("nothing=1", "there is no setting 'nothing'. docs/"),
        ("subscription_max=1", "Did you mean subscriptions_max?"),
        ("subscriptions_max", "subscriptions_max has no value"),
        ("listen=127.0.0.1:0", "is an option of its own. Write --listen."),
        ("admin_hosts=x", "Write --admin-host."),
        ("subscriptions_max=many", "Give it a whole number"),
        ("silence_s=long", "Give it a number"),
        ("propagates=1", "Give it true or false"),
        ("subscriptions_max=0", "subscriptions_max must be above zero"),
        ("silence_s=-1", "silence_s must be above zero"),
        ("dead_after=10", "dead_after must be more than heartbeat"),
    ],
)
def test_what_cannot_be_set_is_told(pair: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        read_limits([pair])


def test_a_broker_keeps_to_the_limit_that_it_was_given(tmp_path: Path) -> None:
    with serving(tmp_path, "--set", "topics_max=1") as (url, _):
        assert gapless("topic", "create", "one", "--url", url).returncode == 0
        refused = gapless("topic", "create", "two", "--url", url)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "1 names of topics, which is its limit" in refused.stderr


TEXT = re.compile(r"\b[a-z][a-z_]*_max\b")
ARGUMENTS = {"window_events_max", "attempts_max", "in_hand_max"}
"""Of calls of the client."""


def test_every_limit_that_an_error_names_can_be_set() -> None:
    """Advice that nobody can follow is worse than none."""
    known = {each.name for each in (*fields(Config), *fields(Settings))} - {*PLACES}
    for path, text in texts_of(Path(settings.__file__).parents[1]):
        for name in TEXT.findall(text):
            assert name in known | ARGUMENTS, f"{path} says {text!r}"
            if name in known:
                read_limits([f"{name}=1000000000"])  # it is taken


def texts_of(folder: Path) -> Iterator[tuple[Path, str]]:
    """All texts in the sources but docstrings and plain names: what somebody may be told."""
    for path in sorted(folder.rglob("*.py")):
        if path.relative_to(folder).parts[0] in ("sim", "testing"):
            continue  # for those who work on it
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Expr(value=ast.Constant(value=str()) as docstring):
                    docstring.value = ""
                case ast.Constant(value=str() as text) if not text.isidentifier():
                    yield path, text


def test_a_limit_that_is_set_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="subscriptions_max is set twice"):
        read_limits(["subscriptions_max=1", "subscriptions_max=2"])


# --- the settings file ----------------------------------------------------------------------------


def write(folder: Path, text: str) -> Path:
    path = folder / "gapless.toml"
    path.write_text(text)
    return path


def test_what_is_set_counts_before_the_settings_file(tmp_path: Path) -> None:
    file = write(tmp_path, "topics_max = 7\nsubscriptions_max = 8\nsilence_s = 9\nlisten = 'x:1'")
    config, process = read_limits(["subscriptions_max=1"], file)
    assert config == Config(topics_max=7, subscriptions_max=1)
    assert process == {"silence_s": 9}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("subscription_max = 1", "no setting 'subscription_max'. Did you mean subscriptions_max?"),
        ("lissten = 'x'", "Did you mean listen?"),
        ("[limits]\nx = 1", "there is no setting 'limits'"),
        ("subscriptions_max = '1'", "subscriptions_max is not '1'. Give it a whole number"),
        ("subscriptions_max = true", "Give it a whole number"),
        ("silence_s = 'long'", "Give it a number"),
        ("propagates = 1", "Give it true or false"),
        ("listen = 7117", "Give it a text in quotes"),
        ("admin_hosts = 'x'", "Give it a list of texts"),
        ("topics = [1]", "Give it a list of texts"),
        ("subscriptions_max = ", "cannot read"),
        ("subscriptions_max = 0", "subscriptions_max must be above zero"),
    ],
)
def test_what_a_settings_file_cannot_have_is_told(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)):
        read_limits([], write(tmp_path, text))


def test_a_settings_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*gapless\.toml: No such file"):
        read_file(tmp_path / "gapless.toml")


@pytest.mark.slow
def test_a_broker_is_configured_by_a_file_and_options_count_before_it(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        'data = "kept"\nlisten = "127.0.0.1:0"\nadmin = "none"\ntopics = ["one"]\ntopics_max = 1\n',
    )
    with child([*PROGRAM, "serve", "--config", str(file)]) as broker:
        line = told(broker)
        assert "is ready at gapless" in line
        assert "admin" not in line
        url = line.split("ready at ")[1].strip()
        listed = gapless("topic", "list", "--url", url)
        assert "name=one" in listed.stdout
        assert gapless("topic", "create", "two", "--url", url).returncode == 1
    assert (tmp_path / "kept" / "serve").is_dir(), "beside the file"
    with serving(tmp_path / "other", "--config", str(file), "--set", "topics_max=2") as (url, _):
        assert gapless("topic", "create", "two", "--url", url).returncode == 0
    assert (tmp_path / "other" / "serve").is_dir()


@pytest.mark.slow
def test_the_settings_file_of_the_current_folder_is_used_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 'listen = "127.0.0.1:0"\nadmin = "none"\n')
    monkeypatch.chdir(tmp_path)
    with child([*PROGRAM, "serve"]) as broker:
        assert warned(broker) == "settings are read from ./gapless.toml\n"
        assert "is ready at gapless" in told(broker)


@pytest.mark.slow
def test_a_network_takes_a_settings_file_without_addresses(tmp_path: Path) -> None:
    network, data = tmp_path / "network.toml", tmp_path / "data"
    network.write_text(LINE)
    up = [*PROGRAM, "up", str(network), "--only", "p", "--data", str(data)]
    file = write(tmp_path, 'listen = "127.0.0.1:0"')
    with child([*up, "--config", str(file)]) as refused:
        assert "'listen' is no setting of `gapless up`" in warned(refused)
        assert refused.wait(PATIENCE_S) == 2
    file = write(tmp_path, 'topics_max = 1\nlog_level = "error"')
    with child([*up, "--config", str(file)]) as running:
        assert "p started as process" in told(running)
        url = told(running).split("is ready at ")[1].strip()
        refusal = gapless("topic", "create", "more", "--url", url).stderr
        assert "1 names of topics, which is its limit" in refusal
    assert "INFO" not in (data / "p" / "log").read_text()


@pytest.mark.parametrize("page", ["docs/reference/configuration.md", "docs/how-to/run-a-broker.md"])
def test_the_settings_file_of_the_docs_can_be_read(tmp_path: Path, page: str) -> None:
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    examples = re.findall(r"```toml\n(data = .*?)```", text, re.DOTALL)
    assert len(examples) == 1
    read_limits([], write(tmp_path, examples[0]))


def test_the_help_names_the_settings_that_most_operators_need() -> None:
    basic = basic_settings()
    assert 5 <= len(basic) <= 10
    for command in ("serve", "broker", "up"):
        said = gapless(command, "--help").stdout
        assert [name for name in basic if name not in said] == []
