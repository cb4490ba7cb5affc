"""The HTTP door: publish, read ranges and subscribe with any HTTP client.

`door` listens, `connections` bounds who is connected, `guard` checks host, origin and token, `app`
has the routes. `payloads` and `cloud_events` turn bodies into events and back, `publishing`,
`reading` and `streams` are what the routes do; `feed` is what a stream delivers. `problems` turns
errors into answers, `openapi` describes it all.
"""
