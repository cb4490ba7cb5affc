"""Subscription propagation (Zhao, Sturman, Bhola, Middleware 2004): filtering without agreement.

Read `vector`, `condition`, `cover_index`, `graph`; then `leaf` and `branch`, which spread
subscriptions; then `stamp`, `digest`, `sufficiency` and `delivery`, which put them to use.
"""
