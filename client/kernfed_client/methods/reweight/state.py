"""A client's density ratios: in memory, and in the job's folder, so that a restart loses none.

Of the points that others gave nothing is kept: only the ratio of each own training row, and what is told about them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from kernfed import rng
from kernfed.arrays import Array, Floats
from kernfed.errors import JobStateMissingError
from kernfed.maths.folds import keep_apart
from kernfed.methods.reweight.messages import APART, APART_SHARE, UNWEIGHTED
from kernfed_client.data import kept_arrays
from kernfed_client.data.local_job import LocalJob

LAST_ROUND = 2**53
"""Stands for a round after all others."""

_VARIANTS = ("all", "mixture", "own", "target")
_KEPT_ROUNDS = 4


@dataclass(frozen=True)
class Facts:
    """Summary of ratios; see `kernfed.methods.reweight.messages.RatioSummary`."""

    total: float
    mean: float
    num_cut: int = 0
    bound: float = 0.0
    uncovered: float = 0.0
    num_steps: int = 0
    note: str = ""
    held_out: float = 0.0


@dataclass(frozen=True)
class Ratios:
    """Weights of the training rows, (n,): ratios over K; and what is told about them."""

    weights: Floats
    facts: Facts


@dataclass
class ReweightState:
    """What a reweighted job holds at this client."""

    ratios: dict[str, Ratios] = field(default_factory=dict)
    """By variant: by whose test points they are for."""
    norms: dict[int, Floats] = field(default_factory=dict)
    """This client's own batch normalisation, by round."""
    in_use: tuple[str, ...] | None = None
    """Variants that networks are weighted by; None: they are not weighed yet."""


def keep_ratios(job: LocalJob, variant: str, ratios: Ratios) -> None:
    """Keep ratios under a variant's name, in place of earlier ones."""
    job.memory(ReweightState).ratios[variant] = ratios
    if not job.durable:
        return
    weights = np.ascontiguousarray(ratios.weights, np.float64)
    kept_arrays.write(_path(job, variant), {"weights": weights}, asdict(ratios.facts))


def held_variants(job: LocalJob) -> tuple[str, ...]:
    """Variants whose ratios are here, sorted."""
    return tuple(name for name in _VARIANTS if _found(job, name) is not None)


def ratios_of(job: LocalJob, variant: str) -> Ratios:
    """Ratios of a variant; equal weights for `fedavg`. A variant that ends in `APART` has none on rows kept apart.

    Raises:
        JobStateMissingError: There are none, or they are of other rows.
    """
    if variant.endswith(APART):
        whole, inside = ratios_of(job, variant.removesuffix(APART)), ~rows_apart(job)
        mean = float(whole.weights[inside].mean())
        weights = whole.weights * inside if mean > 0 else inside.astype(np.float64)
        return Ratios(weights / weights.mean(), replace(whole.facts, mean=whole.facts.mean * mean))
    if variant == UNWEIGHTED:
        return Ratios(np.ones(job.num_rows), Facts(1.0, 1.0))
    found = _found(job, variant)
    if found is None:
        raise JobStateMissingError(
            f"this client holds no density ratios {variant!r} of this job; reweight.match_ratios comes first"
        )
    return found


def rows_apart(job: LocalJob) -> Array:
    """Mark the training rows that are kept apart to compare models on, (n,): copies of a row go together."""
    order = rng.stream(job.schema.seed, "reweight", "apart", job.client).permutation(job.num_rows)
    return keep_apart(order, job.unit, round(APART_SHARE * job.num_rows))


def own_norm(job: LocalJob, round_num: int, start: Floats) -> Floats:
    """Batch normalisation that this client had before a round, of every variant, (V, B); else where all start."""
    memory = job.memory(ReweightState).norms
    if job.durable and not memory:
        memory.update(_read_norms(_norm_folder(job)))
    earlier = [r for r, found in memory.items() if r < round_num and found.shape == start.shape]
    return memory[max(earlier)] if earlier else start


def keep_norm(job: LocalJob, round_num: int, norm: Floats) -> None:
    """Keep this client's batch normalisation after a round, and a few before it, for a coordinator that goes back."""
    memory = job.memory(ReweightState).norms
    memory[round_num] = norm
    for old in sorted(r for r in memory if r <= round_num)[:-_KEPT_ROUNDS]:
        del memory[old]
        _norm_path(job, old).unlink(missing_ok=True)
    if job.durable:
        kept_arrays.write(_norm_path(job, round_num), {"norm": np.ascontiguousarray(norm, np.float64)})


def _read_norms(folder: Path) -> dict[int, Floats]:
    found: dict[int, Floats] = {}
    for path in sorted(folder.glob("*.safetensors")):
        kept = kept_arrays.read(path)
        if kept is not None and "norm" in kept[0] and path.stem.isdecimal():  # else it starts its normalisation anew
            found[int(path.stem)] = kept[0]["norm"]
    return found


def _norm_folder(job: LocalJob) -> Path:
    return job.folder / "setup" / "norm"  # goes when the job is over, like its setup


def _norm_path(job: LocalJob, round_num: int) -> Path:
    return _norm_folder(job) / f"{round_num:07d}.safetensors"


def _found(job: LocalJob, variant: str) -> Ratios | None:
    memory = job.memory(ReweightState).ratios
    if variant not in memory and job.durable and variant in _VARIANTS:
        read = _read(_path(job, variant))
        if read is not None:
            memory[variant] = read
    found = memory.get(variant)
    return found if found is not None and len(found.weights) == job.num_rows else None


def _read(path: Path) -> Ratios | None:
    """The ratios of a file; None where there are none, for no weight is below 0."""
    kept = kept_arrays.read(path)
    if kept is None:
        return None
    try:
        weights, facts = kept[0]["weights"], Facts(**kept[1])
    except (KeyError, TypeError):
        return None
    return Ratios(weights, facts) if weights.ndim == 1 and (weights >= 0).all() else None


def _path(job: LocalJob, variant: str) -> Path:
    return job.folder / "setup" / "ratios" / f"{variant}.safetensors"  # goes when the job is over, like its setup
