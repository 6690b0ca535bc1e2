"""The ridge of a job that names none: by the feature map and the number of rows behind the fit.

With a signal of variance s² per unit of the kernel and noise of variance σ², the best ridge is σ²/(s² n) times the mean
square |φ(x)|² of a row's features: it falls with the rows n. The constants were chosen on twenty tables and simulated
sets, as the smallest with which none of them loses more than 5 % to `FORMER_RIDGE`.
"""

from __future__ import annotations

from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, FeatureSpec

FORMER_RIDGE = 1e-3
"""Of every job that named none before there was a rule; no map takes more by it."""

_RANDOM, _LINEAR, _LEAST = 0.3, 0.01, 1e-6


def ridge_by_rows(spec: FeatureSpec, num_rows: int, *, head: bool = False) -> float:
    """The ridge of the objective |ZW - Y|²/(2n) + (ridge/2)|W|².

    Random features have |φ(x)|² = 1, half-cosines 1/2: 0.3/n of it, at most 10⁻³. The d columns of the linear map have
    |φ(x)|² = d where they are standardised, and hardly need a ridge once there are more rows than columns: 0.01 d/n
    min(1, d/n), at most 10⁻³ and at least 10⁻⁶. The quadratic map has no rule that is better than 10⁻³ everywhere; nor
    have heads on the columns themselves.

    Args:
        spec: The feature map.
        num_rows: Training rows n.
        head: Whether a head is trained on the features, by steps that do not solve for it.
    """
    n, most = max(num_rows, 1), FORMER_RIDGE
    if spec.kernel is Kernel.POLYNOMIAL2:
        return most
    if spec.kernel is Kernel.LINEAR:
        d = spec.num_columns
        return most if head else max(_LEAST, min(most, _LINEAR * d / n * min(1.0, d / n)))
    size = 0.5 if spec.form is FeatureForm.HALF_COSINE else 1.0
    return size * min(most, _RANDOM / n)
