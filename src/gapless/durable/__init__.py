"""Durable subscriptions (Bhola et al., DSN 2003): tokens, the filtered log, catch-up, release.

One machine per concern, composed by the node: `token` says what a subscriber has consumed,
`consolidated` logs in `filtered_log` who takes which event, `catch_up` serves one that returns,
`subscriptions` and `minimum` know what may be released, `retention` decides what is released early,
`hand_over` moves a subscription to another broker.
"""
