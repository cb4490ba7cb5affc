"""The broker process: one `Node` with sockets, a disk, a clock and an admin port around it.

`pump` drives the node; `links` and `link` are its connections, `dialler` sets up those to other
brokers, `disk` makes its writes durable, `clock` tells it the time. `broker` puts them together,
`process` makes a process of it with signals and logs, `admin` shows it to people and monitoring.
"""
