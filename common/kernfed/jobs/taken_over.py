"""Values that the clients of another job agreed on, judged before a job takes them over from a file."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from kernfed.arrays import GREATEST, Array
from kernfed.features.spec import FeatureSpec, fingerprint

_ROUNDING = 1e-6
"""Of shares of classes."""
_drawn = functools.lru_cache(4)(fingerprint)
"""Once for a file that is read several times."""


def absurd(arrays: Mapping[str, Array], classes: Sequence[str]) -> str:
    """Say which numbers cannot be those of a job's rows; empty where all can.

    Args:
        arrays: By name; `target_mean` is the shares of the classes.
        classes: Names; empty for regression.
    """
    for name, array in arrays.items():
        if array.dtype.kind != "f" or not (np.abs(array) <= GREATEST).all():
            return f"{name} holds something else than numbers up to {GREATEST:g}"
    if classes and (np.abs(arrays["target_mean"] - 0.5) > 0.5 + _ROUNDING).any():
        return "target_mean holds what is no share of a class"
    return ""


def other_features(spec: FeatureSpec, told: str) -> str:
    """Say that a fingerprint that was told is not that of the features drawn here; empty where it is.

    Raises:
        ConfigError: The specification contradicts itself.
    """
    if (own := _drawn(spec)) == told:
        return ""
    return (
        f"its features have the fingerprint {told[:12]!r}, and this release of kernfed draws {own[:12]!r} from what it "
        "says of them"
    )
