"""`kernfed-client check-data`: the check that a job's first step makes, offline, with numbers that stay at the site."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernfed.columns.agree import open_plans, settle
from kernfed.errors import ConfigError, DataError, IdentityError, PolicyError
from kernfed.federation.messages.data import DataSchema, DescribeDataRequest
from kernfed.jobs.client_file import ClientFile, load_client_file
from kernfed.jobs.job_file import JobFile, data_schema
from kernfed.jobs.plugins_used import asked_of_clients, check_installed, refuse_others
from kernfed.jobs.sweeps.section import load_swept
from kernfed.methods.registry import method_of
from kernfed.pki.folder import read_about
from kernfed.wording import listed
from kernfed_client.approval import job_plan
from kernfed_client.approval.job_plan import JobPlan, plan_of
from kernfed_client.daemon.policy import Policy
from kernfed_client.data.finite_moments import finite_moments
from kernfed_client.data.guards.dealt_blocks import Dealing
from kernfed_client.data.guards.split import refuse_draws, refuse_few_groups
from kernfed_client.data.reading.found_columns import find_columns
from kernfed_client.data.reading.partitions import LocalData, load_local_data
from kernfed_client.data.site_notes import site_notes
from kernfed_client.foresight import foresee
from kernfed_client.streams.faults import MEANING
from kernfed_client.streams.sources import stream_of

_MAX_COLUMNS = 40
"""In the table for people."""
_MAX_STREAM_ROWS = 100_000
"""Of a stream, that are read to try it."""


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """A feature column (or numeric target) over the training rows."""

    name: str
    mean: float
    deviation: float
    min: float
    max: float


@dataclass(frozen=True, slots=True)
class DataReport:
    """Rows on which a client would train in a job."""

    job: str
    client: str
    dataset: str
    num_rows: int
    num_test_rows: int
    num_dropped_rows: int
    num_outside_rows: int
    groups: list[int] | None
    """Groups among the training and the test rows; None: the data set names none."""
    classes: dict[str, list[int]]
    """Training and test rows per class; empty for regression."""
    columns: list[ColumnSummary]
    refused: bool
    """Whether the policy here would refuse the job; a note says why."""
    notes: list[str]
    plan: JobPlan
    """What would leave."""


def check_data(job_path: Path, config_path: Path, name: str | None = None) -> DataReport:
    """Read the data that a job asks for, as the client would.

    Args:
        job_path: The job file.
        config_path: The client file.
        name: This client's name, which decides on the rows held out; unset: from the identity folder.

    Raises:
        ConfigError: A file is wrong.
        DataError: The data do not fit the job.
    """
    job, _, _ = load_swept(job_path)  # every combination of a sweep is on these rows
    check_installed(job)
    file, notes = load_client_file(config_path), list[str]()
    job = _in_columns(job, file, config_path.stem, notes)
    schema = data_schema(job)
    if name is None:
        try:
            name = read_about(file.identity).name
        except IdentityError:
            name = config_path.stem
            section = file.datasets.get(job.cohort.dataset)
            if section is not None and section.test is None and schema.test_fraction > 0 and not schema.by_content:
                notes.append(
                    f"not enrolled yet, so test rows are drawn as for a client named {name!r}; --name gives another"
                )
    dealing = None if file.policy.near_jobs == "allow" else Dealing(file.state, file.policy.min_rows)  # none is kept
    data = load_local_data(file, job.cohort.dataset, schema, name, dealing=dealing)
    finite_moments(data, schema, job.cohort.dataset)
    plan = plan_of(job, file.policy)
    refused, foreseen = _policy_notes(file, job, data, plan, name, dealing)
    notes += [*site_notes(data, schema), *foreseen]
    if file.policy.approve != "all":
        notes.append(
            f'policy.approve is "{file.policy.approve}": the job waits for approval here (`kernfed-client jobs`)'
        )
    notes += _stream_notes(file, job, schema, data.classes)
    return DataReport(
        job=job.name,
        client=name,
        dataset=job.cohort.dataset,
        num_rows=data.train.num_rows,
        num_test_rows=data.test.num_rows,
        num_dropped_rows=data.num_dropped_rows,
        num_outside_rows=data.num_outside_rows,
        groups=None if data.train.group is None else [data.train.num_groups, data.test.num_groups],
        classes=_class_counts(data),
        columns=_columns(data, [*schema.features, schema.target]),
        refused=refused,
        notes=notes,
        plan=plan,
    )


def _in_columns(job: JobFile, file: ClientFile, client: str, notes: list[str]) -> JobFile:
    """The job with the levels and means of this client, as if it were alone, and notes on its columns."""
    data, dataset = job.data, job.cohort.dataset
    if data is None or not data.plans:
        return job
    asked = open_plans(data.plans)
    agreed = settle(data.plans, {client: find_columns(file, dataset, asked)} if asked else {})
    told = [f"{plan.name}: {listed(plan.levels, more=', ...')}" for plan in agreed if plan.levels]
    if asked:
        names = listed([plan.name for plan in asked])
        notes.append(f"levels and means of {names} are agreed on by all clients; here they are those of this client")
    notes += [f"levels of {text}" for text in told]
    section = file.datasets.get(dataset)
    cells = {} if section is None else section.train.cells
    notes += [
        f"the job takes column {plan.name!r} in {plan.unit}, and the client file states no unit of it; state it in "
        f"`cells` of [datasets.{dataset}.train]"
        for plan in data.plans
        if plan.unit and (plan.name not in cells or cells[plan.name].unit is None)
    ]
    return job.model_copy(update={"data": data.agreed(agreed)})


def as_json(report: DataReport) -> dict[str, object]:
    """The report as JSON types."""
    return asdict(report)


def as_table(report: DataReport) -> RenderableType:
    """The report for people."""
    rows = Table.grid(padding=(0, 2))
    rows.add_row("training rows", f"{report.num_rows:,}")
    rows.add_row("test rows", f"{report.num_test_rows:,}")
    rows.add_row("dropped for missing values", f"{report.num_dropped_rows:,}")
    if report.groups is not None:
        rows.add_row("groups", "{:,} training, {:,} test".format(*report.groups))
    for name, (train, test) in report.classes.items():
        rows.add_row(Text(f"class {name}"), f"{train:,} training, {test:,} test")
    if report.num_outside_rows:
        rows.add_row("left out by data.ranges", f"{report.num_outside_rows:,}")
    columns = Table("column", "mean", "deviation", "min", "max", title="training rows (stays here)")
    left_out = max(len(report.columns) - _MAX_COLUMNS, 0)
    for c in [*report.columns[: _MAX_COLUMNS - 1], *report.columns[_MAX_COLUMNS - 1 + left_out :]]:
        columns.add_row(Text(c.name), *(f"{v:.6g}" for v in (c.mean, c.deviation, c.min, c.max)))
    fits = "fits" if not report.refused else "can be read, but the policy here would refuse"
    head = Text(f"{report.client}: data set {report.dataset} {fits} job {report.job}", style="bold")
    more = [Text(f"{left_out} columns before the last are not shown; --json has them all")] if left_out else []
    notes = [Text(f"note: {note}") for note in report.notes]
    return Group(head, rows, columns, *more, job_plan.as_table(report.plan), *notes)


def _class_counts(data: LocalData) -> dict[str, list[int]]:
    train, test = Counter(data.train.labels or ()), Counter(data.test.labels or ())
    return {name: [train[name], test[name]] for name in data.classes}


def _columns(data: LocalData, names: list[str]) -> list[ColumnSummary]:
    train = data.train
    columns = [*train.x.T] if train.y is None else [*train.x.T, train.y]
    return [
        ColumnSummary(name, float(c.mean()), float(c.std()), float(c.min()), float(c.max()))
        for name, c in zip(names, columns, strict=False)  # a class target has no moments
    ]


def _policy_notes(
    file: ClientFile, job: JobFile, data: LocalData, plan: JobPlan, client: str, dealing: Dealing | None
) -> tuple[bool, list[str]]:
    # Whether the job would be refused, and what to say.
    operators = file.policy.operators
    operator = operators[0] if operators else ""
    try:
        refuse_others(asked_of_clients(job), file.policy.plugins)
        Policy(file.policy).check(DescribeDataRequest, operator, job.method.name, data.train.num_rows)
        refuse_draws(file, job.cohort.dataset, data_schema(job))
        refuse_few_groups(file, job.cohort.dataset, data.train)
        foreseen = list(dict.fromkeys(foresee(file, job, data, client, dealing)))  # several steps may tell the same
    except PolicyError as err:
        return True, [f"the policy here would refuse this job: {err}"]
    steps: dict[str, list[str]] = {}
    for step in plan.steps:
        for kind in step.refused:
            steps.setdefault(f"policy.allow lacks {kind}", []).append(step.step)
        for kind in step.clear:
            steps.setdefault(f"policy.secure_sum.require lets no {kind} leave in the clear", []).append(step.step)
    refused = any(step.surely and (step.refused or step.clear) for step in plan.steps)
    return refused, foreseen + [
        f"{why}: this client refuses {listed(asked, 5, more=', ...')}, where the job asks it"
        for why, asked in steps.items()
    ]


def _stream_notes(file: ClientFile, job: JobFile, schema: DataSchema, classes: tuple[str, ...]) -> list[str]:
    """How much of the stream can be read, and why rows of it would be left out."""
    if not method_of(job.method).reads_stream:
        return []
    try:
        stream = stream_of(file, job.cohort.dataset, schema, classes)
        if stream is None:
            return ["no stream is named in the client file: the training rows are learned in their order"]
        chunk = stream.read({}, _MAX_STREAM_ROWS)
    except (ConfigError, DataError) as err:
        return [f"the stream cannot be read: {err}"]
    except PolicyError as err:
        return [f"this client would refuse the job: {err}"]
    num = len(chunk.rows)
    more = ", the first of them," if num == _MAX_STREAM_ROWS else ""
    found = f"the stream has {num:,} {'row' if num == 1 else 'rows'} that can be used{more} now"
    faults = [f"{n:,} left out: {MEANING[fault]}" for fault, n in chunk.faults.items()]
    return ["; ".join([found, *faults])]
