"""Feature maps as specifications: what travels is (kernel, lengthscales, dimension, seed), never the matrix.

Both ends draw the same frequencies from a counter-based generator (`kernfed.rng`) and compare a fingerprint.
The map itself, on CPU or CUDA, is in `kernfed.tensors.feature_maps`; this module needs numpy alone.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from kernfed import rng
from kernfed.arrays import Floats
from kernfed.errors import ConfigError
from kernfed.features import law as laws
from kernfed.features.kernels import EXACT_KERNELS, RADIAL, Kernel
from kernfed.federation.messages.base import Dim, MaxLength, Name, Range


class FeatureForm(enum.StrEnum):
    """Map from random frequencies to features.

    COSINE: sqrt(2/D) cos(Wx + b), D numbers. SINE_COSINE: D^-1/2 [sin Wx, cos Wx], 2 D numbers, unit norm.
    HALF_COSINE: D^-1/2 cos(Wx + b) as the FedNewton paper prints it; approximates half the kernel, so its
    ridge counts double. NYSTROEM: K^-1/2 k(L, x), D numbers, of D landmarks L that are drawn from N(0, I): their inner
    products are those of the kernel between landmarks, and less elsewhere.
    """

    COSINE = "cosine"
    SINE_COSINE = "sine-cosine"
    HALF_COSINE = "half-cosine"
    NYSTROEM = "nystroem"


DRAWN_FORMS = (FeatureForm.COSINE, FeatureForm.SINE_COSINE, FeatureForm.HALF_COSINE)
"""Those of frequencies, and not of landmarks."""


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """A feature map, up to the bits of its frequencies."""

    kernel: Kernel
    form: FeatureForm
    num_columns: Annotated[int, Range(1, 1_000_000)]
    """Input columns d."""
    lengthscales: Annotated[tuple[float, ...], MaxLength(1_000_000), Range(1e-300)]
    """One for all columns, or one per column."""
    num_frequencies: Annotated[int, Range(0, 10_000_000)]
    """Random frequencies D; 0 for linear and polynomial maps."""
    seed: Annotated[int, Range(0, 2**63 - 1)]
    """Seed of the frequencies; 0 for exact maps."""
    num_features: Annotated[int, Dim("M"), Range(1, 20_000_000)]
    """Numbers per row after the map; follows from the rest, stated so that both ends can check it."""
    law: Name = ""
    """Law of the frequencies that a package from outside brings, as `package:name`, in place of the kernel's; empty:
    the kernel's."""


@dataclass(frozen=True, slots=True)
class Frequencies:
    """The random part of a feature map, float64."""

    omega: npt.NDArray[np.float64]
    """Frequencies W, shape (D, d), columns already divided by the lengthscales; D = 0 for exact maps. Of a Nyström map
    the landmarks, in the units of the columns."""
    phase: npt.NDArray[np.float64]
    """Phases b in (0, 2 pi), shape (D,); the sine-cosine form does not use them, and a Nyström map has zeros."""


_MAX_FEATURES = 20_000_000
_TWO_PI = 2.0 * math.pi
_KEPT = 1 << 17
"""Numbers of a draw (1 MiB) up to which it is kept."""


def make_spec(
    kernel: Kernel,
    form: FeatureForm,
    num_columns: int,
    lengthscales: float | Sequence[float],
    num_frequencies: int,
    seed: int,
    law: str = "",
) -> FeatureSpec:
    """Complete a feature map's specification with the number of features that it gives.

    Args:
        kernel: Which kernel.
        form: How frequencies become features; exact maps (linear, polynomial) have one form, and ignore this.
        num_columns: Input columns d.
        lengthscales: One for all columns or one per column, positive, in the units of the columns.
        num_frequencies: Random frequencies D; exact maps ignore it.
        seed: Of the frequencies; exact maps ignore it.
        law: Of the frequencies, as `kernfed.features.law.full_name` has it; empty: that of the kernel.

    Raises:
        ConfigError: A lengthscale is not positive and finite, their count does not fit, or there are too
            many or no features.
    """
    scales = (lengthscales,) if isinstance(lengthscales, int | float) else tuple(lengthscales)
    exact = kernel in EXACT_KERNELS
    spec = FeatureSpec(
        kernel=kernel,
        form=FeatureForm.COSINE if exact else form,
        num_columns=num_columns,
        lengthscales=tuple(float(s) for s in scales),
        num_frequencies=0 if exact else num_frequencies,
        seed=0 if exact else seed,
        num_features=num_features(kernel, form, num_columns, num_frequencies),
        law=law,
    )
    check_spec(spec)
    return spec


def num_features(kernel: Kernel, form: FeatureForm, num_columns: int, num_frequencies: int) -> int:
    """Count the features M: d for linear, (d+1)(d+2)/2 for polynomial, 2 D for sine-cosine, else D."""
    if kernel is Kernel.LINEAR:
        return num_columns
    if kernel is Kernel.POLYNOMIAL2:
        return (num_columns + 1) * (num_columns + 2) // 2
    return 2 * num_frequencies if form is FeatureForm.SINE_COSINE else num_frequencies


