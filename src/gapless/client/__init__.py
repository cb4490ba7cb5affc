"""The client library: connect, publish, subscribe. `gapless.connect` is where it begins.

`connection` is one link to a broker, `reconnection` keeps one up, `client` is what applications
use; publishers and subscriptions share its connection. `gapless.sync` is for code without an event
loop. docs/reference/client.md.
"""
