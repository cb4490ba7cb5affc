"""The swarm of the multicast service: rings of many nodes, churn, partitions, checkers."""
