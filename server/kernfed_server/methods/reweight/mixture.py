"""Ratios to the mixture of all clients' training rows, by sums over rows: no row leaves a site."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.errors import InvalidReplyError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, FeatureSpec, make_spec
from kernfed.maths.statistics import agree_lengthscale
from kernfed.maths.triangles import unpack
from kernfed.methods.reweight.messages import MIXTURE, RatiosHeld
from kernfed.methods.reweight.mixture import FACTORS, NUM_FOLDS, MixtureRatio, Sums, check, fit, mean_range
from kernfed.methods.reweight.mixture_messages import (
    FoldSums,
    FoldSumsRequest,
    MixtureRatiosRequest,
    PointMoments,
    PointMomentsRequest,
)
from kernfed.methods.reweight.ratio_spec import RatioFeatures, RatioSpec
from kernfed_server.jobs.start.gate import Gate

NO_AXES = np.zeros((0, 0))
_GREATEST_FEATURE = 1.5
"""Above the constant and every cosine feature."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How the ratio to the mixture is found."""

    spec: RatioSpec
    features: RatioFeatures
    num_points: int
    num_columns: int
    seed: int


@dataclass(frozen=True, slots=True)
class Mixed:
    """The ratio that was found, and what clients need to compute it."""

    ratio: MixtureRatio
    request: MixtureRatiosRequest
    ranges: Mapping[str, tuple[float, float]]
    """Bounds of the mean ratio of each client whose rows are in the mixture."""
    num_points: Mapping[str, int]
    """Test points of each of them that count."""


async def mix(
    gate: Gate, plan: Plan, looked: Mapping[str, RatiosHeld], clients: tuple[str, ...], shares: Mapping[str, float]
) -> Mixed:
    """Find the ratio from the clients' sums.

    Args:
        gate: Asks the clients.
        plan: How.
        looked: With each client's median distance.
        clients: Whose rows make the mixture; who fails is left out of it.
        shares: a_k of each.

    Raises:
        DataError: There is no ratio; see `kernfed.methods.reweight.mixture.fit`.
    """
    axes = await _axes(gate, plan, clients)
    members = [c for c in sorted(clients) if looked[c].median_distance > 0]
    medians = [looked[c].median_distance for c in members]
    scale = agree_lengthscale(medians, [looked[c].num_rows for c in members]).value
    columns = axes.shape[1] or plan.num_columns
    specs, maps = [], []
    for factor in FACTORS:
        spec = make_spec(
            Kernel.GAUSSIAN, FeatureForm.COSINE, columns, factor * scale, plan.spec.num_frequencies, plan.seed
        )
        specs.append(spec)
        maps.append(await _sums(gate, plan, axes, spec, clients))
    found = [{c: sums[c] for c in sorted(sums) if all(c in other for other in maps)} for sums in maps]
    ratio = await asyncio.to_thread(fit, found, shares)
    chosen = found[ratio.candidate]
    request = MixtureRatiosRequest(
        variant=MIXTURE,
        features=plan.features,
        axes=axes,
        map=specs[ratio.candidate],
        coefficients=ratio.coefficients,
        clip=plan.spec.clip,
        held_out=ratio.gain,
        uncovered=ratio.uncovered,
    )
    ranges = {client: mean_range(sums, ratio.coefficients) for client, sums in chosen.items()}
    if plan.spec.clip > 0:
        ranges = {client: (0.0, min(high, plan.spec.clip)) for client, (_, high) in ranges.items()}
    return Mixed(ratio, request, ranges, {c: int(sums.num_points.sum()) for c, sums in chosen.items()})


def in_range(mean: float, allowed: tuple[float, float]) -> bool:
    """Whether a client's mean ratio can be, by the sums that it sent."""
    low, high = allowed
    slack = 1e-6 * (1.0 + high)
    return low - slack <= mean <= high + slack


async def _axes(gate: Gate, plan: Plan, clients: tuple[str, ...]) -> Floats:
    """Principal axes of all clients' rows and test points, (P, Q); without columns where all columns count."""
    num = plan.spec.num_components
    if not 0 < num < plan.num_columns:
        return NO_AXES
    request = PointMomentsRequest(features=plan.features, num_points=plan.num_points, seed=plan.seed)

    replies = await gate.ask(
        request, lambda _, reply: check_points(reply, plan.num_columns), clients=clients, fresh=True
    )
    return await asyncio.to_thread(_principal_axes, replies, num)


def check_points(reply: PointMoments, num_columns: int) -> None:
    """Refuse moments that no points have.

    Raises:
        InvalidReplyError: They are of other columns, or a sum is too large for its squares.
    """
    second = unpack(np.asarray(reply.second_moments), num_columns)
    most = reply.num_points * second.diagonal() * (1.0 + 1e-9)  # equal where a column is the same in all rows
    if len(reply.sums) != num_columns or (np.square(reply.sums) > most).any():
        raise InvalidReplyError(f"its sums and second moments are not of {reply.num_points} points")


def _principal_axes(replies: Mapping[str, PointMoments], num: int) -> Floats:
    total = sum(replies[c].num_points for c in sorted(replies))
    mean = sum((np.asarray(replies[c].sums, np.float64) for c in sorted(replies)), np.zeros(1)) / total
    triangle = sum((np.asarray(replies[c].second_moments, np.float64) for c in sorted(replies)), np.zeros(1)) / total
    axes: Floats = np.linalg.eigh(unpack(triangle, len(mean)) - np.outer(mean, mean)).eigenvectors[:, ::-1][:, :num]
    greatest = axes[np.abs(axes).argmax(axis=0), np.arange(num)]
    return np.ascontiguousarray(axes * np.where(greatest < 0, -1.0, 1.0))


async def _sums(gate: Gate, plan: Plan, axes: Array, spec: FeatureSpec, clients: tuple[str, ...]) -> Mapping[str, Sums]:
    request = FoldSumsRequest(
        features=plan.features,
        axes=axes,
        map=spec,
        num_folds=NUM_FOLDS,
        num_outputs=0,
        num_points=plan.num_points,
        seed=plan.seed,
    )
    replies = await gate.ask(request, checked(spec), clients=clients, fresh=True)
    return {client: sums_of(reply) for client, reply in replies.items()}


def checked(spec: FeatureSpec) -> _Check:
    """Check of replies to sums under a map."""
    return _Check(spec.num_features + 1)


@dataclass(frozen=True, slots=True)
class _Check:
    size: int

    def __call__(self, client: str, reply: FoldSums) -> None:
        """See `kernfed.federation.cohort.Check`."""
        del client
        if reply.point_sums.shape[1] != self.size:
            raise InvalidReplyError(f"sums of {reply.point_sums.shape[1]} features, not {self.size}")
        if reply.fold_rows.dtype.kind not in "iu" or reply.fold_points.dtype.kind not in "iu":
            raise InvalidReplyError("rows of its folds in broken numbers")
        rows = reply.fold_rows[:, None, None]
        if (np.abs(reply.target_moments) > _GREATEST_FEATURE * rows + 1e-6).any():
            raise InvalidReplyError(f"its sums of features by class are not of {reply.num_rows} rows")
        check(sums_of(reply), self.size)


def sums_of(reply: FoldSums) -> Sums:
    """The numbers of a reply."""
    return Sums(
        np.asarray(reply.fold_rows, np.int64),
        np.asarray(reply.second_moments, np.float64),
        np.asarray(reply.fold_points, np.int64),
        np.asarray(reply.point_sums, np.float64),
    )
