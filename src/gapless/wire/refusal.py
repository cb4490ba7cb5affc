"""Errors of msgspec, as one `WireError`.

Theory of operation
    Decoding runs in msgspec, in C, and hostile bytes can raise several kinds of exception.
    `MALFORMED` lists them all, and `refusal` turns each into an error that says where (`$.span`)
    and what. A peer may put megabytes into the offending value, so the text is cut.
"""

from __future__ import annotations

import msgspec

from gapless.core.errors import WireError

MALFORMED = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""What decoding raises: also `UnicodeDecodeError`, which is a `ValueError`."""

REASON_WIDTH_MAX = 200


def refusal(what: str, error: Exception) -> WireError:
    """The error to raise instead of `error`; `what` is "a frame", "event 3"…"""
    if isinstance(error, RecursionError):
        reason = "it is nested too deeply"
    else:
        reason = str(error)
        if len(reason) > REASON_WIDTH_MAX:
            # The place stands at the end: keep both ends.
            reason = f"{reason[: REASON_WIDTH_MAX // 2]} … {reason[-REASON_WIDTH_MAX // 2 :]}"
    return WireError(f"{what} does not decode: {reason}")
