"""`gapless broker`: one broker of a network."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.configuration import Limits, SettingsFile, read_limits, rereader
from gapless.cli.serve import (
    DATA,
    AdminAddress,
    AdminHosts,
    Data,
    HttpAddress,
    HttpHosts,
    HttpOrigins,
    Insecure,
    LogJson,
    LogLevel,
    MetricsOpen,
    Mqtt,
    MqttJson,
    MqttWs,
    none_or,
    store_options,
)
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from gapless.broker.lease import StoreOptions
    from gapless.core.identity import BrokerName
    from gapless.node.network import Network

NetworkFile = Annotated[
    Path, typer.Argument(metavar="NETWORK.toml", help="The network file; see `gapless up --help`.")
]

Join = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Join the running network of the broker at this address."
    ),
]
Listen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Where to listen, instead of the address in the network file."
    ),
]


def broker(
    network: NetworkFile,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="The broker of the file to run, or several; leave it out where there is no file.",
        ),
    ] = None,
    join: Join = None,
    listen: Listen = None,
    admin: AdminAddress = "127.0.0.1:0",
    admin_host: AdminHosts = None,
    metrics_open: MetricsOpen = False,
    http: HttpAddress = None,
    http_host: HttpHosts = None,
    http_origin: HttpOrigins = None,
    data: Data = DATA,
    insecure: Insecure = False,
    mqtt: Mqtt = None,
    mqtt_ws: MqttWs = None,
    mqtt_json: MqttJson = False,
    config: SettingsFile = None,
    limits: Limits = None,
    with_parent: Annotated[
        bool, typer.Option("--with-parent", help="Stop when standard input is closed.")
    ] = False,
    log_json: LogJson = False,
    log_level: LogLevel = "info",
) -> None:
    """Run one broker of a network, or several: start each on its machine with the same file.

    \b
    gapless broker NETWORK.toml east                      one of the file
    gapless broker NETWORK.toml east --listen HOST:PORT   a standby of it, if it has a store
    gapless broker NETWORK.toml east west                 both in one process
    gapless broker edge-9 --join 10.0.0.7:7117            another one, while the network runs
    gapless broker NETWORK.toml edge-9 --join HOST:PORT   the same, with the file's [security]

    Its data is in FOLDER/NAME, its addresses in FOLDER/NAME/address.json. It uses a core. One that
    joined serves reliable and multicast topics only. Start it again in the same way after a crash.
    """
    from gapless.broker.process import run
    from gapless.broker.settings import Settings

    node, process = read_limits(limits, config)
    settings = Settings(
        **process,
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
        security_folder=network.parent,
        join=join,
    )
    begin = partial(run, config=node, log_json=log_json, log_level=log_level)
    find = partial(which, network, names or [], join, listen)
    reread = rereader(lambda: find()[1], settings, limits, config)
    (first, *others), described = find()
    store = shared_store([first, *others], described, listen)
    begin = partial(begin, with_parent=with_parent, store=store, reread=reread)
    begin(first, described, settings, others=others)


def shared_store(
    names: list[BrokerName], network: Network, listen: str | None
) -> StoreOptions | None:
    """The store of the process's broker, if it has one; then the process has no other broker."""
    stores = [own_store(each, network, listen) for each in names]
    if len(names) > 1 and any(stores):
        raise UsageError(
            "a broker with a store has a process of its own", "Run the others in another one."
        )
    return stores[0]


def own_store(own: BrokerName, network: Network, listen: str | None) -> StoreOptions | None:
    """The store that the network file gives the broker, if it gives one."""
    cell = network.cell_of.get(own)
    entry = next((each for each in cell.brokers if each.name == own), None) if cell else None
    if entry is None or not (url := network.store_of(entry)):
        return None
    address = listen or entry.advertise or entry.listen
    return store_options(url, own, address, network.lease_s)


def which(
    network: Path, names: list[str], join: str | None, listen: str | None
) -> tuple[list[BrokerName], Network]:
    """The brokers that are meant, and their network. A broker that joins needs no network file."""
    from gapless.broker.addresses import parse_address
    from gapless.broker.networks import joining_network, read_network
    from gapless.core.identity import BrokerName

    if len(set(names)) > 1 and (join is not None or listen is not None):
        raise UsageError("--join and --listen are for one broker", "Give one name.")
    if join is not None:
        parse_address(join)  # a typing error is reported, not dialled for ever
        if not names:
            return [BrokerName(str(network))], joining_network(str(network), listen=listen)
        security = read_network(network).security
        return [BrokerName(names[0])], joining_network(names[0], security, listen)
    if not names:
        raise UsageError("which broker of the network?", "Give its name after the network file.")
    return list(map(BrokerName, dict.fromkeys(names))), read_network(network)
