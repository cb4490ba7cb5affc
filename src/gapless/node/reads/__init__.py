"""Reading ranges of a pubend's log: search, parts, digests, looking ahead."""
