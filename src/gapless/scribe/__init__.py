"""Self-organising multicast: topic trees (Scribe) over a ring of nodes (Pastry).

Read `identifiers`, `leaf_set`, `contacts`, `pastry`; then `tree`, which grows topics on the routes;
then `stream` and `group`, which make an ordered, reliable topic of it; `member` puts all together.

Source: Rowstron, Kermarrec, Castro, Druschel, "SCRIBE: The design of a large-scale event
notification infrastructure", NGC 2001.
"""
