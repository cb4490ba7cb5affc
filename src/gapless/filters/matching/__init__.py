"""Matching one event against many filters: the two engines behind `gapless.Matcher`.

Read `plan` first, then `python_index` (the same idea in dictionaries), then `arena` and `search`.
"""
