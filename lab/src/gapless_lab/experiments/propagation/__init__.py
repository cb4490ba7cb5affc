"""The experiments on subscription propagation: figures 4 to 7 of the paper, with the real node.

`setting` is one played network with its clients and `ways` names its topics; `tally` counts what
brokers handle, `costs` says what that takes. `load`, `latency`, `vectors` and `failure` are one
figure each; `experiment` puts them together and `claims` judges them by bounds that stand there.

Source: Zhao, Sturman and Bhola, Middleware 2004, sec. 5.2;
docs/protocols/subscription-propagation.md, 14.
"""
