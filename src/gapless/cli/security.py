"""`gapless security`: a private authority, certificates, and principals with their tokens.

All of it is files in one folder, which brokers are pointed to by `[security]` in the network file.
The authority's key is needed only here, to make certificates.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.terminal import json_text, say
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from gapless.broker.security.authority import Authority, Pair
    from gapless.broker.security.rights import Rights

FOLDER = Path("gapless-security")
AUTHORITY, AUTHORITY_KEY = "authority.crt", "authority.key"
PRINCIPALS, SNIPPET, FIRST = "principals.json", "security.toml", "admin"

Folder = Annotated[
    Path, typer.Option(metavar="FOLDER", help="The folder that `gapless security init` made.")
]
RightsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rights",
        metavar="RIGHT=PATTERN,…",
        help="publish, subscribe, create or administer, with patterns of topics; or all.",
    ),
]

HEARD = "give the new files to the brokers, and send each a SIGHUP or restart it"

security = typer.Typer(
    help="Make certificates, tokens and rights.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@security.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The folder for all files.")] = FOLDER,
    network: Annotated[
        Path | None,
        typer.Option(metavar="NETWORK.toml", help="Make certificates for its brokers."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST", help="A name or address at which clients reach the brokers; repeatable."
        ),
    ] = None,
) -> None:
    """Make a private authority, a certificate for each broker, and a first token with all rights.

    \b
    gapless security init                           for `gapless serve`
    gapless security init --network trading.toml    for the brokers of a network
    """
    from gapless.broker.networks import SINGLE
    from gapless.broker.security.authority import Authority
    from gapless.broker.security.principals import Principals, write_private
    from gapless.broker.security.rights import ALL_RIGHTS

    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", "Nothing is overwritten: give another folder.")
    brokers = brokers_of(network) if network is not None else {str(SINGLE): []}
    authority = Authority.made(f"gapless authority of {folder.absolute().name}")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority.pair.write(folder / AUTHORITY, folder / AUTHORITY_KEY)
    for name, hosts in brokers.items():
        write_pair(authority.broker(name, [*hosts, *(host or [])]), folder / "brokers", name)
    principals = Principals()
    token = principals.add_token(FIRST, ALL_RIGHTS)
    principals.write(folder / PRINCIPALS)
    write_private(folder / f"{FIRST}.token", f"{token}\n".encode())
    base = os.path.relpath(folder, network.parent) if network is not None else "."
    snippet = show_snippet(Path(base))
    (folder / SNIPPET).write_text(snippet, encoding="utf-8")
    say(f"made an authority and certificates for {', '.join(brokers)} in {folder}")
    say(f"the token of {FIRST}, who may do everything, is in {folder / FIRST}.token")
    if network is not None:
        say(f"add this to {network}:\n\n{snippet}")
    else:
        say(f"start a broker with: gapless serve --security {folder / SNIPPET}")
    say(f"keep {folder / AUTHORITY_KEY} away from the brokers' machines")


@security.command()
def token(
    name: Annotated[str, typer.Argument(help="The principal; an existing one keeps its tokens.")],
    rights: RightsOption = None,
    folder: Folder = FOLDER,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the token to this file, not to the terminal."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Revoke its other tokens.")] = False,
) -> None:
    """Make a token. Its holder may do what the principal may. The token is shown once.

    \b
    gapless security token feed --rights publish=trades*
    gapless security token desk-7 --rights subscribe=trades*,quotes --rights publish=orders
    gapless security token desk-7 --replace

    Copy the new file of principals to the brokers; it counts after a SIGHUP or a restart.
    """
    from gapless.broker.security.principals import read_principals, write_private
    from gapless.broker.security.rights import parse_rights

    principals = read_principals(folder / PRINCIPALS)
    added = parse_rights(rights or [])
    check_rights(name, added.join(principals.rights_of(name)))
    if replace and name in principals.entries:
        principals.entries[name].hashes.clear()
    made = principals.add_token(name, added)
    if out is not None:
        try:
            write_private(out, f"{made}\n".encode())
        except OSError as error:
            raise UsageError(
                f"cannot write {out}: {error.strerror}", "Give a file that is not there yet."
            ) from None
    principals.write(folder / PRINCIPALS)
    say(made if out is None else f"the token of {name} is in {out}")
    say(HEARD, err=True)


@security.command()
def certificate(
    name: Annotated[str, typer.Argument(help="The principal, or with --broker the broker.")],
    rights: RightsOption = None,
    broker: Annotated[bool, typer.Option("--broker", help="A certificate for a broker.")] = False,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST", help="A name or address at which clients reach the broker; repeatable."
        ),
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="For how many days it is valid.")] = 365,
    renew: Annotated[
        bool, typer.Option("--renew", help="Replace the certificate that exists.")
    ] = False,
    folder: Folder = FOLDER,
) -> None:
    """Make a certificate and its key. A client may show it instead of a token.

    \b
    gapless security certificate desk-8 --rights subscribe=trades*
    gapless security certificate p --broker --host broker.example.com --renew
    """
    from gapless.broker.security.principals import check_name, read_principals
    from gapless.broker.security.rights import parse_rights

    check_name(name)
    if broker and rights:
        raise UsageError("a broker has no rights", "Leave out --rights, or --broker.")
    if host and not broker:
        raise UsageError("--host is for a broker", "Give --broker too, or leave it out.")
    authority = read_authority(folder)
    if broker:
        where = write_pair(
            authority.broker(name, host or [], days), folder / "brokers", name, renew
        )
    else:
        principals, added = read_principals(folder / PRINCIPALS), parse_rights(rights or [])
        check_rights(name, added.join(principals.rights_of(name)))
        where = write_pair(authority.client(name, days), folder / "clients", name, renew)
        principals.add(name, added)
        principals.write(folder / PRINCIPALS)
    say(f"made {where}.crt and {where}.key")
    say(HEARD, err=True)


@security.command()
def revoke(name: str, folder: Folder = FOLDER) -> None:
    """Take all tokens and rights from a principal; its certificate is worth nothing then, either.

    Brokers know it after a SIGHUP or a restart, once they have the new file of principals.
    """
    from gapless.broker.security.principals import read_principals

    principals = read_principals(folder / PRINCIPALS)
    if principals.entries.pop(name, None) is None:
        raise UsageError(f"there is no principal {name!r}", "See `gapless security list`.")
    principals.write(folder / PRINCIPALS)
    say(f"{name} has no rights any more")
    say(HEARD, err=True)


@security.command(name="list")
def list_principals(
    folder: Folder = FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """List the principals, their rights, and how many tokens each has."""
    from gapless.broker.security.principals import read_principals

    entries = read_principals(folder / PRINCIPALS).entries
    if as_json:
        shown = {
            name: {"rights": dict(each.rights.patterns), "tokens": len(each.hashes)}
            for name, each in entries.items()
        }
        say(json_text(shown, indent=2))
        return
    for name, each in entries.items():
        say(f"{name}  tokens={len(each.hashes)}  {each.rights.show()}")


# --- files ----------------------------------------------------------------------------------------


def brokers_of(path: Path) -> dict[str, list[str]]:
    """The brokers of a network file, and the hosts they listen on where these are names."""
    from gapless.broker.addresses import parse_address
    from gapless.broker.networks import read_network

    everywhere = {"0.0.0.0", "::"}
    return {
        str(each.name): [
            host
            for host in dict.fromkeys(
                parse_address(address)[0] for address in (each.listen, *each.standbys)
            )
            if host not in everywhere
        ]
        for cell in read_network(path).cells
        for each in cell.brokers
    }


def read_authority(folder: Path) -> Authority:
    from gapless.broker.security.authority import Authority

    return Authority.read(folder / AUTHORITY, folder / AUTHORITY_KEY)


def write_pair(pair: Pair, folder: Path, name: str, renew: bool = False) -> Path:
    pair.write(folder / f"{name}.crt", folder / f"{name}.key", replace=renew)
    return folder / name


def check_rights(name: str, rights: Rights) -> None:
    if not rights:
        raise UsageError(f"{name} would have no rights", "Give --rights, such as publish=trades*.")


def show_snippet(folder: Path) -> str:
    """`[security]` with file names below this folder."""
    return (
        "[security]\n"
        f'authority = "{(folder / AUTHORITY).as_posix()}"\n'
        f'certificate = "{(folder / "brokers").as_posix()}/{{broker}}.crt"\n'
        f'key = "{(folder / "brokers").as_posix()}/{{broker}}.key"\n'
        f'principals = "{(folder / PRINCIPALS).as_posix()}"\n'
    )
