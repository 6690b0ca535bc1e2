"""The method `personalise`."""

from __future__ import annotations

from kernfed.methods.base import Method, table
from kernfed.methods.personalise.settings import PersonaliseSettings

METHODS = table(Method(PersonaliseSettings, rounds=lambda s: s.rounds))
