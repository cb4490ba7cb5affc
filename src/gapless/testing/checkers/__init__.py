"""One file for each promise. A checker sees facts only; it shares no code with what it checks."""
