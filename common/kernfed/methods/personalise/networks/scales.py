"""Scales of personal networks: each is trained as if its mixture's rows had mean 0 and deviation 1.

A network f(x) on rows of its own scale is s g((x - c)/d) + m. Without convolutions that is a network of the same layers
on the rows as they are: the first layer takes up c and d, the last one m and s. So clients step on networks of rows as
all have them, and the coordinator trains in the scale of each mixture, by the chain rule.

T networks of P parameters, d columns, C outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.models.network_spec import NetworkSpec, layout

LEAST_SPREAD: Final = 0.1
"""A mixture's deviation counts for no less than this share of that of all rows."""


SCALE: Final = "scale/"
"""Beginning of the names of a checkpoint's arrays."""

MeanDeviation = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class Scales:
    """Means and deviations of each target's mixture, in the units of the rows that clients step on."""

    centre: Floats
    """Of the columns, shape (T, d)."""
    spread: Floats
    """Shape (T, d), above 0."""
    target_centre: Floats
    """Of the targets, shape (T, C); zeros for classes."""
    target_spread: Floats
    """Shape (T, C), above 0; ones for classes."""

    def to_rows(self, spec: NetworkSpec, parameters: Array) -> Floats:
        """Networks on rows as they are, shape (T, P), from those on rows of their own scale."""
        out = np.array(parameters, dtype=np.float64)
        weights, bias = next(_dense(spec, out))
        weights /= self.spread[:, None, :]
        bias -= np.einsum("toi,ti->to", weights, self.centre)
        *_, (weights, bias) = _dense(spec, out)
        weights *= self.target_spread[:, :, None]
        bias *= self.target_spread
        bias += self.target_centre
        return out

    def of_gradients(self, spec: NetworkSpec, gradients: Array) -> Floats:
        """Gradients in the parameters of `to_rows`'s argument, from those in its result; shape (T, P)."""
        out = np.array(gradients, dtype=np.float64)
        *_, (weights, bias) = _dense(spec, out)
        weights *= self.target_spread[:, :, None]
        bias *= self.target_spread
        weights, bias = next(_dense(spec, out))
        weights -= bias[:, :, None] * self.centre[:, None, :]
        weights /= self.spread[:, None, :]
        return out

    def of_one(self, target: int) -> dict[str, tuple[float, ...]]:
        """One target's, as `EvaluateNetworksRequest` names them."""
        return {f"own_{name}": tuple(getattr(self, name)[target].tolist()) for name in _NAMES}

    def to_arrays(self) -> dict[str, Array]:
        """As arrays of a checkpoint."""
        return {f"{SCALE}{name}": getattr(self, name) for name in _NAMES}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Scales | None:
        """What `to_arrays` gave, without the beginning of the names; None where there is nothing."""
        if not arrays:
            return None
        return cls(**{name: np.array(arrays[name], dtype=np.float64) for name in _NAMES})

    @classmethod
    def none(cls, count: int, spec: NetworkSpec) -> Scales:
        """Rows as they are."""
        columns, outputs = (count, spec.num_columns), (count, spec.num_outputs)
        return cls(np.zeros(columns), np.ones(columns), np.zeros(outputs), np.ones(outputs))

    @classmethod
    def of_mixtures(
        cls, mix: Floats, columns: Sequence[MeanDeviation], targets: Sequence[MeanDeviation] | None, spec: NetworkSpec
    ) -> Scales:
        """Those of mixtures of clients' rows; the last network is that of all rows alike, and stays as it is.

        Args:
            mix: Weights, shape (T, B).
            columns: Each client's mean and deviation of the columns.
            targets: Of the targets, in the units in which networks learn them; None for classes.
            spec: The network.
        """
        scales = cls.none(len(mix), spec)
        parts = [(columns, scales.centre, scales.spread)]
        parts += [] if targets is None else [(targets, scales.target_centre, scales.target_spread)]
        for moments, centre, spread in parts:
            centre[:-1], spread[:-1] = (values[:-1] for values in _mixed(mix, moments))
        return scales


_NAMES = ("centre", "spread", "target_centre", "target_spread")


def _mixed(mix: Floats, moments: Sequence[MeanDeviation]) -> tuple[Floats, Floats]:
    """Mean and deviation of each mixture, shape (T, d) each."""
    mean = np.array([m for m, _ in moments])
    variance = np.square(np.array([d for _, d in moments]))
    centre = mix @ mean
    squares = mix @ variance + np.array([mix[t] @ np.square(mean - centre[t]) for t in range(len(mix))])
    spread = np.sqrt(squares)
    least = LEAST_SPREAD * spread[-1]
    return centre, np.maximum(spread, np.where(least > 0, least, 1.0))


def _dense(spec: NetworkSpec, parameters: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Weights (T, outputs, inputs) and biases (T, outputs) of each layer, as views."""
    start = 0
    for layer in layout(spec):
        sizes = layer.sizes
        end = start + layer.num_weights
        weights = parameters[:, start:end].reshape(len(parameters), *layer.shape)
        yield weights, parameters[:, end : end + layer.num_outputs]
        start += sum(sizes)
