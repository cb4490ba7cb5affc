"""Exactly-once delivery over soft-state brokers: knowledge flows down, curiosity flows up.

Source: Bhola, Strom, Bagchi, Zhao, Auerbach, "Exactly-once Delivery in a Content-based
Publish-Subscribe System", DSN 2002.
"""
