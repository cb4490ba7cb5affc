"""Matching one event against many filters: the two engines behind `gapless.Matcher`.

Read `plan` first, then `python_index` (the same idea in dictionaries), then `arena` and `search`.
`compiled_index` puts these together and says in which of three ways an event becomes a row:
`encoder`, `table_encoder`, `column_pairs`. `columns` says what the columns of a row mean.
"""
