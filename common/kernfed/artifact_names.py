"""Names of the files that a job leaves; a model's own two, which its formats share, are also those of a kept model."""

from __future__ import annotations

from typing import Final

JOB_TOML: Final = "job.toml"
JOB_JSON: Final = "job.json"
METRICS_JSONL: Final = "metrics.jsonl"
METRICS_CSV: Final = "metrics.csv"
FINDINGS: Final = "findings.json"
"""What a method tells of itself."""
REPORT: Final = "report.html"
CHECKPOINT: Final = "checkpoint.safetensors"
"""The last good state of a job that left no model, or from which another one can go on."""
MODEL_ARRAYS: Final = "model.safetensors"
MODEL_FACTS: Final = "model.json"
