"""Named subscriptions: their clients, catch-ups, tokens, moves between brokers, homes."""
