"""Steps that compare the weighted with the unweighted model on training rows that neither of them was fitted to.

M features, C outputs, Q parameters of a network; two models, the weighted one first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from kernfed.arrays import Array
from kernfed.federation.messages.base import Exact, Kind, Name, Range, Reply, Request, Rows, Shape, Stated
from kernfed.methods.reweight.messages import NetworkScale
from kernfed.models.network_spec import NetworkSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared(Reply):
    """Weighted losses of two models on the rows kept apart."""

    diagnostics = ("square", "apart_distance", "test_distance")

    num_rows: Rows
    num_apart: Annotated[int, Range(0, 2**53)]
    """Rows kept apart."""
    losses: Annotated[Array, Shape(2), Exact()]
    """Mean of weight times squared error (over outputs its sum) of each model; the weighted one is first."""
    square: Annotated[float, Range(0)]
    """Mean of the squared difference of the two, row by row; copies of a row vary as one."""
    apart_distance: Annotated[float, Range(0)] = 0.0
    """Mean of weight times squared difference of the two models' predictions (over outputs its sum) on these rows."""
    test_distance: Annotated[float, Range(0)] = 0.0
    """Mean of the squared difference on the inputs of the test rows. For the true weights the two are the same."""
    num_points: Annotated[int, Range(0, 2**53)] = 0
    """Test rows; 0: there are none, or they were not looked at."""

    def contradictions(self, stated: Stated) -> Iterator[str]:
        """See `Reply.contradictions`."""
        del stated
        if self.num_apart > self.num_rows:
            yield f"{self.num_apart} rows kept apart, of {self.num_rows}"
        if (self.losses < 0).any():
            yield "a squared error is below 0"
        if abs(float(self.losses[0] - self.losses[1])) > self.square**0.5 * (1 + 1e-6) + 1e-12:
            yield "the mean of differences is greater than their root mean square"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareLinearRequest(Request[Compared]):
    """Compare two linear models on the feature map, each with its means, on the rows kept apart."""

    step = "reweight.compare_linear"
    reply = Compared
    kinds = (Kind.METRIC,)

    variant: Name
    """Variant whose ratios weigh the rows."""
    weights: Annotated[Array, Shape(2, "M", "C")]
    """On centred features."""
    feature_means: Annotated[Array, Shape(2, "M"), Exact()]
    """Subtracted from the features."""
    target_means: Annotated[Array, Shape(2, "C"), Exact()]
    """Added to predictions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareNetworksRequest(Request[Compared]):
    """Compare two networks on the rows kept apart."""

    step = "reweight.compare_networks"
    reply = Compared
    kinds = (Kind.METRIC,)

    variant: Name
    """Variant whose ratios weigh the rows."""
    network: NetworkSpec
    scale: NetworkScale
    networks: Annotated[Array, Shape(2, "Q")]
    """Parameters of each network."""
