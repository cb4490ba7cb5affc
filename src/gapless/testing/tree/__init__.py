"""The reliable service in the simulated world: brokers of a tree, every fault, its own checkers.

Read `options`, `world`, `ledger`, then `run`; `planted` has brokers with one thing wrong.
"""
