"""The client library: connect, publish, subscribe. `gapless.connect` is where it begins.

`connection` is one link to a broker, `client` keeps one up and shares it among publishers and
subscriptions, `sync` is the same for code without an event loop. docs/reference/client.md.
"""
