"""Groups: many clients on one named subscription, each event to one of them, in order by key."""
