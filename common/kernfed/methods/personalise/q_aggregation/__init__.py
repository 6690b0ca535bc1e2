"""Weights over clients by Q-aggregation of their embeddings, as the paper has it and to the optimum."""
