"""gapless and the brokers people use instead, on the same workloads in one run."""
