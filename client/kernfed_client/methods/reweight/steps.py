"""The client's half of density ratios: share a sample where the policy lets it, fit ratios, weigh training rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernfed import rng
from kernfed.arrays import Array, Floats
from kernfed.errors import DataError, InvalidTensorError, JobStateMissingError, PolicyError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, make_spec
from kernfed.federation.messages.base import Kind
from kernfed.maths.folds import deal
from kernfed.maths.statistics import median_distance
from kernfed.maths.tasks import TASKS
from kernfed.methods.reweight.label_shift import LabelShift, black_box_shift, label_ratios, priors, uncovered_share
from kernfed.methods.reweight.messages import (
    UNWEIGHTED,
    ClassPrior,
    ClassPriorRequest,
    LabelRatiosRequest,
    LookUpRatiosRequest,
    MatchRatiosRequest,
    PriorSource,
    RatiosHeld,
    RatiosKept,
    RatioSummary,
    ShareSampleRequest,
    UnlabelledSample,
    UseRatiosRequest,
)
from kernfed.methods.reweight.ratio_spec import HISTOGRAM_EDGES, PLAIN_COLUMNS
from kernfed.methods.reweight.tensors.density_ratios import effective_sample_size, limited, match
from kernfed.tensors.feature_maps import FeatureMap
from kernfed.tensors.ridge import LocalRidge, one_hot
from kernfed_client.data.guards.told import greatest, told, told_counts
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.reweight.points import (
    drawn_points,
    fingerprint_of,
    groups_of_test_points,
    sample_points,
    test_points,
    test_rows,
    train_points,
)
from kernfed_client.methods.reweight.state import (
    Facts,
    Ratios,
    ReweightState,
    held_variants,
    keep_ratios,
    ratios_of,
)
from kernfed_client.steps.evaluation import encode_targets

_FOLDS = 5
_FREQUENCIES = 300
_RIDGE = 1e-3


def look_up(job: LocalJob, request: LookUpRatiosRequest) -> RatiosHeld:
    """Say which ratios are here, and what this client's policy would share."""
    allowed = job.file.policy.allow
    shares = Kind.UNLABELLED_SAMPLE in allowed
    size = _sample_size(job, request.num_points)
    num_columns = train_points(job, request.features, 1).shape[1]
    fingerprint = fingerprint_of(job, request.features)
    median = 0.0
    if request.distances:
        points = drawn_points(job, request.features, request.num_points, request.seed)
        draws = rng.stream(request.seed, "reweight", "distances", job.client)
        both = np.concatenate([train_points(job, request.features), points])
        median = median_distance(both, draws, least=job.file.policy.min_rows).value
    return RatiosHeld(
        num_rows=job.num_rows,
        held=held_variants(job),
        shares=shares,
        num_points=size,
        num_columns=num_columns,
        fingerprint=fingerprint,
        shares_sums={Kind.SUFFICIENT_STATISTIC, Kind.MEAN_EMBEDDING} <= set(allowed),
        median_distance=median,
    )


def share_sample(job: LocalJob, request: ShareSampleRequest) -> UnlabelledSample:
    """Draw test points without labels; the same request gets the same ones.

    Raises:
        PolicyError: The policy does not let unlabelled samples leave.
        DataError: There are no test points.
    """
    if Kind.UNLABELLED_SAMPLE not in job.file.policy.allow:  # the daemon asks its policy before; a simulation too
        raise PolicyError(f"step {request.step} sends unlabelled_sample, which must not leave this client")
    size = _sample_size(job, request.num_points)
    if size == 0:
        raise DataError("there are no test points to share; give the data set a test or an unlabelled partition")
    return UnlabelledSample(points=sample_points(job, request.features, size, request.seed))


