"""A model's folder as one ONNX file; its package is loaded when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernfed import files
from kernfed.errors import ConfigError
from kernfed.models.base import Model
from kernfed.models.estimator import Estimator

MOST_APART = 1e-6
"""Of the size of scores: what the file may differ from the model by."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    inputs: tuple[str, ...]
    """Names of its inputs."""
    outputs: tuple[str, ...]
    """Names of its outputs."""
    num_bytes: int
    """Size of the file."""
    apart: float | None
    """Largest difference of a score between the file and the model on rows that were made up, as part of the scores'
    size; None: onnxruntime is not installed, and nothing was compared."""


def export_onnx(model: Model | Estimator, out: Path | str) -> Exported:
    """Write a model, with all that it makes of a row before, as an ONNX file: whole or not at all.

    Args:
        model: Of a job, as `kernfed.load_model` gives it.
        out: The file.

    Raises:
        ConfigError: The package onnx is not installed, no graph is made of such a model, it is larger than ONNX holds,
            a column has the name of an output, onnxruntime computes something else than the model, or the file cannot
            be written.
    """
    try:
        from kernfed.models.onnx import export  # noqa: PLC0415  # needs the package onnx, which need not be there
    except ModuleNotFoundError as err:
        if err.name != "onnx":
            raise
        raise ConfigError("the package onnx is not installed here; pip install 'kernfed[onnx]'") from err

    plain = model.model if isinstance(model, Estimator) else model
    made = export.as_onnx(plain)
    content = made.SerializeToString(deterministic=True)
    apart = export.difference(plain, content)
    if apart is not None and not apart <= MOST_APART:
        raise ConfigError(
            f"onnxruntime computes scores that are {apart:.1g} of their size off the model's, above {MOST_APART:g}; "
            f"nothing was written to {out}. Predict with `kernfed predict`, which has all digits"
        )
    try:
        with files.output(Path(out)) as file:
            file.write(content)
    except OSError as err:
        raise ConfigError(f"{out}: cannot be written: {err.strerror}") from err
    names = [tuple(value.name for value in part) for part in (made.graph.input, made.graph.output)]
    return Exported(names[0], names[1], len(content), apart)
