"""The longest texts and the highest counts that a peer may send. The decoder refuses more.

Every text field of a message has one of these types, also inside lists and maps; a test holds that.
The decoder counts characters, and UTF-8 takes up to four bytes for each; a new name is checked for
its bytes as well (`identity.check_name`). Nothing is checked where a message is made: a broker
makes messages of values that it has accepted before.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

NAME_BYTES_MAX = 255
"""The longest name that a user may choose, in UTF-8: it is kept on disk as a key."""

LONG_NAME_MAX = 512
"""The longest name that is made of others: of a pubend, a topic and a broker. Subscriptions had
names as long as this in earlier versions."""

KEY_BYTES_MAX = 1_024
"""The longest key of a table on disk, in UTF-8."""

CONDITION_BYTES_MAX = 64 * 1024
"""The longest condition, in UTF-8."""

PROSE_MAX = 16 * 1024
"""The longest error text: the problem and the remedy. Ours are cut far below it (`errors.quoted`,
`errors.listed`)."""

ADDRESS_MAX = 1_024
"""The longest address of a broker, or line about its software."""

SECRET_MAX = 4_096
"""The longest token by which a client proves its identity."""

COUNT_MAX = 1 << 62
"""The highest count that a peer may send. No real count gets there, and it leaves room to add."""

AnyCount = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
Name = Annotated[str, msgspec.Meta(max_length=NAME_BYTES_MAX)]
LongName = Annotated[str, msgspec.Meta(max_length=LONG_NAME_MAX)]
Condition = Annotated[str, msgspec.Meta(max_length=CONDITION_BYTES_MAX)]
Prose = Annotated[str, msgspec.Meta(max_length=PROSE_MAX)]
Address = Annotated[str, msgspec.Meta(max_length=ADDRESS_MAX)]
Secret = Annotated[str, msgspec.Meta(max_length=SECRET_MAX)]
