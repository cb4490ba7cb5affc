"""The experiments on the broker tree: brokers that fail for good, and who is cut off.

Source: Kazemzadeh and Jacobsen, SRDS 2011, sec. IX.
"""
