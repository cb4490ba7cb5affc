"""The laboratory: the papers' experiments and the demo. `gapless` never imports it."""
