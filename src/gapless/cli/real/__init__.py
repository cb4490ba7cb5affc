"""Experiments with real broker processes on this machine, at rates it can bear."""
