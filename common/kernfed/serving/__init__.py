"""A model behind a small HTTP service, for programs that speak JSON."""
