"""The start of every method on data: check the data, agree on classes, scales and features, centre.

All of it is deterministic. What comes of it is fixed for the job's life: see `kernfed_server.jobs.start.agreement`.

What leaves a client: row counts, class names and counts, per-column means and deviations, the median distance between
rows for the median heuristic (`summary`), and the mean of features and targets where the model has an
intercept (`mean_embedding`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from kernfed import rng
from kernfed.arrays import Array
from kernfed.features.kernels import EXACT_KERNELS
from kernfed.features.law import full_name
from kernfed.features.spec import FeatureForm, FeatureSpec, fingerprint, make_spec
from kernfed.federation.cohort import Cohort
from kernfed.federation.events import RoundMetrics
from kernfed.federation.messages.data import (
    DataDescription,
    DataSchema,
    DescribeDataRequest,
    MeanEmbeddingRequest,
    Standardised,
)
from kernfed.jobs.job_file import JobFile, data_schema, lengthscale, lengthscale_key
from kernfed.maths.points.landmarks import landmark_root
from kernfed.maths.statistics import agree_lengthscale
from kernfed.maths.tasks import TASKS
from kernfed.methods.base import COLUMNS
from kernfed.methods.shared_settings import AUTO
from kernfed.wording import listed
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.agreement import Agreement, Earlier
from kernfed_server.jobs.start.choosing import choose_lengthscale
from kernfed_server.jobs.start.classes import by_rows, refuse_unseen, unite_classes, unseen_classes
from kernfed_server.jobs.start.descriptions import LaterDescription, agree_backbone, check_description, digest
from kernfed_server.jobs.start.gate import Gate
from kernfed_server.jobs.start.scales import (
    APART_WORDS,
    agree_scales,
    check_embedding,
    far_targets,
    pooled_mean,
    target_deviation,
)
from kernfed_server.jobs.start.taking import (
    asked_schema,
    centre_request,
    check_fingerprint,
    describe_request,
    map_request,
    standardise_request,
)
from kernfed_server.jobs.start.units import note_units, note_units_beside, thousandfold

_MOST_TOLD = 8
_MORE = " and {left} more"
LEAST_WITHIN = 0.1
"""Least part of the lengthscale that a column gets: one that is constant at every client would get none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a method begins with before round 1."""

    schema: DataSchema
    agreed: Agreement
    """With zeros for the means that nothing is centred by."""
    num_outputs: int
    """Outputs C."""
    baseline: RoundMetrics = field(default_factory=RoundMetrics)
    """Every client's own ridge model, measured on its own test rows before round 1."""
    strict: bool = True
    """Whether every client must pass what comes before round 1, else the job is refused."""
    intercept: bool = True
    """Whether features and targets are centred by the pooled means."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Content of each file that the job names."""
    job: JobFile | None = None
    """The job, for what it leaves; None where the method needs no features."""
    local_shared: bool = False
    """Whether clients also measure a model of their own rows with what all agreed on."""
    own_ridge: Mapping[str, float] = field(default_factory=dict)
    """Ridge of each client's model alone; empty: that of the job."""
    choose_ridge: bool = False
    """Whether each client chooses the ridge of its model alone by rows that it keeps apart, from that one on."""

    @property
    def num_features(self) -> int:
        """Features M."""
        return self.agreed.spec.num_features

    @property
    def secure(self) -> bool:
        """Whether sums over clients are secure sums."""
        return self.job is not None and self.job.privacy.secure

    def centred_by(self, feature_mean: Array, target_mean: Array) -> Setup:
        """The same with other means, (M,) and (C,)."""
        return replace(self, agreed=replace(self.agreed, feature_mean=feature_mean, target_mean=target_mean))


def setup_of(job: JobFile, agreement: Agreement, run: Run, earlier: Earlier | None = None) -> Setup:
    """The agreement as a method uses it.

    Args:
        job: As its clients are prepared for it.
        agreement: Of its clients.
        run: Its run.
        earlier: The other job whose clients these join, if any.
    """
    schema, strict = asked_schema(job, earlier), job.cohort.preflight == "all"
    outputs = TASKS[schema.task].num_outputs(agreement.classes)
    setup = Setup(schema=schema, agreed=agreement, num_outputs=outputs, strict=strict)
    if not agreement.fingerprint:
        return setup.centred_by(np.zeros(setup.num_features), np.zeros(outputs))
    return replace(setup, intercept=job.features.intercept, local_shared=job.local_shared, job=job)


