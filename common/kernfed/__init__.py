"""kernfed: federated learning with kernels for institutions whose data may not be pooled and are not alike.

Nothing is loaded before it is used::

    model = kernfed.load_model("artifacts")
    predictions = model.predict(frame)
    kernfed.two_sample(january, june).p_value
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernfed.maths.two_sample import TwoSample, two_sample
    from kernfed.models.global_model import GlobalModel, load_model

    __version__: str

__all__ = ["GlobalModel", "TwoSample", "__version__", "load_model", "two_sample"]


def __getattr__(name: str) -> Any:
    if name in ("GlobalModel", "load_model"):
        from kernfed.models import global_model as model  # noqa: PLC0415  # nothing is loaded before it is used

        return getattr(model, name)
    if name in ("TwoSample", "two_sample"):
        from kernfed.maths import two_sample as test  # noqa: PLC0415  # as above

        return getattr(test, name)
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  # as above

        return version("kernfed")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
