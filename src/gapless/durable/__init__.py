"""Durable subscriptions (Bhola et al., DSN 2003): tokens, the filtered log, catch-up, release.

One machine for each concern, composed by the node. `consolidated` writes into `filtered_log` which
subscription takes which event; `catch_up` serves a subscriber that returns, and `catch_up_group`
lets subscribers with equal conditions share what they read. `subscriptions` and `least_position`
know what may be released. `hand_over` moves a subscription to another broker.
"""
