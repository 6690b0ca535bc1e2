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
    from kernfed.models.global_model import GlobalModel, load_model

    __version__: str

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "10")  # 2^10 ticks of the processor's clock

__all__ = ["GlobalModel", "TwoSample", "__version__", "load_model", "two_sample"]


def __getattr__(name: str) -> Any:
    if name in ("GlobalModel", "load_model"):
        from kernfed.models import global_model as model  # noqa: PLC0415  # nothing is loaded before it is used

        return getattr(model, name)
    if name in ("TwoSample", "two_sample"):
        from kernfed.maths.points import two_sample as test  # noqa: PLC0415  # as above

        return getattr(test, name)
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  # as above

        return version("kernfed")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
