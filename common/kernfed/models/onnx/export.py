"""A model as an ONNX graph, and how far what a runtime computes by it is from the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from kernfed.arrays import Floats
from kernfed.errors import ConfigError
from kernfed.maths.tasks import TASKS
from kernfed.models.base import Model
from kernfed.models.global_model import GlobalModel
from kernfed.models.network_model import NetworkModel
from kernfed.models.onnx.cells import expanded
from kernfed.models.onnx.graph import DOUBLE, TEXT, Graph
from kernfed.models.onnx.made_up import made_up_cells
from kernfed.models.onnx.scores import classes, linear_scores, network_scores, probabilities

ROWS = "rows"
"""Input of a model whose columns have no types: their numbers, (n, d)."""
_MOST_BYTES = 2**31 - 1
_SCORES: Mapping[type, Callable[[Graph, Any, str], str]] = {GlobalModel: linear_scores, NetworkModel: network_scores}


def as_onnx(model: Model) -> onnx.ModelProto:
    """A model as a graph: `rows` or one input per column to `prediction`, `scores` and of classes `probabilities`.

    Raises:
        ConfigError: No graph is made of such a model, a column has the name of an output, or it is larger than ONNX
            holds.
    """
    scores_of = _SCORES.get(type(model))
    if scores_of is None:
        raise ConfigError(
            f"a model of kind {type(model).__name__} has no ONNX form; those that jobs leave as model.json and "
            "model.safetensors have one. Predict with `kernfed predict`"
        )
    task = TASKS[model.task]
    outputs = {"prediction", "scores"} | ({"probabilities"} if task.has_classes else set())
    names = [plan.name for plan in model.columns] or [ROWS]
    if doubled := sorted(outputs.intersection(names)):
        raise ConfigError(
            f"column {doubled[0]!r} has the name of an output of the file; call it otherwise in the job, and map the "
            "name in the client files"
        )
    graph = Graph({*outputs, *names})
    if model.columns:
        x = graph("Concat", *(expanded(graph, plan) for plan in model.columns), axis=1)
    else:
        x = graph.input(ROWS, DOUBLE, ("rows", len(model.feature_names)))
    scores = scores_of(graph, model, graph.where(graph("IsInf", x), np.nan, x))
    scores = graph.where(graph("IsInf", scores), np.nan, scores)
    if task.has_classes:
        graph.output("prediction", TEXT, ("rows",), classes(graph, model.task, model.classes, scores))
        found = probabilities(graph, model.task, len(model.classes), scores)
        graph.output("probabilities", DOUBLE, ("rows", len(model.classes)), found)
    else:
        graph.output("prediction", DOUBLE, ("rows",), graph("Squeeze", scores, np.array([1])))
    graph.output("scores", DOUBLE, ("rows", task.num_outputs(model.classes)), scores)
    facts = {
        "target": str(getattr(model, "target", "")),
        "task": str(model.task),
        "columns": json.dumps([plan.name for plan in model.columns] or list(model.feature_names)),
        "classes": json.dumps(list(model.classes)),
        "job": json.dumps(dict(model.job), sort_keys=True, default=str),
    }
    made = graph.model("kernfed", "A model of kernfed. A row that it cannot predict has NaN scores.", facts)
    if made.ByteSize() > _MOST_BYTES:
        raise ConfigError(f"the model takes {made.ByteSize():,} bytes as ONNX, which holds up to {_MOST_BYTES:,}")
    return made


def difference(model: Model, content: bytes, num_rows: int = 200) -> float | None:
    """Compare a file with its model on rows that are made up.

    Args:
        model: The model.
        content: Of the file.
        num_rows: Rows to compare.

    Returns:
        Largest difference of a score as part of the largest score's size, or infinity where one of the two alone
        cannot predict a row; None: onnxruntime is not installed.
    """
    try:
        import onnxruntime  # noqa: PLC0415  # it need not be there
    except ImportError:
        return None
    cells, inputs = made_up_cells(model, num_rows)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    found: Floats = session.run(["scores"], inputs)[0]
    wanted = model.predict_scores(cells)
    return float(np.abs(found - wanted).max() / max(1.0, np.abs(wanted).max()))
