"""The job file: which method, on whose data, with which seed, quorum and deadlines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, StringConstraints, ValidationInfo, model_validator

from kernfed.columns.plan import MissingRule, feature_names
from kernfed.errors import ConfigError
from kernfed.features.spec import FeatureForm
from kernfed.federation.messages.data import ColumnRange, DataSchema
from kernfed.jobs.job_sections import CohortSection, DataSection, FeaturesSection, PrivacySection
from kernfed.jobs.toml_file import parse_toml, read_toml
from kernfed.methods.base import Begins, Lengthscale, Needs
from kernfed.methods.registry import METHODS, AnyMethod, method_of
from kernfed.methods.shared_settings import AUTO
from kernfed.section import ACCEPTED, Label, MethodSection, Section
from kernfed.secure_sums.terms import FEWEST

MAX_FILE_BYTES: Final = 1 << 30
"""Largest file that a job may name, once packed."""
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class FormerSection(Section):
    """A job that this one goes on from."""

    job_id: str = Field(min_length=1, max_length=128, description="Its id.")


class JobFile(Section):
    """A job, as submitted."""

    name: Label = Field(description="For people; need not be unique.")
    seed: int = Field(0, ge=0, lt=2**63, description="Every random draw of the job comes from it.")
    precision: Literal["float64", "float32"] = Field("float64", description="Float type on the wire.")
    evaluate_every: int = Field(1, ge=1, description="Rounds between evaluations at the clients.")
    local_shared: bool = Field(
        False,
        description="Measure beside `local`, each client's model or head without the others, also `local-shared`: of "
        "its own rows, with the scales and lengthscale of all clients.",
    )
    start_from: str = Field(
        "",
        max_length=1024,
        description="An earlier job to go on from: the folder of its artifacts, relative to the job file, or its id; "
        "empty: none.",
    )
    report: bool = Field(True, description="Whether to leave report.html, which takes a second or two.")
    method: AnyMethod
    cohort: CohortSection = CohortSection()
    data: DataSection | None = None
    features: FeaturesSection = FeaturesSection()
    privacy: PrivacySection = PrivacySection()
    files: dict[str, Sha256] = Field(
        {}, description="SHA-256 of the files that the job names; written by `kernfed job submit`."
    )

    former: FormerSection | None = Field(
        None, description="The job that `start_from` leads to; written by `kernfed job submit`."
    )

    def unused_keys(self) -> Mapping[str, str]:
        """Keys that do nothing with this job's method, dotted, each with what the method does instead."""
        found = {**_start_unused(self.method), **self.method.unused_keys(self.data.task if self.data else None)}
        if self.start_from:
            found |= {f"method.{key}": "begins where start_from says" for key in method_of(self.method).starts}
        if "features" in found or self.data is None:
            return found
        if method_of(self.method).unscaled(self.method):
            return {**found, "features.origin": "leaves the columns as they are"}
        if self.data.standardise:
            return {**found, "features.origin": "subtracts the columns' means as it standardises them"}
        return found

    @property
    def shifts_columns(self) -> bool:
        """Whether columns that are not standardised have their means subtracted all the same."""
        acts = "origin" not in self.features.idle_keys() and "features.origin" not in self.unused_keys()
        return acts and self.data is not None and self.features.origin == "mean"

    @property
    def float_bits(self) -> int:
        """Bits of a float on the wire."""
        return 64 if self.precision == "float64" else 32

    def plan(self) -> dict[str, Any]:
        """What the job asks for, as JSON values: the keys that act, set or by default, and no others."""
        told = super().plan()
        for key in self.unused_keys():
            table, _, name = key.rpartition(".")
            (told[table] if table else told).pop(name, None)
        if not self.privacy.secure:
            told.pop("privacy", None)
        if self.former is None:
            told.pop("former", None)  # submission writes it, no person leaves it out
        return told

    @model_validator(mode="before")
    @classmethod
    def _is_one_job(cls, value: object) -> object:
        if isinstance(value, dict) and "sweep" in value:
            raise ValueError(
                "[sweep] makes several jobs of this file, which `kernfed job sweep` and `kernfed-simulate` run; remove "
                "the table here"
            )
        return value

    @model_validator(mode="after")
    def _method_uses_its_keys(self, info: ValidationInfo) -> Self:
        if info.context and info.context.get(ACCEPTED):
            return self
        refused = []
        for key, reason in self.unused_keys().items():
            table, _, name = key.rpartition(".")
            section = getattr(self, table) if table else self
            if section is not None and name in section.model_fields_set:
                what = f"the [{key}] section" if isinstance(getattr(section, name), Section) else key
                refused.append(f"method {self.method.name} {reason}{_belongs(key)}; remove {what}")
        if refused:
            raise ValueError("\n".join(refused))
        return self

    @model_validator(mode="after")
    def _may_scale(self, info: ValidationInfo) -> Self:
        reason = method_of(self.method).unscaled(self.method)
        accepted = bool(info.context and info.context.get(ACCEPTED))
        landmarks = "features" not in self.unused_keys() and self.features.form is FeatureForm.NYSTROEM
        if landmarks and self.data is not None and not self.data.standardise:
            raise ValueError(
                'features.form is "nystroem", whose landmarks stand for standardised rows, but data.standardise is '
                'false; remove that key, or use form = "sine-cosine"'
            )
        if reason and self.data is not None and self.data.standardise and not accepted:
            raise ValueError(f"data.standardise is true, but {reason}; set data.standardise = false")
        return self

    @model_validator(mode="after")
    def _fits(self) -> Self:
        method = method_of(self.method)
        if self.data is None and method.needs(self.method) is not Needs.NOTHING:
            raise ValueError(f"method {self.method.name} needs a [data] section with task, target and features")
        method.check(self.method, self.data.task if self.data else None)
        for key, column in method.columns(self.method).items():
            if column and self.data is not None and column not in self.data.features:
                raise ValueError(f"method.{key} names column {column!r}, which data.features lacks; add it there")
        strange = sorted(set(self.files) - set(named_files(self)))
        if strange:
            raise ValueError(f"[files] lists {strange[0]!r}, which no other key names; remove it")
        if self.former is not None and not self.start_from:
            raise ValueError("[former] says which job start_from leads to, and there is no start_from; remove it")
        if self.privacy.secure and (reason := self._seen()):
            raise ValueError(f'privacy.sums is "secure", but {reason}; remove that key, or change what it says')
        scale = lengthscale(self)
        if self.data is not None and isinstance(scale, list) and len(names := feature_names(self.data.plans)) > 0:
            raise ValueError(
                f"{lengthscale_key(self)} has {len(scale)} numbers, but columns with types become feature columns of "
                f"which the clients agree ({names[0]}, ...); give one number, or a rule"
            )
        if self.data is not None and isinstance(scale, list) and len(scale) != len(self.data.features):
            raise ValueError(
                f"{lengthscale_key(self)} has {len(scale)} numbers for {len(self.data.features)} feature columns; "
                "give one number, or one per column in their order"
            )
        return self

    def _seen(self) -> str:
        """Why the job can have no secure sums; empty: it can."""
        if reason := method_of(self.method).seen(self.method):
            return f"method {self.method.name} {reason}"
        if lengthscale(self) == AUTO:
            return f'{lengthscale_key(self)} = "auto" chooses by sums over folds of each client, sent in the clear'
        if self.cohort.clients is not None and len(self.cohort.clients) < FEWEST:
            return f"cohort.clients names {len(self.cohort.clients)}: of two clients, each learns the other's term"
        return ""