def match_ratios(job: LocalJob, request: MatchRatiosRequest) -> RatiosKept:
    """Fit the ratios, and keep those of the training rows.

    The points are put into an order of their own first: in which one they came must not matter, for the coordinator
    draws it anew, in secret, every time.

    Raises:
        DataError: The supports do not overlap, or there are too few points.
    """
    rows = train_points(job, request.features)
    if request.own:
        points = test_points(job, request.features)
        weights = np.full(len(points), 1.0 / max(1, len(points)))
        point_groups = groups_of_test_points(job)
    else:
        points, weights = np.asarray(request.points, np.float64), np.asarray(request.point_weights, np.float64)
        if points.shape[1] != rows.shape[1]:
            raise InvalidTensorError(f"{request.step}: points of shape {points.shape} do not fit this client's columns")
        order = np.lexsort((weights, *points.T[::-1]))
        points, weights = points[order], weights[order]
        point_groups = None
    width = request.ratios.num_frequencies + 1
    job.require(width * (2 * width + rows.shape[1] + len(rows) + len(points)), "the features of density ratios")
    x, xt, w = (torch.tensor(array, device=job.device) for array in (rows, points, weights))
    total = float(weights.sum())
    try:
        fitted = match(x, xt, w, request.ratios, (job.data.train.group, point_groups))
        raw = fitted.ratio(x)
        ratios, num_cut = limited(raw, fitted.bins, fitted.clipping(request.ratios), total)
    except DataError as err:
        return _lacking(job, request.optional, err)
    facts = Facts(
        total=total,
        mean=float(raw.mean()),
        num_cut=num_cut,
        bound=fitted.bins.bound,
        uncovered=fitted.bins.uncovered,
        num_steps=fitted.num_steps,
        held_out=fitted.gain,
        note=fitted.note,
    )
    keep_ratios(job, request.variant, Ratios(ratios.cpu().numpy() / total, facts))
    return RatiosKept(num_rows=job.num_rows, lacking="")


def class_prior(job: LocalJob, request: ClassPriorRequest) -> ClassPrior:
    """Shares of the classes among the test points, counted or estimated."""
    if request.source is PriorSource.LABELS:
        refuse_few_of_a_class(job)
    found = own_prior(job, request)
    return ClassPrior(
        num_rows=job.num_rows,
        prior=found.prior,
        smallest_singular_value=found.smallest_singular_value,
        fallback=found.fallback[:256],
    )


def fit_label_ratios(job: LocalJob, request: LabelRatiosRequest) -> RatiosKept:
    """Ratios of class shares: nothing is fitted, nothing cut."""
    train = priors(_counts(job, job.targets_train))
    note = ""
    if request.own:
        found = own_prior(job, request)
        test, note = found.prior[None], found.fallback
    else:
        test = np.asarray(request.test_priors, np.float64)
        if test.shape[1] != len(train):
            raise InvalidTensorError(f"{request.step}: priors of shape {test.shape} for {len(train)} classes")
    ratios = label_ratios(test, train)
    weights = ratios[_classes(job, job.targets_train)] / len(test)
    if not (weights > 0).any():
        err = DataError("no training row is of a class that occurs among the test rows; leave this client out")
        return _lacking(job, request.optional, err)
    total = float(len(test))
    facts = Facts(
        total=total,
        mean=float(weights.mean()) * total,
        bound=float(ratios.max()),
        uncovered=uncovered_share(test.sum(axis=0), train),
        note=note[:512],
    )
    keep_ratios(job, request.variant, Ratios(weights, facts))
    return RatiosKept(num_rows=job.num_rows, lacking="")


def use_ratios(job: LocalJob, request: UseRatiosRequest) -> RatioSummary:
    """Weigh the training rows of the linear model by the first variant, and tell about it.

    Raises:
        JobStateMissingError: Ratios of a variant are not here.
    """
    found = [ratios_of(job, variant) for variant in request.variants]
    first = found[0]
    job.weigh(None if request.variants[0] == UNWEIGHTED else first.weights)
    keep_in_use(job, request.variants)
    w, y = first.weights, encode_targets(job, job.targets_train)
    counts = np.bincount(np.searchsorted(HISTOGRAM_EDGES, w, side="left"), minlength=len(HISTOGRAM_EDGES) + 1)
    least = job.file.policy.min_rows
    facts = first.facts
    share = w / w.sum()
    mean = share @ y
    return RatioSummary(
        num_rows=job.num_rows,
        total=facts.total,
        mean=facts.mean,
        greatest=greatest(w, least),
        effective_rows=effective_sample_size(w),
        num_cut=told(facts.num_cut, least),
        bound=facts.bound,
        uncovered=facts.uncovered,
        num_steps=facts.num_steps,
        histogram=told_counts(counts, least),
        target_mean=mean,
        target_square=share @ np.square(y),
        note=facts.note,
        held_out=facts.held_out,
        target_spread=tuple((share @ np.square(y - mean)).tolist()),
    )


def keep_in_use(job: LocalJob, variants: Sequence[str]) -> None:
    """Remember which variants the networks are weighted by."""
    job.memory(ReweightState).in_use = tuple(variants)


def weights_in_use(job: LocalJob) -> Floats:
    """Weights of the training rows of every variant in use, (V, n).

    Raises:
        JobStateMissingError: None were asked for.
    """
    variants = job.memory(ReweightState).in_use
    if variants is None:
        raise JobStateMissingError("this client's rows are not weighed yet; reweight.use_ratios comes first")
    return np.stack([ratios_of(job, variant).weights for variant in variants])


