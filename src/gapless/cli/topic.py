"""`gapless topic`: create, list, show and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from gapless.cli.connection import URL, Url, connected, with_credentials
from gapless.cli.terminal import is_terminal, json_text, make_table, pairs, say, show_table, visible
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gapless.client.client import Client
    from gapless.client.topics import TopicDescription

Result = TypeVar("Result")
COLUMNS = ("name", "service", "pubends", "hosts", "retention", "keeps")

topic = typer.Typer(
    name="topic", help="Create, list, show, alter and delete topics.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="The name of the topic.")]
RetentionBytes = Annotated[
    int | None, typer.Option(help="Delete the oldest events beyond this size of a stream.")
]
KeepSeconds = Annotated[
    float | None, typer.Option(help="Keep younger events, also if nobody subscribes.")
]
KeepBytes = Annotated[
    int | None, typer.Option(help="Keep the newest events of a stream, also if nobody subscribes.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@topic.command()
@with_credentials
def create(
    name: Name,
    service: Annotated[
        str, typer.Option(help="The service: durable, reliable or multicast.")
    ] = "durable",
    pubends: Annotated[
        int | None,
        typer.Option(
            min=1, help="The number of its streams, spread over the brokers. [default: 1]"
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BROKER", help="The broker that hosts a pubend; give one for each pubend."
        ),
    ] = None,
    retention_seconds: Annotated[
        float | None,
        typer.Option(help="Delete older events, even if a subscriber has not had them."),
    ] = None,
    retention_bytes: RetentionBytes = None,
    keep_seconds: KeepSeconds = None,
    keep_bytes: KeepBytes = None,
    ordered: Annotated[
        bool,
        typer.Option(
            "--ordered", help="Multicast only: every subscriber gets all events in one order."
        ),
    ] = False,
    as_json: AsJson = False,
    url: Url = URL,
) -> None:
    """Create a topic. If the same topic exists, nothing happens.

    \b
    gapless topic create trades
    gapless topic create trades --pubends 4 --retention-seconds 86400
    gapless topic create quotes --service reliable
    gapless topic create scores --service multicast --ordered

    Every broker of the network knows the topic from then on, also after restarts.
    """
    from gapless.core.topic_messages import SERVICES

    chosen = next((each for each in SERVICES if each == service), None)
    if chosen is None:
        raise UsageError(f"there is no service {service!r}", f"Use one of {', '.join(SERVICES)}.")
    check_limits(retention_seconds, retention_bytes, keep_seconds, keep_bytes)
    if host and pubends is not None and pubends != len(host):
        problem = f"--pubends {pubends} and {len(host)} --host contradict each other"
        raise UsageError(problem, "Name a host for each pubend, or leave one of the two out.")

    async def work(client: Client) -> list[TopicDescription]:
        await client.create_topic(
            name,
            chosen,  # type: ignore[arg-type]  # it is one of them
            pubends or 1,
            retention_seconds,
            retention_bytes,
            host,
            ordered=ordered,
            keep_seconds=keep_seconds,
            keep_bytes=keep_bytes,
        )
        return await client.topics()

    found = [each for each in run(url, work) if each.name == name]
    tell(found[0] if found else None, f"topic {visible(name)} is there", as_json=as_json)


def check_limits(*limits: float | None) -> None:
    if any(each is not None and each <= 0 for each in limits):
        raise UsageError("a retention must be above zero", "Leave it out to keep all.")


LIMIT = "a number, or `none` for no limit"


@topic.command()
@with_credentials
def alter(
    name: Name,
    retention_seconds: Annotated[
        str | None, typer.Option(help=f"Delete older events: {LIMIT}.")
    ] = None,
    retention_bytes: Annotated[
        str | None, typer.Option(help=f"Delete the oldest beyond this size of a stream: {LIMIT}.")
    ] = None,
    keep_seconds: Annotated[
        str | None, typer.Option(help=f"Keep younger events though nobody subscribes: {LIMIT}.")
    ] = None,
    keep_bytes: Annotated[
        str | None, typer.Option(help=f"Keep the newest of a stream though nobody does: {LIMIT}.")
    ] = None,
    as_json: AsJson = False,
    url: Url = URL,
) -> None:
    """Change how much of a durable topic is kept. What is not given stays as it is.

    \b
    gapless topic alter trades --keep-seconds 3600
    gapless topic alter trades --retention-bytes none
    """
    texts = {
        "retention_seconds": retention_seconds,
        "retention_bytes": retention_bytes,
        "keep_seconds": keep_seconds,
        "keep_bytes": keep_bytes,
    }
    changes = {field: read_limit(field, text) for field, text in texts.items() if text is not None}

    async def work(client: Client) -> list[TopicDescription]:
        await client.alter_topic(name, **changes)
        return await client.topics()

    found = [each for each in run(url, work) if each.name == name]
    tell(found[0] if found else None, f"topic {visible(name)} is altered", as_json=as_json)


def read_limit(field: str, text: str) -> Any:
    """A limit of the command line; None for `none`."""
    if text == "none":
        return None
    try:
        return int(text) if field.endswith("bytes") else float(text)
    except ValueError:
        option = "--" + field.replace("_", "-")
        raise UsageError(f"{option} {text} is no limit", f"Give {LIMIT}.") from None


@topic.command(name="list")
@with_credentials
def list_topics(as_json: AsJson = False, url: Url = URL) -> None:
    """List all topics of the network."""
    found = run(url, lambda client: client.topics())
    if not found:
        say("there are no topics: gapless topic create NAME", err=True)
    if as_json:
        say(json_text([as_dict(each) for each in found], indent=2))
        return
    if is_terminal() and found:
        show_table(make_table(*COLUMNS, rows=(row(each).values() for each in found)))
        return
    for each in found:
        say(pairs(row(each)))


@topic.command()
@with_credentials
def show(name: Name, as_json: AsJson = False, url: Url = URL) -> None:
    """Show one topic."""
    found = [each for each in run(url, lambda client: client.topics()) if each.name == name]
    if not found:
        from gapless.client.errors import RefusedError

        problem = f"there is no topic {name!r}"
        raise RefusedError(problem, f"Create it: gapless topic create {name}")
    lines = "\n".join(f"{key}: {visible(value)}" for key, value in row(found[0]).items())
    tell(found[0], lines, as_json=as_json)


@topic.command()
@with_credentials
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
    url: Url = URL,
) -> None:
    """Delete a topic with all its events and subscriptions, for good.

    Publications to it are refused, and its subscriptions end with an error.
    """
    if not yes:
        typer.confirm(
            f"Delete topic {visible(name)} with its events and subscriptions?", abort=True
        )
    run(url, lambda client: client.delete_topic(name))
    say(json_text({"deleted": name}) if as_json else f"topic {visible(name)} is deleted")


def run(url: str, work: Callable[[Client], Awaitable[Result]]) -> Result:
    import asyncio

    async def main() -> Result:
        async with connected(url) as client:
            return await work(client)

    return asyncio.run(main())


def tell(found: TopicDescription | None, text: str, *, as_json: bool) -> None:
    say(json_text(as_dict(found) if found else None) if as_json else text)


def as_dict(found: TopicDescription) -> dict[str, object]:
    return {**found._asdict(), "hosts": list(found.hosts), "pubends": len(found.hosts)}


def row(found: TopicDescription) -> dict[str, str]:
    kept = [
        f"{found.retention_seconds:g} s" if found.retention_seconds is not None else "",
        f"{found.retention_bytes} bytes" if found.retention_bytes is not None else "",
    ]
    keeps = [
        f"{found.keep_seconds:g} s" if found.keep_seconds is not None else "",
        f"{found.keep_bytes} bytes" if found.keep_bytes is not None else "",
    ]
    return {
        "name": found.name,
        "service": f"{found.service}, ordered" if found.ordered else found.service,
        "pubends": str(len(found.hosts)),
        "hosts": ", ".join(found.hosts) or "every broker",
        "retention": ", ".join(filter(None, kept))
        or ("all that is needed" if found.hosts else "-"),
        "keeps": ", ".join(filter(None, keeps)) or "-",
    }