async def prepare(
    job: JobFile,
    cohort: Cohort,
    run: Run,
    *,
    map_features: bool = True,
    feature_copies: int = 0,
    earlier: Earlier | None = None,
    searched: bool | None = False,
) -> Agreement:
    """Check every client's data and agree on all that the method needs before round 1.

    A client that fails a step stops the job with `cohort.preflight = "all"`. With "quorum" it is left out of the job,
    which is noted.

    Args:
        job: What to run.
        cohort: On whom.
        run: Where notes go.
        map_features: Whether the method uses the feature map; without it, preparation ends with the agreed scales and
            lengthscale, and the agreement has no features.
        feature_copies: Matrices of all training rows' features that the method keeps at a client, which must fit there.
        earlier: What the clients of another job agreed on, which these take over; None: they agree among themselves.
        searched: Whether a ridge that the settings leave open can be chosen by rows kept apart; None: nor is a
            lengthscale chosen for all.

    Raises:
        JobError: A client's data or policy do not allow the job; one line per client.
        QuorumNotMetError: Fewer clients than the quorum are left.
        DataError: The clients' classes do not fit the task.
    """
    schema = asked_schema(job, earlier)
    data = job.data
    assert data is not None  # noqa: S101  # data_schema refuses a job without
    gate = Gate(cohort, run, strict=job.cohort.preflight == "all")

    later = LaterDescription(schema, cohort, run)
    described = await gate.ask(
        describe_request(job, schema),
        check=lambda _, description: check_description(schema, description),
        later=later,
    )
    gate.leave_out(DescribeDataRequest.step, len(described), described, thousandfold(schema, described))
    num_rows = {client: d.num_rows for client, d in described.items()}
    cohort.register_rows(num_rows, {client: d.num_test_rows for client, d in described.items()})
    _note_left_out(schema, described, run)
    if schema.validation_fraction:
        run.note("metrics are of validation rows, as data.validation_fraction says; test rows are not used")
    if few := [client for client, d in described.items() if d.few_test_rows]:
        run.note(
            f"{listed(few)}: fewer test rows than policy.min_rows there, so nothing is measured; a larger "
            "data.test_fraction, a test partition of more rows, or a lower policy.min_rows gives metrics"
        )
    if rare := [client for client, d in described.items() if d.rare_classes_left_out]:
        run.note(
            f"{listed(rare)}: rows of classes with fewer training rows there than policy.min_rows are left out, unless "
            "policy.rare_classes allows them"
        )
    if sparse := {client: d.sparse_columns for client, d in described.items() if d.sparse_columns}:
        where = [f"{client} ({listed(names, more=' and {left} more columns')})" for client, names in sparse.items()]
        run.note(
            f"fewer rows than policy.min_rows, or very few test rows, differ from the others, or stand far out, in "
            f"some columns of {listed(where, more=_MORE)}; they are taken as the others; leave such columns out, or an "
            "administrator can allow them with policy.sparse_columns"
        )
    _note_large_batches(job, described, run)
    if anew := [client for client, d in described.items() if d.dealt_anew]:
        run.note(
            f"{listed(anew)}: other rows are held out than in an earlier job on these columns, though most rows "
            "there are the same, so metrics of the two are not of the same rows; a column of the file may change with "
            "each export: let its site leave it out, or give a test partition"
        )
    taken = earlier.agreement if earlier else None
    backbones = {client: d.backbone for client, d in described.items()}
    if earlier is not None:
        backbones[earlier.origin] = earlier.agreement.backbone
    later.backbone = agree_backbone(schema, backbones)
    later.before = {client: digest(d) for client, d in described.items()}
    classes = unite_classes(schema, {client: d.classes for client, d in described.items()})
    class_order = by_rows(classes, described) if run.rules >= 2 else ()  # see `RULES`
    within: Array | None = None
    if earlier is None:
        _judge_unseen(job, classes, described, run)
        note_units(schema, described, run)
        scales = agree_scales(data, described, cohort.counted(num_rows), run)
        mean, deviation, bounds = scales.mean, scales.deviation, scales.bounds
        within = scales.within() if lengthscale(job) == COLUMNS else None
        if map_features and job.shifts_columns and run.rules >= 1:
            mean = pooled_mean(described, cohort.counted(num_rows))
    else:
        note_units_beside(schema, described, earlier.column_mean, earlier.column_deviation, earlier.origin, run)
        mean, deviation, bounds = earlier.agreement.mean, earlier.agreement.deviation, earlier.agreement.bounds

    standardised = await gate.ask(standardise_request(job, classes, mean, deviation, bounds))
    if tied := sorted(client for client, s in standardised.items() if s.ties):
        run.note(
            f"more than half of the distances between rows are 0 at {listed(tied)}, for rows repeat; the lengthscale "
            "goes by the others"
        )
    counted = cohort.counted({client: float(s.num_rows) for client, s in standardised.items()})
    agreement = Agreement(
        classes=classes,
        mean=mean,
        deviation=deviation,
        bounds=bounds,
        spec=agree_features(job, standardised, counted, run, within) if taken is None else taken.spec,
        class_order=class_order,
        backbone=later.backbone,
        columns=schema.columns,
        ridge=None if taken is None else taken.ridge,
        target_deviation=target_deviation(described) if taken is None else taken.target_deviation,
        num_rows=num_rows,
        target_moments={c: (d.target_mean, d.target_deviation) for c, d in described.items() if d.target_deviation > 0},
        descriptions=later.before,
    )
    if map_features:
        if taken is None and searched is not None and job.features.lengthscale == AUTO:
            agreement = await choose_lengthscale(job, agreement, cohort, run, searched=searched)
        await _tell_rank(agreement.spec, run)
        agreement = await _map_features(job, agreement, cohort, gate, run, described, taken, feature_copies)
    return replace(agreement, num_rows={client: num_rows[client] for client in cohort.clients})


