"""A browser for the tests of pages; without Playwright or Chromium they are skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.admin.visit import ARGUMENTS, CHROMIUM

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()
