"""What the paper of Q-aggregation sets in its experiments."""

from __future__ import annotations

PAPER_STEPS = 1000
"""Steps T of Algorithm 3."""

PAPER_FACTOR = 0.5
"""c of the step η = c/(2 |A|_op + |b|_inf)."""