def check_spec(spec: FeatureSpec) -> None:
    """Check that a specification is complete and does not contradict itself.

    Raises:
        ConfigError: Names the key of the job's `features` section that is wrong.
    """
    if spec.num_columns < 1:
        raise ConfigError(f"features: {spec.num_columns} input columns, want at least 1; name feature columns")
    if len(spec.lengthscales) not in (1, spec.num_columns):
        raise ConfigError(
            f"features.lengthscale has {len(spec.lengthscales)} numbers for {spec.num_columns} columns; "
            "give one number, or one per feature column"
        )
    for scale in spec.lengthscales:
        if not (math.isfinite(scale) and scale > 0):
            raise ConfigError(f"features.lengthscale holds {scale}; give positive finite numbers")
    if spec.law and (spec.kernel in EXACT_KERNELS or spec.form not in DRAWN_FORMS):
        raise ConfigError(
            f"features.law is {spec.law!r}, and a map of {spec.kernel}, {spec.form} draws no frequencies; remove it"
        )
    if spec.kernel in EXACT_KERNELS:
        if spec.num_frequencies != 0:
            raise ConfigError(
                f"features.num_frequencies is {spec.num_frequencies}, but the {spec.kernel} map is exact: give 0"
            )
    elif spec.num_frequencies < 1:
        raise ConfigError(
            f"features.num_frequencies is {spec.num_frequencies}, but the {spec.kernel} map is random: "
            "give at least 1, usually some hundreds"
        )
    want = num_features(spec.kernel, spec.form, spec.num_columns, spec.num_frequencies)
    if want > _MAX_FEATURES:
        raise ConfigError(
            f"features: {spec.kernel} on {spec.num_columns} columns gives {want} features, more than "
            f"{_MAX_FEATURES}; choose another kernel or fewer columns"
        )
    if spec.num_features != want:
        raise ConfigError(f"features: the specification states {spec.num_features} features, but gives {want}")


def draw_frequencies(spec: FeatureSpec) -> Frequencies:
    """Draw a map's frequencies and phases; the same bits everywhere.

    Gaussian: W ~ N(0, ℓ^-2 I). Laplace and Matérn ν: multivariate Student-t with 2 ν degrees of freedom, divided
    by ℓ. A law from outside: its own, divided by ℓ. Landmarks of a Nyström map: N(0, I). The first D frequencies of a
    larger map of the same seed are those of the smaller one.

    Raises:
        ConfigError: The specification contradicts itself.

    Source: Rahimi & Recht (2007), Algorithm 1; Rasmussen & Williams (2006), equation (4.15).
    """
    check_spec(spec)
    num, d = spec.num_frequencies, spec.num_columns
    if num == 0:
        return Frequencies(np.empty((0, d)), np.empty(0))
    if spec.form is FeatureForm.NYSTROEM:
        return Frequencies(rng.stream(spec.seed, "features", "landmarks").normal(num, d), np.zeros(num))
    draw = _kept_draw if num * (d + 1) <= _KEPT else _draw
    omega, phase = draw(spec.kernel, num, d, spec.seed, spec.law)
    return Frequencies(omega / np.asarray(spec.lengthscales), phase.copy())


def _draw(kernel: Kernel, num: int, num_columns: int, seed: int, law: str) -> tuple[Floats, Floats]:
    """Frequencies of lengthscale 1, shape (D, d), and phases, shape (D,)."""
    phase = _TWO_PI * rng.stream(seed, "features", "phase").uniform(num)
    if law:
        return laws.drawn(law, seed, num, num_columns), phase
    omega = rng.stream(seed, "features", "omega").normal(num, num_columns)
    degrees = RADIAL[kernel].degrees_of_freedom
    if degrees is not None:
        omega *= rng.stream(seed, "features", "chi").inverse_chi(num, degrees)[:, None]
    return omega, phase


_kept_draw = functools.lru_cache(maxsize=4)(_draw)
"""In a simulation each client maps its rows by one draw, with all clients' lengthscales and with its own."""


def num_drawn(spec: FeatureSpec) -> int:
    """Count the numbers that drawing a map takes at once, whatever the rows are: frequencies and what makes them.

    Of a Nyström map these are the kernel's matrix between landmarks and its root too.
    """
    square = 3 * spec.num_frequencies if spec.form is FeatureForm.NYSTROEM else 0
    return spec.num_frequencies * (2 * spec.num_columns + 1 + square)


def fingerprint(spec: FeatureSpec, frequencies: Frequencies | None = None) -> str:
    """Compute a digest that two ends share exactly if they map features alike, 64 hexadecimal digits.

    Args:
        spec: The map.
        frequencies: What was drawn for it; drawn again where not given.

    Raises:
        ConfigError: The specification contradicts itself.
    """
    check_spec(spec)
    drawn = draw_frequencies(spec) if frequencies is None else frequencies
    facts = spec_facts(spec) | {"lengthscales": [scale.hex() for scale in spec.lengthscales]}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for array in (drawn.omega, drawn.phase):
        digest.update(np.ascontiguousarray(array, dtype="<f8").data)
    return digest.hexdigest()


def spec_facts(spec: FeatureSpec) -> dict[str, Any]:
    """The specification by field, as files and fingerprints have it; without a law where it has none, as of before."""
    return {name: value for name, value in asdict(spec).items() if name != "law" or value}
