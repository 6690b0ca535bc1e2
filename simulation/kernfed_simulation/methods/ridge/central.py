"""The pooled reference of the ridge methods."""

from __future__ import annotations

from kernfed_simulation.central import measure_central_ridge

CENTRAL = {"local": measure_central_ridge, "dkrr": measure_central_ridge}
