"""Extras: what a plain installation lacks, and how a user gets it.

`pip install gapless` brings the client and the command line. Everything larger is an extra of the
package (`pyproject.toml`); this module knows which extra brings which module, so that every error
about a missing module names the command that installs it.
"""

from __future__ import annotations

from importlib.util import find_spec

from gapless.core.errors import UsageError

EXTRAS = {
    "broker": (
        "h11",
        "numba",
        "numpy",
        "prometheus_client",
        "pyarrow",
        "starlette",
        "uvicorn",
    ),
    "security": ("cryptography",),
    "spark": ("pandas", "pyspark"),
    "store": ("psycopg",),
    "tables": ("deltalake", "pyiceberg"),
}
"""The modules of each extra. Without uvloop, which is not among them, a broker runs on asyncio."""


def missing_extra(module: str, need: str = "this") -> UsageError | None:
    """The error for a module that is not installed; None if no extra brings it. `need` says what
    the module is needed for."""
    package = module.partition(".")[0]
    for extra, modules in EXTRAS.items():
        if package in modules:
            problem = f"{need} needs the Python package {package}, which is not installed here"
            return UsageError(problem, f"Install it: pip install 'gapless[{extra}]'.")
    return None


def require_extra(extra: str, need: str) -> None:
    """Raise a `UsageError` if a module of the extra is not installed."""
    for module in EXTRAS[extra]:
        if find_spec(module) is None and (error := missing_extra(module, need)):
            raise error
