"""Tests of `kernfed.features.spec`: specifications, frequencies, fingerprints."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import special

from kernfed.errors import ConfigError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, FeatureSpec, check_spec, draw_frequencies, fingerprint, make_spec

RANDOM = [Kernel.GAUSSIAN, Kernel.LAPLACE, Kernel.MATERN32, Kernel.MATERN52]
PINNED = {
    Kernel.GAUSSIAN: "cdcb49f777ceb845e344c4afd4e2c638230dc52ee824382d6393489aa7cbba84",
    Kernel.LAPLACE: "744f4da865ef7adbe45986dca925894febbebbf634c8808d2a5d2d6145531d69",
    Kernel.MATERN32: "5571356e4553131546b8fbd871cbe3a885598ed1ccfd091ab7468ccb6fad26c2",
    Kernel.MATERN52: "8652d021ba8485425411dff32b24b7b1dc68afd164d31885c6ad17fb4b223ae3",
    Kernel.LINEAR: "cf72d5aee7b7a016f3189c37e16b5b434131b028973a10a2d242845b03c4287d",
    Kernel.POLYNOMIAL2: "6a0bcc7c4cbbd2b8eec94235012f84ae07e23db434f36c47410e48f81dad3a56",
}
"""Fingerprints that both ends of a federation must compute, whatever their platform and release."""


def spec_of(kernel: Kernel, form: FeatureForm = FeatureForm.COSINE, num_frequencies: int = 64) -> FeatureSpec:
    return make_spec(kernel, form, 3, (0.5, 1.0, 3.0), num_frequencies, 11)


@pytest.mark.parametrize("kernel", Kernel)
def test_fingerprints_keep_their_bits(kernel: Kernel) -> None:
    """A specification has the same fingerprint everywhere."""
    assert fingerprint(spec_of(kernel)) == PINNED[kernel]


@pytest.mark.parametrize(
    ("kernel", "form", "want"),
    [
        (Kernel.GAUSSIAN, FeatureForm.COSINE, 64),
        (Kernel.GAUSSIAN, FeatureForm.HALF_COSINE, 64),
        (Kernel.GAUSSIAN, FeatureForm.SINE_COSINE, 128),
        (Kernel.LINEAR, FeatureForm.SINE_COSINE, 3),
        (Kernel.POLYNOMIAL2, FeatureForm.COSINE, 10),
    ],
)
def test_number_of_features_follows(kernel: Kernel, form: FeatureForm, want: int) -> None:
    """M is D, 2 D, d or (d+1)(d+2)/2."""
    assert spec_of(kernel, form).num_features == want


def test_any_change_changes_the_fingerprint() -> None:
    """Specifications that differ in anything that matters have different fingerprints."""
    base = spec_of(Kernel.GAUSSIAN)
    others = [
        spec_of(Kernel.LAPLACE),
        spec_of(Kernel.GAUSSIAN, FeatureForm.HALF_COSINE),
        spec_of(Kernel.GAUSSIAN, num_frequencies=65),
        dataclasses.replace(base, seed=12),
        dataclasses.replace(base, lengthscales=(0.5, 1.0, math.nextafter(3.0, 4.0))),
    ]
    assert len({fingerprint(s) for s in [base, *others]}) == 6


def test_fingerprint_sees_the_frequencies_themselves() -> None:
    """One flipped last bit of one frequency is noticed."""
    spec = spec_of(Kernel.GAUSSIAN)
    drawn = draw_frequencies(spec)
    assert fingerprint(spec, drawn) == fingerprint(spec)
    drawn.omega[5, 1] = np.nextafter(drawn.omega[5, 1], 9)
    assert fingerprint(spec, drawn) != fingerprint(spec)


def test_exact_maps_ignore_what_is_random() -> None:
    """Linear maps of different seeds are the same map."""
    one = make_spec(Kernel.LINEAR, FeatureForm.COSINE, 3, 1.0, 100, 1)
    two = make_spec(Kernel.LINEAR, FeatureForm.SINE_COSINE, 3, 1.0, 200, 2)
    assert one == two
    assert draw_frequencies(one).omega.shape == (0, 3)


@pytest.mark.parametrize("kernel", RANDOM)
def test_smaller_maps_are_parts_of_larger_ones(kernel: Kernel) -> None:
    """The first D frequencies do not depend on how many follow."""
    small, large = (draw_frequencies(spec_of(kernel, num_frequencies=num)) for num in (64, 1000))
    assert np.array_equal(small.omega, large.omega[:64])
    assert np.array_equal(small.phase, large.phase[:64])


@pytest.mark.parametrize(("kernel", "degrees"), [(Kernel.GAUSSIAN, None), (Kernel.LAPLACE, 1), (Kernel.MATERN32, 3)])
def test_frequencies_have_their_marginal_distribution(kernel: Kernel, degrees: int | None) -> None:
    """Column i of omega times ℓ_i is normal, or Student-t: Dvoretzky-Kiefer-Wolfowitz at delta = 1e-9 per column."""
    n, delta = 50_000, 1e-9
    omega = draw_frequencies(spec_of(kernel, num_frequencies=n)).omega * (0.5, 1.0, 3.0)
    bound = math.sqrt(math.log(2 / delta) / (2 * n)) + 1 / n
    for column in omega.T:
        cdf = special.ndtr(column) if degrees is None else special.stdtr(degrees, column)
        assert np.abs(np.arange(1, n + 1) / n - np.sort(cdf)).max() <= bound


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_features": 65}, "states 65 features, but gives 64"),
        ({"lengthscales": (1.0, 2.0)}, "2 numbers for 3 columns"),
        ({"lengthscales": (0.0,)}, "positive"),
        ({"lengthscales": (math.nan,)}, "positive"),
        ({"lengthscales": (math.inf,)}, "positive"),
        ({"num_frequencies": 0, "num_features": 0}, "at least 1"),
        ({"num_columns": 0}, "at least 1"),
        ({"kernel": Kernel.LINEAR, "num_features": 3}, "exact"),
        ({"num_frequencies": 10**8, "num_features": 10**8}, "more than"),
    ],
)
def test_contradictions_are_refused(change: dict[str, object], message: str) -> None:
    """A specification that contradicts itself is an error that says what is wrong."""
    with pytest.raises(ConfigError, match=message):
        check_spec(dataclasses.replace(spec_of(Kernel.GAUSSIAN), **change))  # type: ignore[arg-type]  # fields of any type