def data_schema(job: JobFile) -> DataSchema:
    """The job's demands on every client's data set, as the coordinator sends them and `check-data` uses them.

    Raises:
        ConfigError: The job's method touches no data.
    """
    if job.data is None:
        raise ConfigError(f"method {job.method.name} touches no data, so there is nothing to check")
    method = method_of(job.method)
    on_stream = method.reads_stream  # every row is of the stream
    none_apart = on_stream or method.all_rows
    test_fraction = 0.0 if none_apart else job.data.test_fraction
    validation_fraction = 0.0 if none_apart else job.data.validation_fraction
    plans, missing = job.data.plans, job.data.missing
    return DataSchema(
        task=job.data.task,
        target=job.data.target,
        features=feature_names(plans) if plans else tuple(job.data.features),
        classes=tuple(job.data.classes or ()),
        missing=missing if missing is MissingRule.DROP_ROWS else MissingRule.REFUSE,  # of the target, where plans are
        ranges=tuple(
            ColumnRange(column=name, low=low, high=high) for name, (low, high) in sorted(job.data.ranges.items())
        ),
        test_fraction=test_fraction,
        seed=job.seed,
        backbone=job.data.backbone or "",
        clipped=job.data.standardise and job.data.scales == "clipped" and not none_apart,
        copies_together=job.data.split != "row-by-row",
        by_content=job.data.split in ("by-record", "by-content") and test_fraction + validation_fraction > 0,
        on_stream=on_stream,
        by_record=job.data.split == "by-record",
        columns=plans,
        validation_fraction=validation_fraction,
    )


def named_files(job: JobFile) -> tuple[str, ...]:
    """Files that a job names beside itself, as written there."""
    return (*method_of(job.method).files(job.method), *((job.start_from,) if job.start_from else ()))


def _start_unused(method: MethodSection) -> dict[str, str]:
    if method_of(method).begins is not Begins.NOTHING:
        return {}
    return {"start_from": "computes its solution anew"}


def _belongs(key: str) -> str:
    """To which methods a key belongs that some begin by, for a refusal; asked for then alone, for it loads them all."""
    if key != "start_from":
        return ""
    others = sorted(name for name, known in METHODS.items() if known.begins is not Begins.NOTHING)
    return f", and {key} belongs to {', '.join(others)}"


def lengthscale(job: JobFile) -> Lengthscale:
    """Of the exact kernel where the method has one, else of the feature map."""
    exact = method_of(job.method).lengthscale
    return job.features.lengthscale if exact is None else exact(job.method)


def lengthscale_key(job: JobFile) -> str:
    """The key that `lengthscale` reads."""
    return "features.lengthscale" if method_of(job.method).lengthscale is None else "method.lengthscale"


def parse_job(text: str, source: str = "job file", *, accepted: bool = False) -> JobFile:
    """Parse the text of a job file.

    Args:
        text: Its content.
        source: Its name, for messages.
        accepted: Whether the job was accepted before: keys without effect, which earlier versions took, are then
            ignored and not refused.

    Raises:
        ConfigError: Names `source`, key and remedy.
    """
    return parse_toml(JobFile, text, source, accepted=accepted)


def load_job(path: Path) -> tuple[JobFile, str]:
    """Read a job file; returns it parsed, and its text, which is what is submitted."""
    text = read_toml(path)
    return parse_job(text, str(path)), text
