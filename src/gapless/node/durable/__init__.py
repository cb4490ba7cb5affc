"""The durable service: the streams of pubends, and what subscribers want of them."""