async def _map_features(
    job: JobFile,
    agreement: Agreement,
    cohort: Cohort,
    gate: Gate,
    run: Run,
    described: Mapping[str, DataDescription],
    taken: Agreement | None,
    copies: int,
) -> Agreement:
    """Have the clients compute their features, and centre them where the model has an intercept."""
    assert job.data is not None  # noqa: S101  # the caller prepared them
    own = await asyncio.to_thread(fingerprint, agreement.spec)
    agreement = replace(agreement, fingerprint=own)
    request = map_request(job, agreement, copies)
    found = await gate.ask(request, check=lambda client, mapped: check_fingerprint(client, mapped.fingerprint, own))
    if few := [client for client, mapped in found.items() if mapped.sparse_products]:
        run.note(
            f"{listed(few)}: some products of two columns are not 0 in fewer rows there than policy.min_rows; they are "
            "taken as 0, unless policy.sparse_columns allows them"
        )
    num_features, num_outputs = request.features.num_features, request.num_outputs
    if not job.features.intercept:
        return replace(agreement, feature_mean=np.zeros(num_features), target_mean=np.zeros(num_outputs))
    if taken is None:
        means = MeanEmbeddingRequest(num_features=num_features, num_outputs=num_outputs)
        check = partial(check_embedding, agreement.spec, data_schema(job).task, described)
        embedded = await gate.ask(means, check)
        for client, without in far_targets(job.data, described, embedded).items():
            embedded[client] = without
            cohort.discount(client, means.step)
            run.note(f"{client} has no say in the mean of {job.data.target}{APART_WORDS}")
        pooled = cohort.weighted(embedded, {client: e.num_rows for client, e in embedded.items()})
        feature_mean, target_mean = pooled.feature_mean, pooled.target_mean
    else:
        feature_mean, target_mean = taken.feature_mean, taken.target_mean
    agreement = replace(agreement, feature_mean=feature_mean, target_mean=target_mean)
    await gate.ask(centre_request(agreement))
    return agreement


def _judge_unseen(job: JobFile, classes: tuple[str, ...], described: Mapping[str, DataDescription], run: Run) -> None:
    """Refuse classes without a training row before the job's first round, or tell of them.

    A job that goes on was accepted before; on streams rows of a class may come at any time.
    """
    data = job.data
    assert data is not None  # noqa: S101  # checked by the caller
    counts = {client: dict(zip(d.classes, d.class_counts, strict=True)) for client, d in described.items()}
    unseen = unseen_classes(classes, counts)
    if not unseen or "data.unseen_classes" in job.method.unused_keys(data.task.value):
        return
    if data.classes is not None and data.unseen_classes == "refuse" and not run.round_num:
        refuse_unseen(data_schema(job), unseen)
    run.note(f"no client has a training row of class {listed(unseen)}: models cannot predict it")


