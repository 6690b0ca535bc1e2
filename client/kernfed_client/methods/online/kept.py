"""Scores from the models that online learning leaves at a client, by the kind that their file names."""

from __future__ import annotations

from kernfed_client.methods.online.model import KIND, online_scorer

SCORERS = {KIND: lambda facts: online_scorer(facts["arrays"], facts["details"])}
