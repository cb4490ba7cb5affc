"""Bytes: frames on a link, messages in frames, events in messages. No sockets.

`framing` cuts a stream of bytes into frames, `codec` turns a frame into a message, `events` looks
into an event, `version` finds the protocol version that two ends share. Whatever a peer sends, the
outcome is a value or a `WireError`. The format itself: docs/reference/wire-format.md.
"""
