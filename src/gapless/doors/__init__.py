"""Doors: other protocols by which clients reach a broker."""
