"""Scores from the models that distillation leaves at a client, by the kind that their file names."""

from __future__ import annotations

from kernfed_client.methods.distill.bring_your_own import sklearn_scorer
from kernfed_client.methods.distill.learner import kernel_scorer
from kernfed_client.methods.distill.networks import network_scorer

SCORERS = {
    "kernel-ridge": lambda facts: kernel_scorer(facts["arrays"], facts["details"]),
    "scikit-learn": lambda facts: sklearn_scorer(facts["task"], facts["arrays"], facts["details"]),
    "network": lambda facts: network_scorer(facts["arrays"], facts["details"]),
}
