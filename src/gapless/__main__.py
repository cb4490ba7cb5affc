"""`python -m gapless` is `gapless`, where the latter is not on the path."""

from __future__ import annotations

from gapless.cli import main

if __name__ == "__main__":
    main()
