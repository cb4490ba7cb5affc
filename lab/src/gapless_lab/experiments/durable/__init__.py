"""The paper's experiments on durable subscriptions, in simulation.

Each figure has a module; `setting` has the network, `clients` who uses it, `processor` what makes
brokers take time. `claims` compares with the paper, `experiment` puts everything together.

Source: DSN 2003, sec. 5.
"""
