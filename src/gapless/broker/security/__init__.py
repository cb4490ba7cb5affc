"""Security: who may connect to a broker, how they prove who they are, and what they may do.

`policy` is the `[security]` table of a network file. `principals` are the clients that are known,
with `rights` on topics; `tls` has the contexts and what certificates say; `access` is the gate that
puts these together. `authority` makes certificates, for the command `gapless security`.
"""
