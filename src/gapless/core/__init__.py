"""The vocabulary: ticks and spans, ids, instants, events, messages, effects, errors.

Nothing here does anything; it only says what things are. Every other package imports from here,
and this package imports none of them.
"""
