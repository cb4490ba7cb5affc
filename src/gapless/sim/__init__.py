"""The deterministic world: one seed, one trace. Brokers are the same `Node` that ships.

`world` is the heap of steps, `process` one broker in it; `links`, `clock` and `disk` carry out what
a broker asks for, with faults. `clients` publish and subscribe. `watch` keeps a `record` of facts
and shows it to the `checkers`. `options` draws all of it from a seed, `run` plays one seed.
"""
