"""From a settled batch to the connections of clients: matching, packing, pace, sessions."""
