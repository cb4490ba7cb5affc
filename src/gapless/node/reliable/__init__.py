"""The reliable service (SRDS 2011) at one broker."""
