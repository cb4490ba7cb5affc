"""A visit of a real browser to a console."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
WAIT_S = 60.0
SHOTS = os.environ.get("GAPLESS_SCREENSHOTS")


class Visit:
    """A page of a broker process, and the problems that the browser has seen."""

    def __init__(self, browser: Any, address: str, hash_: str = "", **options: Any) -> None:
        self.page = browser.new_context(**options).new_page()
        self.page.set_default_timeout(WAIT_S * 1000)
        self.problems: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.goto(f"{address if '://' in address else f'http://{address}'}/{hash_}")

    def text(self, selector: str, pattern: str) -> None:
        """Wait until an element says something."""
        found = self.page.locator(selector).filter(has_text=re.compile(pattern))
        found.first.wait_for(state="attached")

    def shot(self, name: str) -> None:
        if SHOTS:
            self.page.screenshot(path=str(Path(SHOTS) / f"{name}.png"))
