"""One module per broker: how to start it, its usual Python library, and a lean client of ours."""
