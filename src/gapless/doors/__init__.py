"""Doors: other protocols than gapless's own, spoken in the broker's process.

A door takes connections of its protocol and is a client of its own broker: it connects to the
broker's listening address with the caller's token (`clients`). So rights, quotas and bounds are
those of any client, and a door has no second path around them.
"""
