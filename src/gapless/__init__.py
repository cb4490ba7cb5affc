"""gapless: content-based publish/subscribe that never leaves a silent gap."""
