"""Sums over clients of which nobody sees a term: fixed point, masks that cancel, shares of their seeds, both halves.

Double masking after Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine learning".
Nothing here knows a network or a message: `kernfed.federation.messages.sums` has these.
"""
