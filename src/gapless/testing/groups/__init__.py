"""Groups in simulated networks: members that come, go, crash and reject, and what is promised."""
