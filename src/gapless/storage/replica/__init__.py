"""A second place for commits: the store, its lease, and the local volume that follows it.

`store` says what a store is; `postgres` is the one that ships. `changes` is what a
commit changes, as the store keeps it. `mirror` sends a volume's commits to the store; `copy` brings
a volume up to date from it. Specification: docs/protocols/replicated-commits.md.
"""