def _note_large_batches(job: JobFile, described: Mapping[str, DataDescription], run: Run) -> None:
    asked = job.method.step_rows
    if larger := {client: d.block_rows for client, d in described.items() if 0 < asked < d.block_rows}:
        where = [f"{client} ({num:,} rows)" for client, num in larger.items()]
        run.note(
            f"batches of method.batch_size = {asked} would hold a few rows that stand out in a column, or of a class, "
            "or alike in columns of few values, or would tell about few rows with the sets of rows of earlier jobs, at "
            f"{listed(where, more=_MORE)}; they are as large as it takes there for policy.min_rows of them. Leave out "
            "columns in which few rows differ, take the rows of an earlier job, or set method.batch_size to so many"
        )


def _note_left_out(schema: DataSchema, described: Mapping[str, DataDescription], run: Run) -> None:
    if dropped := [f"{client} {d.num_dropped_rows}" for client, d in described.items() if d.num_dropped_rows]:
        run.note(f"rows dropped for missing values, as data.missing says: {listed(dropped, more=_MORE)}")
    outside = [
        f"{client} {d.num_outside_rows} ({', '.join(f'{name} {n}' for name, n in columns)})"
        for client, d in described.items()
        if d.num_outside_rows
        for columns in [[(r.column, n) for r, n in zip(schema.ranges, d.outside_rows, strict=True) if n]]
    ]
    if outside:
        run.note(f"rows left out that lie outside of data.ranges: {listed(outside, more=_MORE)}")


def agree_features(
    job: JobFile,
    standardised: Mapping[str, Standardised],
    counted: Mapping[str, float],
    run: Run,
    within: Array | None = None,
) -> FeatureSpec:
    """The feature map, by the clients' median distances where the job leaves its lengthscale to them.

    Args:
        job: Of the clients.
        standardised: What they told of their distances.
        counted: Weight of each client's.
        run: For notes.
        within: Part of each column's deviation that lies within clients, (P,), where columns may have their own scales.
    """
    section = job.features
    seed = section.seed
    if seed is None:
        seed = rng.seed(job.seed, "features")
    scale = rule = lengthscale(job)
    if isinstance(scale, str):
        agreed = agree_lengthscale(
            [s.median_distance for s in standardised.values()], [counted[client] for client in standardised]
        )
        if section.kernel in EXACT_KERNELS:
            scale = 1.0
        else:
            scale = agreed.value
            run.note(f"lengthscale {scale:.6g}: the row-weighted median of the clients' median distances")
            if agreed.floored:
                run.note(f"the median distance between rows is (nearly) 0; give {lengthscale_key(job)} yourself")
            if rule == COLUMNS and within is not None:
                parts = np.maximum(within, LEAST_WITHIN)
                scale = [agreed.value * float(part) for part in parts]
                run.note(_told_parts(job.data.features if job.data else [], parts))
    assert job.data is not None  # noqa: S101  # checked by the caller
    law = full_name(section.law) if section.law else ""
    return make_spec(section.kernel, section.form, len(job.data.features), scale, section.num_frequencies, seed, law)


async def _tell_rank(spec: FeatureSpec, run: Run) -> None:
    """Note how many dimensions the landmarks of a Nyström map span."""
    if spec.form is not FeatureForm.NYSTROEM or not spec.num_frequencies:
        return
    rank = (await asyncio.to_thread(landmark_root, spec)).rank
    num = spec.num_frequencies
    if rank == num:
        run.note(f"{num} landmarks give {num} features")
        return
    run.note(
        f"{num} landmarks give {rank} {'feature' if rank == 1 else 'features'} that differ: to working precision the "
        "kernel tells no more of them apart at this lengthscale. Fewer landmarks do as well, or a smaller lengthscale "
        "makes more of them count"
    )


def _told_parts(names: Sequence[str], parts: Array) -> str:
    """The columns with the smallest parts, in words."""
    order = [int(j) for j in np.argsort(parts, kind="stable") if parts[j] < 1.0][:_MOST_TOLD]
    told = ", ".join(f"{names[j]} {parts[j]:.2g}" for j in order)
    return f"lengthscales of single columns, as parts of it, the smallest first: {told or 'all 1'}"
