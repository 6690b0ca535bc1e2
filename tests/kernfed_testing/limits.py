"""How long tests wait for what has to come."""

LIMIT_S = 200.0
"""So long that only a hang takes longer, also on a machine that has thirty times its work. pytest's limit is above."""
