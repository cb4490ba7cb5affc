"""`gapless serve`: one broker with all roles and no configuration."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gapless.cli.configuration import Limits, SettingsFile, read_limits, rereader

if TYPE_CHECKING:
    from gapless.broker.lease import StoreOptions

DATA = Path("gapless-data")

Data = Annotated[Path, typer.Option(metavar="FOLDER", help="The folder for all data.")]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Allow other addresses than loopback without security: everybody may do everything.",
    ),
]
AdminHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--admin-host",
        metavar="NAME",
        help="A host name that admin requests may use where there is no security; repeatable.",
    ),
]
MetricsOpen = Annotated[
    bool,
    typer.Option(
        "--metrics-open",
        help="With security: /metrics needs no token, for whoever reaches the admin port.",
    ),
]
AdminAddress = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        help="Where the console, /health and /metrics are served, or none.",
    ),
]
HttpAddress = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Where to publish, read and subscribe over HTTP."),
]
HttpHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--http-host",
        metavar="NAME",
        help="A host name that HTTP requests may use where there is no security; repeatable.",
    ),
]
HttpOrigins = Annotated[
    list[str] | None,
    typer.Option(
        "--http-origin",
        metavar="ORIGIN",
        help="An origin whose pages may use HTTP, such as https://shop.example; repeatable.",
    ),
]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log JSON objects, one a line.")]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option(help="The least severe level to log."),
]

Topics = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A topic that exists from the start; repeatable."),
]

Security = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A file with [security]; `gapless security init` makes one."),
]

Name = Annotated[
    str, typer.Option(metavar="NAME", help="Its name, in the data folder and in a store.")
]
Store = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Keep each commit in this PostgreSQL too; a second process then stands by.",
    ),
]
LeaseSeconds = Annotated[
    float | None,
    typer.Option(
        help="With --store: how long a standby waits for a silent holder.", show_default="2.5"
    ),
]
Mqtt = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Where clients of MQTT 5 and 3.1.1 connect."),
]
MqttWs = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="The same over WebSocket, for browsers.")
]
MqttJson = Annotated[
    bool,
    typer.Option(
        "--mqtt-json", help="Read members of JSON payloads as attributes, for conditions."
    ),
]


Processes = Annotated[
    int,
    typer.Option(metavar="N", help="Run the broker as this many processes, one for each core."),
]
Process = Annotated[int | None, typer.Option(hidden=True)]

ListenAddress = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Where clients connect; port 0 is any free port.")
]


def serve(
    topic: Topics = None,
    listen: ListenAddress = "127.0.0.1:7117",
    admin: AdminAddress = "127.0.0.1:7118",
    admin_host: AdminHosts = None,
    metrics_open: MetricsOpen = False,
    http: HttpAddress = None,
    http_host: HttpHosts = None,
    http_origin: HttpOrigins = None,
    data: Data = DATA,
    processes: Processes = 1,
    security: Security = None,
    insecure: Insecure = False,
    name: Name = "serve",
    store: Store = None,
    lease_seconds: LeaseSeconds = None,
    mqtt: Mqtt = None,
    mqtt_ws: MqttWs = None,
    mqtt_json: MqttJson = False,
    config: SettingsFile = None,
    limits: Limits = None,
    log_json: LogJson = False,
    log_level: LogLevel = "warning",
    process: Process = None,
) -> None:
    """Run a single broker that takes events, stores them and delivers them.

    \b
    gapless serve                             in one terminal, then in others:
    gapless topic create trades
    gapless subscribe trades "price > 90"
    gapless publish trades symbol=IBM price=92.5

    Ctrl-C stops the broker in order. After a crash start it again: what was confirmed is there.

    \b
    gapless store init URL                                    once, then on two machines:
    gapless serve --name prices --store URL --listen HOST:PORT

    The first process serves, the second stands by and takes over. Give clients both addresses.

    With --processes 4 it is four processes behind one address, for as many cores.
    """
    from gapless.broker.process import run
    from gapless.broker.settings import Settings
    from gapless.cli.processes import Plan, serve_part

    node, numbers = read_limits(limits, config)
    settings = Settings(
        **numbers,
        data=data,
        listen=listen,
        admin=none_or(admin),
        admin_hosts=tuple(admin_host or ()),
        metrics_open=metrics_open,
        http=http,
        http_hosts=tuple(http_host or ()),
        http_origins=tuple(http_origin or ()),
        mqtt=mqtt,
        mqtt_ws=mqtt_ws,
        mqtt_json=mqtt_json,
        insecure=insecure,
        security_folder=security.parent if security else Path(),
    )
    plan = Plan(name, processes, data, listen)
    plan.check(store)
    kept = store_options(store, name, listen, lease_seconds)
    begin = partial(run, config=node, log_json=log_json, log_level=log_level, store=kept)
    calls = begin, partial(rereader, pairs=limits, file=config)
    serve_part(plan, process, settings, calls, topic or [], security and read_table(security))


def store_options(
    url: str | None, name: str, address: str, lease_s: float | None
) -> StoreOptions | None:
    if not url:
        return None
    from gapless.broker.lease import StoreOptions
    from gapless.storage.replica.postgres import PostgresStore
    from gapless.storage.replica.store import StoreUnreachableError

    with suppress(StoreUnreachableError):  # it is waited for; what will never work is told at once
        PostgresStore(url).state(name)
    return StoreOptions(
        connect=lambda: PostgresStore(url),
        name=name,
        address=address,
        lease_s=StoreOptions.lease_s if lease_s is None else lease_s,
    )


def read_table(path: Path) -> object:
    """The `[security]` of a file."""
    import tomllib

    from gapless.core.errors import UsageError

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))["security"]
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError) as error:
        raise UsageError(
            f"cannot read [security] in {path}: {error}", "Make it with `gapless security init`."
        ) from None


def none_or(address: str) -> str | None:
    return None if address == "none" else address
