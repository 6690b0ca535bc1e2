"""kernfed: federated learning with kernels for institutions whose data may not be pooled and are not alike.

Nothing is loaded before it is used::

    model = kernfed.load_model("artifacts")
    predictions = model.predict(frame)
    job = kernfed.Job(name="risk", method=kernfed.Newton(ridge=0.01), data=...)
    run = kernfed.connect("pki/operator-ann").submit(job)
    result = kernfed.simulate(job, {"north": frame, "south": (X, y)})
    kernfed.two_sample(january, june).p_value

Threads of numpy, scipy and torch that wait for each other sleep, and do not spin: where another program needs a
processor, a product of theirs took a hundred times as long. The libraries read it when they are loaded, so it is
decided here. Who sets `OMP_WAIT_POLICY` or `OPENBLAS_THREAD_TIMEOUT` decides it otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernfed.maths.points.two_sample import TwoSample, two_sample
    from kernfed.models.estimator import Classifier, Estimator, Regressor, load_model
    from kernfed.models.global_model import GlobalModel
    from kernfed.models.onnx_file import export_onnx
    from kernfed.python.comparing import compare
    from kernfed.python.federation import Federation, Run, connect
    from kernfed.python.job import Job
    from kernfed.python.sections import *  # noqa: F403  # a class for each method, and for each table of a job file
    from kernfed_simulation.python import Simulation, simulate, simulate_async

    __version__: str

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "10")  # 2^10 ticks of the processor's clock

__all__: list[str] = [
    "Classifier",
    "Estimator",
    "Federation",
    "GlobalModel",
    "Job",
    "Regressor",
    "Run",
    "Simulation",
    "TwoSample",
    "__version__",
    "compare",
    "connect",
    "export_onnx",
    "load_model",
    "simulate",
    "simulate_async",
    "two_sample",
]

_HOMES = {
    "kernfed.maths.points.two_sample": ("TwoSample", "two_sample"),
    "kernfed.models.estimator": ("Classifier", "Estimator", "Regressor", "load_model"),
    "kernfed.models.global_model": ("GlobalModel",),
    "kernfed.models.onnx_file": ("export_onnx",),
    "kernfed.python.comparing": ("compare",),
    "kernfed.python.federation": ("Federation", "Run", "connect"),
    "kernfed.python.job": ("Job",),
}
"""Module to the names that it gives to this one, when they are asked for."""


def __getattr__(name: str) -> Any:
    import importlib  # noqa: PLC0415  # nothing is loaded before it is used

    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    if name in ("Simulation", "simulate", "simulate_async"):
        from kernfed_simulation import python as simulation  # noqa: PLC0415  # loads torch and both halves

        return getattr(simulation, name)
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  # as above

        return version("kernfed")
    if name[:1].isupper() and name in (found := _classes()):
        return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_classes()])


def _classes() -> Mapping[str, Any]:
    """A class for each method, and for each table of a job file."""
    from kernfed.python.section_classes import classes  # noqa: PLC0415  # loads the rooms of all methods

    return classes()
