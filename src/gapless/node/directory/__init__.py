"""What the brokers of a network agree on by name: topics, and the homes of subscriptions."""
