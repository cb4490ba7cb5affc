"""The experiments on multicast trees over a Pastry ring, against IP multicast.

Source: Rowstron et al., NGC 2001, sec. 4.
"""
