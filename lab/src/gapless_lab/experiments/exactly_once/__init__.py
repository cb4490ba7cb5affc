"""The experiments on exactly-once delivery: faults, and what the protocol costs.

`layout` is the network, `actors` its clients. `fault_run` plays one fault and `overhead` one load.

Source: Bhola et al., DSN 2002, sec. 4.
"""
