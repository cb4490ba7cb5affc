"""The demo: brokers that are killed under a feed, and an account of each subscriber."""
