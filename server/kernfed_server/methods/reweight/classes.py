"""Shares of the classes among the clients' test points: counted, or told by a classifier of all clients' rows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np

from kernfed.errors import InvalidReplyError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, make_spec
from kernfed.maths.statistics import agree_lengthscale
from kernfed.methods.reweight.label_shift import LabelShift
from kernfed.methods.reweight.messages import RatiosHeld
from kernfed.methods.reweight.mixture import NUM_FOLDS
from kernfed.methods.reweight.mixture_messages import Classified, ClassifyRequest, FoldSumsRequest
from kernfed.methods.reweight.pooled_classifier import FREQUENCIES, classes_of_tests, cross_fitted
from kernfed.methods.reweight.ratio_spec import PLAIN_COLUMNS
from kernfed_server.jobs.start.gate import Gate
from kernfed_server.methods.reweight.mixture import NO_AXES, checked


async def pooled_priors(
    gate: Gate,
    looked: Mapping[str, RatiosHeld],
    clients: Sequence[str],
    *,
    num_columns: int,
    num_classes: int,
    num_points: int,
    seed: int,
    all_or_nothing: bool,
) -> dict[str, LabelShift]:
    """Shares of the classes among each client's test points, by one classifier of all clients' rows.

    What leaves: sums of features over folds, with the classes (`sufficient_statistic`, `mean_embedding`), and counts of
    predictions (`summary`).

    Args:
        gate: Asks the clients.
        looked: With each client's median distance, and whether it shares sums.
        clients: All that take part; those that share no sums have the classifier of the others.
        num_columns: Columns of their rows.
        num_classes: Classes C.
        num_points: Test points of a client that count.
        seed: Of the features and the folds.
        all_or_nothing: See `black_box_shift`.
    """
    giving = [c for c in sorted(clients) if looked[c].shares_sums]
    scale = agree_lengthscale([looked[c].median_distance for c in giving], [looked[c].num_rows for c in giving]).value
    spec = make_spec(Kernel.GAUSSIAN, FeatureForm.COSINE, num_columns, scale, FREQUENCIES, seed)
    sums = FoldSumsRequest(
        features=PLAIN_COLUMNS,
        axes=NO_AXES,
        map=spec,
        num_folds=NUM_FOLDS,
        num_outputs=num_classes,
        num_points=num_points,
        seed=seed,
    )
    found = await gate.ask(sums, checked(spec), clients=giving, fresh=True)
    parts = [found[c] for c in sorted(found)]
    weights = await asyncio.to_thread(
        cross_fitted,
        sum((p.fold_rows.astype(np.float64) for p in parts), np.zeros(NUM_FOLDS)),
        sum((np.asarray(p.second_moments) for p in parts), np.zeros(1)),
        sum((np.asarray(p.target_moments) for p in parts), np.zeros((1, 1, 1))),
    )
    request = ClassifyRequest(
        features=PLAIN_COLUMNS,
        map=spec,
        num_folds=NUM_FOLDS,
        weights=weights,
        num_points=num_points,
        seed=seed,
    )
    told = await gate.ask(request, _check_counts, fresh=True)
    return classes_of_tests(
        {client: np.asarray(reply.confusion, np.float64) for client, reply in told.items()},
        {c: np.asarray(reply.predicted, np.float64) for c, reply in told.items() if reply.predicted.sum() > 0},
        all_or_nothing=all_or_nothing,
    )


def _check_counts(client: str, reply: Classified) -> None:
    if reply.predicted.dtype.kind not in "iu" or reply.confusion.dtype.kind not in "iu":
        raise InvalidReplyError(f"{client} tells of predictions in broken numbers")
