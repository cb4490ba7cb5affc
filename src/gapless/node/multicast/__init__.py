"""The multicast service (NGC 2001) at one broker."""
