"""Pipelines: jobs over whole logs, as library functions on Spark's DataFrames.

`audit` decides whether subscribers got what they should; `archive` moves a log into a Parquet lake;
`replay` reads the lake and the log as one; `match` is events × subscriptions. Sessions are made by
whoever calls; `gapless pipeline` has the commands.
"""
