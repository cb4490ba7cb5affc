"""Planted faults: protocols broken on purpose, to see that the checkers find it."""
