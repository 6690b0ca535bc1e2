"""kernfed: federated learning with kernels for institutions whose data may not be pooled and are not alike.

Nothing is loaded before it is used::

    model = kernfed.load_model("artifacts")
    predictions = model.predict(frame)
    kernfed.two_sample(january, june).p_value

Threads of numpy, scipy and torch that wait for each other sleep, and do not spin: where another program needs a
processor, a product of theirs took a hundred times as long. The libraries read it when they are loaded, so it is
decided here. Who sets `OMP_WAIT_POLICY` or `OPENBLAS_THREAD_TIMEOUT` decides it otherwise.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernfed.maths.points.two_sample import TwoSample, two_sample
    from kernfed.models.estimator import Classifier, Estimator, Regressor, load_model
    from kernfed.models.global_model import GlobalModel

    __version__: str

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "10")  # 2^10 ticks of the processor's clock

__all__ = [
    "Classifier",
    "Estimator",
    "GlobalModel",
    "Regressor",
    "TwoSample",
    "__version__",
    "load_model",
    "two_sample",
]

_HOMES = {
    "kernfed.maths.points.two_sample": ("TwoSample", "two_sample"),
    "kernfed.models.estimator": ("Classifier", "Estimator", "Regressor", "load_model"),
    "kernfed.models.global_model": ("GlobalModel",),
}
"""Module to the names that it gives to this one, when they are asked for."""


def __getattr__(name: str) -> Any:
    import importlib  # noqa: PLC0415  # nothing is loaded before it is used

    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  # as above

        return version("kernfed")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
