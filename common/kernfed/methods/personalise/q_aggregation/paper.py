"""What the paper of Q-aggregation sets in its experiments, and the bound of its features."""

from __future__ import annotations

import math

FEATURE_BOUND = math.sqrt(2.0)
"""Bound M of |φ(z)| for cosine features."""

PAPER_STEPS = 1000
"""Steps T of Algorithm 3."""

PAPER_FACTOR = 0.5
"""c of the step η = c/(2 |A|_op + |b|_inf)."""
