"""The log volume: log streams and tables of small facts, with one atomic durable commit for both.

`volume` says what a volume is, `disk` is the one that ships (`gapless.testing` has one in
memory), `group` lets many writers share one fsync. This package is the only one that makes
anything durable."""
