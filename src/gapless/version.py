"""The version of the package, and nothing else: the build reads it here."""

__version__ = "0.2.0.dev0"
