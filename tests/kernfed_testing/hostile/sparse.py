"""Clients that let few rows stand out in a column, and those that do not."""

from __future__ import annotations

import pytest

from kernfed_testing.hostile.adversary import ON

SPARSE_OFF = 'sparse_columns = "allow"\nfew_values = "allow"'
sparse_guards = pytest.mark.parametrize("policy", [SPARSE_OFF, ON])
"""Runs a test with a client that takes all columns as they are, and with one whose policy is the default."""
