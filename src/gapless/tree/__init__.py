"""The δ-fault-tolerant broker tree (Kazemzadeh and Jacobsen, SRDS 2011): the reliable service.

Read `messages`; then `neighbourhood`, `connections` and `frontier`, which say what can be reached;
`trail`, which tells repeats; `partitions` and `subscriptions`, which say whose publications may be
delivered; `publications`, which carries them; `recovery`; and `broker`, which composes them.
"""
