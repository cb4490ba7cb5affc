"""For all tests: `pytest --rewrite` writes scenario expectations anew; hypothesis has no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pytest import Config, Parser  # noqa: PT013 - types only

settings.register_profile("gapless", deadline=None)  # machines are shared: time is no verdict
settings.load_profile("gapless")


def pytest_addoption(parser: Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write scenario expectations as they are now"
    )


@pytest.fixture
def rewrite(pytestconfig: Config) -> bool:
    return bool(pytestconfig.getoption("--rewrite"))
