"""Weights of one's own making, from which a job begins: a threshold between two rows tells one of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from kernfed.arrays import Floats
from kernfed.artifact_names import CHECKPOINT, JOB_JSON
from kernfed.jobs.job_file import parse_job
from kernfed.jobs.named_files import attach_files
from kernfed_simulation.run import simulate
from kernfed_testing.hostile.adversary import COLUMNS, OFF, Target, Told, guards, held, rows

STEEP = 1e6


def job_text(start_from: str = "") -> str:
    """One step of size 1 on all rows, of a logistic model."""
    return f"""
name = "t"
start_from = {json.dumps(start_from)}
report = false
[method]
name = "fedavg"
loss = "cross-entropy"
rounds = 1
ridge = 1e-12
learning_rate = 1.0
momentum = 0.0
batch_size = 0
[data]
task = "binary"
target = "label"
features = {json.dumps(list(COLUMNS))}
test_fraction = 0.0
classes = ["a", "b"]
[features]
kernel = "linear"
"""


def labelled(seed: int) -> dict[str, Sequence[object]]:
    table = dict(rows(seed=seed))
    y = np.array(table.pop("y"), dtype=float)
    return {**table, "label": ["a" if value > 0 else "b" for value in y]}


def step_from(target: Target, folder: Path, weights: Floats, name: str) -> Told:
    """A job that begins at weights, on columns as they are; `folder` has a job of the operator's own."""
    arrays = load_file(folder / "own" / CHECKPOINT)
    as_is = {"mean": np.zeros(3), "deviation": np.ones(3), "feature_mean": np.zeros(3)}
    (folder / name).mkdir()
    (folder / name / JOB_JSON).write_bytes((folder / "own" / JOB_JSON).read_bytes())
    made = {f"run.agreement.{key}": value for key, value in as_is.items()}
    save_file({**arrays, **made, "weights": weights}, folder / name / CHECKPOINT)
    text = job_text(name)
    job, _, files = attach_files(parse_job(text), text, folder)
    return target.ask(job, files)


@guards
def test_a_row_between_two_thresholds(tmp_path: Path, policy: str) -> None:
    """Gradients of steep logistic functions on its two sides differ by this row; of moderate ones they do not."""
    table = labelled(5)
    own = Target(tmp_path / "mine", labelled(9), OFF)
    text = job_text()
    assert simulate(parse_job(text), {"ant": own.local_job()}, text=text, out=tmp_path / "own").error is None
    target = Target(tmp_path / "target", table, policy)
    x = np.array([table[name] for name in COLUMNS], dtype=float).T
    order = np.argsort(x[:, 0])
    between = [float(x[order[i : i + 2], 0].mean()) for i in (29, 30)]
    told, found = [], []
    for i, threshold in enumerate(between):
        weights = np.array([[STEEP], [0.0], [0.0], [-STEEP * threshold]])
        told.append(step_from(target, tmp_path, weights, f"made-{i}"))
        if not told[-1].refusal:
            found.append(len(x) * (weights[:3] - told[-1].weights).ravel())
    if held(policy, *told):
        assert all("predicted with certainty" in one.refusal for one in told)
    else:
        np.testing.assert_allclose(found[0] - found[1], x[order[30]], atol=1e-6)
