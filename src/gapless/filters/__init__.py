"""The filter language: SQL conditions over event attributes, and matching many of them at once."""

from gapless.filters.filter import Filter

__all__ = ["Filter"]
