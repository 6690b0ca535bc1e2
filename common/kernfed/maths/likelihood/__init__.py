"""Maximum likelihood by Newton's method, and what follows from the curvature at the maximum."""
