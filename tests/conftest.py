"""For all tests: `pytest --rewrite` writes scenario expectations anew; hypothesis has no clock.

What a test that failed has left open, a link or a process, is found by the garbage collector, at a
time of its own: it would be warned of, and fail, whichever test runs then. So it is collected, and
not warned of, with the test that failed. One that passes is to leave nothing, and is told.
"""

from __future__ import annotations

import gc
import sys
import warnings
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest import CallInfo, Config, Item, Parser, TestReport  # noqa: PT013 - types only

settings.register_profile("gapless", deadline=None)  # machines are shared: time is no verdict
settings.load_profile("gapless")

HAS_FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write scenario expectations as they are now"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: Item, call: CallInfo[None]
) -> Generator[None, TestReport, TestReport]:
    report = yield
    item.stash[HAS_FAILED] = item.stash.get(HAS_FAILED, False) or report.failed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Item) -> Generator[None, object, object]:
    result = yield
    if item.stash.get(HAS_FAILED, False):
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            vars(sys).pop(name, None)  # kept for debuggers, with all that the test had
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return result


@pytest.fixture
def rewrite(pytestconfig: Config) -> bool:
    return bool(pytestconfig.getoption("--rewrite"))
