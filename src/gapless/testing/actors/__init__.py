"""The simulator's own clients: they do what the shipped client never does, too."""
