"""How long texts may be that come from a peer, and how high its counts. The decoder refuses more.

Every text field of a message has one of these types, also inside lists and maps; a test holds that.
The decoder counts characters, of which UTF-8 makes up to four bytes each; who names something new
is held to bytes besides (`identity.check_name` and its like). Nothing is checked where a message is
made: a broker makes some for itself, of what it has taken before.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

NAME_BYTES_MAX = 255
"""The longest name that anybody may choose, in UTF-8: it is kept on disk as a key."""

LONG_NAME_MAX = 512
"""The longest name that is made of others: of a pubend, a topic and a broker. Subscriptions had
names as long as this in earlier versions."""

KEY_BYTES_MAX = 1_024
"""The longest key that a disk takes, in UTF-8: nothing is called by a longer name."""

CONDITION_BYTES_MAX = 64 * 1024
"""The longest condition, in UTF-8."""

PROSE_MAX = 16 * 1024
"""The longest sentence for people: what went wrong, and what to do. Ours are cut far below it
(`errors.quoted`, `errors.listed`)."""

ADDRESS_MAX = 1_024
"""The longest address of a broker, or line about its software."""

SECRET_MAX = 4_096
"""The longest token that proves who a client is."""

COUNT_MAX = 1 << 62
"""The highest count that a peer may send. Nobody gets there, and it leaves room to count on."""

AnyCount = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
Name = Annotated[str, msgspec.Meta(max_length=NAME_BYTES_MAX)]
LongName = Annotated[str, msgspec.Meta(max_length=LONG_NAME_MAX)]
Condition = Annotated[str, msgspec.Meta(max_length=CONDITION_BYTES_MAX)]
Prose = Annotated[str, msgspec.Meta(max_length=PROSE_MAX)]
Address = Annotated[str, msgspec.Meta(max_length=ADDRESS_MAX)]
Secret = Annotated[str, msgspec.Meta(max_length=SECRET_MAX)]
