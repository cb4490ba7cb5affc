"""Run benchmarks: `python -m benchmarks [--quick] [--keep] [NAME …]`.

A benchmark is a module of this package with `def run(quick: bool) -> list[Report]`. Two of them
have options of their own: `python -m benchmarks peers --help`, and `pipelines --help`.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from typing import TYPE_CHECKING

import benchmarks

if TYPE_CHECKING:
    from benchmarks.report import Report

OWN_OPTIONS = {"peers": "benchmarks.peers.command", "pipelines": "benchmarks.pipelines"}
NOT_BENCHMARKS = {"peers", "report", "workloads", "__main__"}


def names() -> list[str]:
    found = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return sorted(name for name in found if name not in NOT_BENCHMARKS)


def summary(name: str) -> str:
    doc = importlib.import_module(f"benchmarks.{name}").__doc__ or ""
    return doc.strip().splitlines()[0]


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in OWN_OPTIONS:
        importlib.import_module(OWN_OPTIONS[sys.argv[1]]).main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure gapless against what it competes with, side by side in one run.",
        epilog="\n".join(f"  {name:10} {summary(name)}" for name in names()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="*", choices=[*names(), []], help="which; all if none")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for a first look")
    parser.add_argument("--keep", action="store_true", help="write benchmarks/results/*.md")
    options = parser.parse_args()
    for name in options.name or names():
        reports: list[Report] = importlib.import_module(f"benchmarks.{name}").run(options.quick)
        for report in reports:
            report.show()
            if options.keep:
                flag = " --quick" if options.quick else ""
                report.keep(f"python -m benchmarks {name}{flag}")


if __name__ == "__main__":
    main()
