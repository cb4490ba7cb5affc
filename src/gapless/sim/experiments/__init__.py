"""Experiments: the claims of a paper, measured in the deterministic world. Plain data, no figures.

`layout` is the network, `actors` its clients, `meter` counts. `fault_run` plays one fault and
`overhead` one load; `best_effort` is what the overhead is compared with. `exactly_once` puts the
paper's experiments together and `claims` judges them by bounds that stand there.
"""
