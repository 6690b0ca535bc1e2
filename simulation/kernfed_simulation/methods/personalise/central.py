"""The pooled reference of personalised models: the ridge model of all rows."""

from __future__ import annotations

from kernfed_simulation.central import measure_central_ridge

CENTRAL = {"personalise": measure_central_ridge}
