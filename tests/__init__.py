"""Tests, mirroring the source tree; `tests/papers` and others cut across it."""
