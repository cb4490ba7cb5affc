"""The bytes of the format, kept: a change that two versions would notice must be made on purpose.

`GAPLESS_REWRITE=1 pytest tests/wire/test_golden.py` writes `golden.txt` and the example of
docs/reference/wire-format.md anew; read the difference before you keep it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from gapless.core.events import EventBatch
from gapless.core.messages import Hello, Ping
from gapless.wire.events import check_events
from gapless.wire.framing import Unframer, frame
from tests.wire.samples import CODEC, EVENTS, MESSAGES, TRADE

GOLDEN = Path(__file__).parent / "golden.txt"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "wire-format.md"
EXAMPLES = {
    "A `Ping` in its frame": frame(CODEC.encode(Ping(5))),
    "A `Hello` in its frame": frame(CODEC.encode(Hello(1, 1, software="gapless 0.1"))),
    "An encoded event": TRADE,
}


def golden_lines() -> list[str]:
    encoded = {f"message: {name}": CODEC.encode(message) for name, message in MESSAGES.items()}
    encoded |= {f"event: {name}": event for name, event in EVENTS.items()}
    encoded["frame: ping"] = frame(CODEC.encode(Ping(5)))
    return [f"{name}\n    {data.hex()}" for name, data in encoded.items()]


def dump(data: bytes) -> str:
    """Sixteen bytes a line: place, hexadecimal, text."""
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:04x}  {row.hex(' '):47}  {text}")
    return "\n".join(lines)


def kept(path: Path, text: str) -> str:
    """What the file holds; after writing it anew, if that is asked for."""
    if os.environ.get("GAPLESS_REWRITE"):
        path.write_text(text, encoding="utf-8")
    return path.read_text(encoding="utf-8")


def test_the_bytes_of_every_sample_are_as_they_were() -> None:
    text = "\n".join(golden_lines()) + "\n"
    assert kept(GOLDEN, text) == text


def test_golden_bytes_still_decode_to_the_samples() -> None:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    golden = dict(zip(lines[::2], (bytes.fromhex(line) for line in lines[1::2]), strict=True))
    for name, message in MESSAGES.items():
        assert CODEC.decode(golden[f"message: {name}"]) == message
    assert len(check_events(EventBatch.join(golden[f"event: {name}"] for name in EVENTS))) == 4
    [payload] = Unframer().feed(golden["frame: ping"])
    assert CODEC.decode(payload) == Ping(5)


def test_the_examples_of_the_format_page_are_true() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for title, data in EXAMPLES.items():
        block = f"{title}:\n\n```text\n{dump(data)}\n```\n"
        found = re.search(rf"{re.escape(title)}:\n\n```text\n.*?\n```\n", page, re.DOTALL)
        assert found is not None, title
        page = kept(PAGE, page.replace(found[0], block))
        assert block in page