def own_prior(job: LocalJob, request: ClassPriorRequest | LabelRatiosRequest) -> LabelShift:
    """Shares of the classes among this client's test points.

    Raises:
        DataError: The task is a regression, or there are no test points.
    """
    if not TASKS[job.task].has_classes:
        raise DataError('a regression has no classes whose shares could shift; use method.ratios.source = "matching"')
    if request.source is PriorSource.LABELS:
        if job.num_test_rows == 0:
            raise DataError("there are no test rows to count classes of; give the data set a test partition")
        return LabelShift(priors(_counts(job, job.targets_test)), 1.0, "")
    counts = job.memo(("black box", request.seed), lambda: _black_box(job, request.seed))
    if counts is None:
        return LabelShift(priors(_counts(job, job.targets_train)), 0.0, f"fewer than {2 * _FOLDS} training rows")
    return black_box_shift(*counts, all_or_nothing=request.all_or_nothing)


def refuse_few_of_a_class(job: LocalJob) -> None:
    """Refuse to count test rows by class where there are a few of one.

    Raises:
        PolicyError: Names the keys of both files that help.
    """
    counts, least = _counts(job, job.targets_test), job.file.policy.min_rows
    if ((counts > 0) & (counts < least)).any():
        raise PolicyError(
            "shares of the classes would tell about fewer test rows of a class than policy.min_rows; set "
            'method.ratios.source = "black-box", give more test rows, or let this client\'s administrator lower '
            "policy.min_rows"
        )


def _black_box(job: LocalJob, seed: int) -> tuple[Floats, Floats] | None:
    """Cross-fitted ridge on random features of the standardised columns; predictions of a fold by the others.

    Returns:
        Counts of held-out rows, predicted class by class, (C, C), and of predictions on test points, (C,); None where
        rows are too few for a classifier.
    """
    labels, points = _classes(job, job.targets_train), test_points(job, PLAIN_COLUMNS)
    num = len(_counts(job, job.targets_train))
    if len(points) == 0:
        raise DataError("there are no test points; give the data set a test or an unlabelled partition")
    if job.num_rows < 2 * _FOLDS:
        return None
    distances = rng.stream(seed, "reweight", "distances", job.client)
    scale = max(median_distance(job.x_train, distances).value, 1e-12)
    spec = make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, job.x_train.shape[1], scale, _FREQUENCIES, seed)
    feature_map = FeatureMap(spec)
    ones = torch.ones(len(points) + job.num_rows, 1, dtype=torch.float64)
    z = torch.cat([ones, feature_map(torch.tensor(np.vstack([job.x_train, points])))], dim=1)
    z, zt = z[: job.num_rows], z[job.num_rows :]
    y = one_hot(torch.tensor(labels), num)
    order = rng.stream(seed, "reweight", "folds", job.client).permutation(job.num_rows)
    fold = deal(order, job.unit, _FOLDS)
    confusion, predicted = np.zeros((num, num)), np.zeros(num)
    for k in range(_FOLDS):
        inside, outside = torch.tensor(fold != k), torch.tensor(fold == k)
        weights = LocalRidge(z[inside], y[inside], _RIDGE).solve()
        guesses = (z[outside] @ weights).argmax(dim=1).numpy()
        np.add.at(confusion, (guesses, labels[fold == k]), 1.0)
        # Test points by the same models as the held-out rows, so that both have the same error rates.
        predicted += np.bincount((zt @ weights).argmax(dim=1).numpy(), minlength=num)
    return confusion, predicted


def _lacking(job: LocalJob, optional: bool, err: DataError) -> RatiosKept:
    """Say why there are no ratios, where the job can do without; else fail.

    Raises:
        DataError: It cannot.
    """
    if not optional:
        raise err
    return RatiosKept(num_rows=job.num_rows, lacking=str(err)[:512])


def _classes(job: LocalJob, targets: Array) -> Array:
    """Class of each row, int64 (n,)."""
    return np.asarray(targets, np.int64)


def _counts(job: LocalJob, targets: Array) -> Array:
    return np.bincount(_classes(job, targets), minlength=len(job.classes))


def _sample_size(job: LocalJob, num_points: int) -> int:
    return min(num_points, job.file.policy.max_sample_points, len(test_rows(job)))


STEPS: dict[type[Any], Any] = {
    LookUpRatiosRequest: look_up,
    ShareSampleRequest: share_sample,
    MatchRatiosRequest: match_ratios,
    ClassPriorRequest: class_prior,
    LabelRatiosRequest: fit_label_ratios,
    UseRatiosRequest: use_ratios,
}
"""Steps of this module, by the request that they answer."""
