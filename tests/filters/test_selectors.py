"""Selectors as users of other JMS brokers write them: what they expect holds here, in both engines.

One event, and for each selector whether it matches. A selector that is refused does not match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.core.errors import FilterError
from gapless.filters import Filter
from gapless.filters.matcher import Matcher

if TYPE_CHECKING:
    from gapless.core.events import Value

EVENT: dict[str, Value] = {
    "kind": "order",
    "land": "PE",
    "note": "50% off_today's price",
    "path": "a\\b_c",
    "count": 7,
    "pair": 6,
    "cost": 10.5,
    "debt": -5,
    "none": 0,
    "far": 1.2e6,
    "open": True,
    "shut": False,
    "$cash": 1,
    "_low": 2,
    "a$b_1": 3,
    "JMSPriority": 4,
    "app.part": "x",
    "": "",
}

MATCHING = r"""
kind = 'order'
'order' = kind
kind <> 'trade'
kind != 'trade'
kind >= 'order' AND kind < 'ordes'
count = 7
count = 7L
count = 7l
count = 7.0
count = 7.
count = 7f
count = 7D
count = 0x7
count = 0X7L
count = 07
count = 0b111
count = 7e0
count = .7E1
count = 70e-1
cost = 1.05E1
cost = 10.5d
cost = 0x15p-1
far = 1.2E6
far = 1_200_000
100 = 1.0E2
31 = 0x1F
-1 = 0xFFFFFFFFFFFFFFFF
-9223372036854775808 = 0x8000_0000_0000_0000L
-9223372036854775807 = 0x8000000000000001
-1 = 01777777777777777777777
255 = 0xFFL
077L = 0b111_111
9223372036854775807 > 0
-9223372036854775808 < 0
count / 2 = 3.5
5 / 2 = 2.5
5 / 2 = 5 / 2.0
count / 2 > 3 AND count / 2 < 4
count / 2 BETWEEN 3.4 AND 3.6
count / 2 IN (3.5)
pair / 2 = 3
pair / 2 = 3.0
pair / 4 * 4 = pair
-count / 2 = -3.5
count / -2 = -3.5
count / 4 / 7 = 0.25
1 / count * count = 1
far / 1200 = 1000
none / 5 = 0
(count + 1) / 3 > 2.66
2 / 4 = 1 / 2
count + 2 * 3 = 13
(count + 2) * 3 = 27
count - 2 - 1 = 4
count - (2 - 1) = 6
count % 4 = 3
-count % 4 = -3
count % -4 = 3
24 / 4 % 4 = 2
-debt = 5
+debt = -5
- -count = 7
6 - -count = 13
-(-count) = 7
-(count + 1) = -8
count * cost = 73.5
count + cost = 17.5
0 = -0.0
open
NOT shut
open = TRUE
open <> false
TRUE
true = TRUE
open AND NOT shut
NOT (open AND shut)
shut OR open
absent OR open
count OR open
NOT (absent IN ('v') AND shut)
count BETWEEN 7 AND 7
count BETWEEN 6.5 AND 7.5
count NOT BETWEEN 8 AND 9
count between 1 and 10 and open
count BETWEEN pair AND cost
kind BETWEEN 'o' AND 'p'
land IN ('PE')
land IN ('US', 'PE')
land NOT IN ('US', 'UK')
land not in ('US')
count IN (1, 7)
7 IN (count, pair)
count IN (pair + 1)
kind LIKE 'order'
kind LIKE 'o%'
kind LIKE '%r'
kind LIKE '%rde%'
kind LIKE 'o_der'
kind LIKE '_____'
kind LIKE '%'
kind LIKE '%%'
kind NOT LIKE 'o_er'
kind not like 'x%'
note LIKE '50!%%' ESCAPE '!'
note LIKE '%off!_today%' ESCAPE '!'
note LIKE '50\% off\_today''s price' ESCAPE '\'
note LIKE '%''s%'
path LIKE '%\%'
path LIKE 'a\\b\_c' ESCAPE '\'
note LIKE '%off%_today%' ESCAPE '%'
note LIKE '_0_% off__today%' ESCAPE '_'
'a_b' LIKE 'az_b' ESCAPE 'z'
note = '50% off_today''s price'
'''' = ''''
'' = ''
absent IS NULL
count IS NOT NULL
NOT absent IS NOT NULL
absent is null and open
42 IS NOT NULL
'x' IS NOT NULL
kind = 'order' AnD count > 6
Kind IS NULL
KIND is null or shut
$cash = 1
_low = 2
a$b_1 = 3
JMSPriority = 4
app.part = 'x'
kind='order'and(count>6)
/* first */ count /* then */ = 7
count = 7 OR count / none = 1
EXISTS count
open = TRUE AND shut = FALSE
(((count = 7)))
kind = 'x' OR kind = 'order' AND count = 7
NOT kind = 'x' AND count = 7
"""

OTHERS = r"""
kind = 'Order'
kind = 'order '
count = '7'
count = 'seven'
kind = 7
kind > 7
kind <> 7
open = 1
open = 'TRUE'
open > 0
kind <= TRUE
count / 2 = 3
-count / 2 = -3
count / none = 0
count / none <> 0
none / none = none
count % none = 0
count / 0 > 0
count / 0.0 > 0
NOT count / 0 = 1
kind / 2 = 1
kind + 1 = 2
open + shut = 1
absent + 4 = 5
2 * absent = 0
absent = 0
absent <> 0
absent = absent
NOT absent
NOT absent = 1
absent LIKE '%'
absent NOT LIKE '%'
absent IN ('a')
absent NOT IN ('a')
absent BETWEEN 1 AND 2
absent IS NOT NULL
count IS NULL
42 IS NULL
FALSE
shut
shut OR absent
open AND absent
count NOT BETWEEN 7 AND 9
count BETWEEN 9 AND 7
land NOT IN ('US', 'PE')
count LIKE '7'
count NOT LIKE '8'
kind LIKE 'ORDER'
kind LIKE '_order'
kind LIKE 'order_'
kind LIKE ''
note LIKE '!_%' ESCAPE '!'
note LIKE '%price%%' ESCAPE '%'
Kind = 'order'
+count
-absent
count + 1
kind =
= 7
kind = 'order
kind == 'order'
count > 5 < 9
count BETWEEN 1
count BETWEEN 1 OR 9
count IN ()
count IN 7
count IN (7
kind LIKE 7
kind LIKE kind
kind LIKE 'a' ESCAPE 'ab'
kind LIKE 'ab!' ESCAPE '!'
count = 9223372036854775808
count = -9223372036854775809
count = 0x1_0000_0000_0000_0000
count = 08
count = NULL
NULL = NULL
in = 7
and
NOT
count = 7 AND
count = 7 kind = 'order'
count = 7;
(count = 7
count = 7)
count = "7"
kind = `order`
count => 7
"""


def lines(text: str) -> list[str]:
    return text.strip("\n").split("\n")


def matches(text: str) -> bool:
    """What evaluation says, after both engines of the matcher said the same."""
    try:
        condition = Filter.parse(text)
    except FilterError:
        return False
    assert Filter.parse(str(condition)) == condition
    result = condition.matches(EVENT)
    for engine in ("python", "compiled"):
        matcher: Matcher[str] = Matcher(engine=engine)
        matcher.add("it", condition)
        assert matcher.match(EVENT) == ["it"] * result, engine
        pairs = [pair for pair in matcher.match_batch([EVENT, {}]) if pair[0] == 0]
        assert pairs == [(0, "it")] * result, engine
    return result


@pytest.mark.parametrize("text", lines(MATCHING))
def test_selectors_match_what_their_writers_expect(text: str) -> None:
    assert matches(text)


@pytest.mark.parametrize("text", lines(OTHERS))
def test_selectors_match_nothing_else(text: str) -> None:
    assert not matches(text)


def test_white_space_is_that_of_java() -> None:
    assert matches("\tkind\n=\r\n'order'\f")
