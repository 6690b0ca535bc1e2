"""`kernfed.section`: every key of a job file or a client file acts or is refused, in each variant of each method."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from kernfed.errors import ConfigError
from kernfed.jobs.client_file import PartitionFile, StreamFile
from kernfed.jobs.client_models import BackboneSection, NetworkModelSection
from kernfed.jobs.job_file import parse_job
from kernfed.jobs.job_sections import FeaturesSection
from kernfed.methods.registry import METHODS
from kernfed.section import ACCEPTED, Above, Below, Given, Section, scopes_of
from kernfed_testing.methods.installed import cases


def tables_in(sections: Iterable[type[Section]]) -> list[type[Section]]:
    """Tables within these tables, each once."""
    found = {
        part.__name__: part
        for section in sections
        for field in section.model_fields.values()
        for part in (field.annotation, *get_args(field.annotation))
        if isinstance(part, type) and issubclass(part, Section)
    }
    return list(found.values())


SETTINGS: tuple[type[Section], ...] = tuple(method.settings for method in METHODS.values())
TABLES = (*tables_in(SETTINGS), FeaturesSection, PartitionFile, StreamFile, NetworkModelSection, BackboneSection)
NEEDED: Mapping[str, Mapping[str, Any]] = {
    "DistillSettings": {"public": "p.csv"},
    "PartitionFile": {"path": "a"},
    "StreamFile": {"path": "a"},
    "BackboneSection": {"source": "torch:a.B"},
    "NetworkModelSection": {"kind": "mlp"},
    "NoiseSection": {"epsilon": 1.0, "delta": 1e-5},
}
OTHERS: Mapping[str, tuple[Any, ...]] = {
    "alpha": (0.3,),
    "backbone": ("net",),
    "class_name": ("a.B",),
    "client_fraction": (0.5, 1.0),
    "delta": (1e-6,),
    "deviation": ([0.2],),
    "embedding_kernel": ("linear", "laplace"),
    "image": ([1, 28, 28],),
    "image_shape": ([28, 28],),
    "kernels_per_round": (3,),
    "lengthscales": ([1.0], [1.0, 2.0]),
    "mean": ([0.5],),
    "memory_exponent": (0.0, 0.6),
    "noise": ({"epsilon": 1.0, "delta": 1e-5},),
    "path": ("a.csv", "a.npz", "a.parquet"),
    "source": ("torch:a.B", "timm:x", "sentence-transformers:x"),
    "target_range": ([0.0, 1.0],),
    "validation_fraction": (0.0, 0.1),
    "weights": ("w.safetensors",),
}
"""Legal values of keys whose type does not tell them."""


def values_of(name: str, field: FieldInfo) -> tuple[Any, ...]:
    """Legal values of a key: all where they are few."""
    found = [value for value in _of_type(field.annotation) if value is not None]
    return (*dict.fromkeys(found), *OTHERS.get(name, ())) or _numbers(field)


def _of_type(annotation: Any) -> Iterator[Any]:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        yield from args
    elif origin in (Union, UnionType, Annotated):
        for arg in args if origin is not Annotated else args[:1]:
            yield from _of_type(arg)
    elif isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        yield from (member.value for member in annotation)
    elif annotation is bool:
        yield from (True, False)


def _numbers(field: FieldInfo) -> tuple[Any, ...]:
    types = [a for a in (field.annotation, *get_args(field.annotation)) if a is not NoneType]
    if int in types or float in types:
        return (2, 9, 0.3) if float in types else (2, 9)
    if str in types:
        return ("a", "ü")
    return ([2], [2, 3, 4]) if any(get_origin(t) is list for t in types) else ({"a": "b"},)


def switches_of(table: type[Section]) -> dict[str, tuple[Any, ...]]:
    """Keys of the table that decide where others act, each with values to try; None: unset."""
    named: dict[str, list[Any]] = {}
    for field in table.model_fields.values():
        for scope in scopes_of(field.metadata):
            for key, values in scope.conditions:
                if "." not in key:
                    named.setdefault(key, []).extend(v for v in values if not isinstance(v, Above | Below | Given))
    found: dict[str, tuple[Any, ...]] = {}
    for key, listed in named.items():
        field = table.model_fields[key]
        tried = [*values_of(key, field), *(v for v in listed if v is not None), *[None] * (field.default is None)]
        found[key] = tuple(v for i, v in enumerate(tried) if v not in tried[:i])
    return found


def variants_of(table: type[Section]) -> Iterator[dict[str, Any]]:
    """Settings of the table, one for every combination of its switches that is legal."""
    needed = {**NEEDED.get(table.__name__, {})}
    if table in SETTINGS:
        needed["name"] = get_args(table.model_fields["name"].annotation)[0]
    switches: dict[str, tuple[Any, ...]] = switches_of(table)
    seen: list[dict[str, Any]] = []
    for values in itertools.product(*switches.values()):
        chosen = {**needed, **{k: v for k, v in zip(switches, values, strict=True) if v is not None}}
        try:
            idle = table.model_validate(chosen, context={ACCEPTED: True}).idle_keys()
            chosen = {k: v for k, v in chosen.items() if k not in idle}
            table.model_validate(chosen)
        except ValidationError:
            continue
        if chosen not in seen:
            seen.append(chosen)
            yield chosen


def made(table: type[Section], settings: Mapping[str, Any]) -> Section | str:
    """The table with these settings, or why they are refused."""
    try:
        return table.model_validate(settings)
    except ValidationError as err:
        return str(err)


@pytest.mark.slow
@pytest.mark.parametrize("table", [*SETTINGS, *TABLES], ids=lambda table: table.__name__)
def test_a_key_changes_the_plan_or_is_refused(table: type[Section]) -> None:
    """In every variant, a key set to another legal value is in the plan with that value, or is refused by name."""
    accepted = 0
    for variant in variants_of(table):
        before = table.model_validate(variant)
        idle, plan = before.idle_keys(), before.plan()
        assert not idle.keys() & plan.keys()
        for name, field in table.model_fields.items():
            for value in values_of(name, field):
                after = made(table, {**variant, name: value})
                if isinstance(after, str):
                    assert name not in idle or name in after
                    continue
                assert name not in after.idle_keys()
                planned = after.plan()
                assert name in planned
                assert (planned != plan) == (getattr(after, name) != getattr(before, name))
                accepted += 1
    assert accepted >= len(table.model_fields) - 1


DATA = '[data]\ntask = "{task}"\ntarget = "y"\nfeatures = ["x"]\n'


def job_text(method: str, *, top: str = "", task: str = "regression", more: str = "") -> str:
    """A job file; `more` follows the section [data]."""
    return f'name = "a"\n{top}\n[method]\n{method}\n{DATA.format(task=task)}{more}'


@pytest.mark.parametrize(
    ("method", "words"),
    cases(
        [
            ('name = "personalise"\n[method.network]\nkind = "mlp"', 'network: belongs to trainer = "fedavg"'),
            (
                'name = "personalise"\nlearning_rate = 0.1',
                'learning_rate: belongs to trainer = "fedavg": set that, or remove',
            ),
            ('name = "personalise"\ntolerance = 0.1', 'tolerance: belongs to trainer = "newton"'),
            (
                'name = "reweight"\nlearning_rate = 0.1\nlocal_steps = 2',
                'learning_rate, local_steps: belong to trainer = "fedavg"',
            ),
            ('name = "reweight"\n[method.network]\nkind = "mlp"', 'network: belongs to trainer = "adam" or "fedavg"'),
            ('name = "reweight"\ntrainer = "fedavg"\ntolerance = 0.1', 'tolerance: belongs to trainer = "newton"'),
            (
                'name = "reweight"\nnum_points = 9\n[method.ratios]\nsource = "labels"',
                'num_points: belongs to ratios.source = "matching", scope = "all" or "target"',
            ),
            (
                'name = "newton"\nloss = "squared"\nstep_size = 0.1\nline_search = true',
                'step_size, line_search: belong to loss = "cross-entropy" or "squared", step = "paper"',
            ),
            (
                'name = "newton"\nloss = "squared"\nsolver = "exact"\nrank = 3',
                'rank: belongs to loss = "cross-entropy" or "squared", solver = "lanczos"',
            ),
            ('name = "online"\nlearning_rate = 0.1', 'learning_rate: belongs to rates = "paper"'),
            ('name = "online"\nlengthscales = [1.0, 2.0]\nnum_kernels = 3', "num_kernels: belongs to no lengthscales"),
            ('name = "distill"\npublic = "p.csv"\nuploads = "stale"', "uploads: belongs to client_fraction < 1"),
        ]
    ),
)
def test_a_key_of_another_variant_is_refused_with_its_place(method: str, words: str) -> None:
    """The message names the keys, what they belong to, and the remedy; a job accepted before is read as it was."""
    text = job_text(method)
    with pytest.raises(ConfigError) as caught:
        parse_job(text)
    assert words in str(caught.value)
    assert parse_job(text, accepted=True).method.name in text


@pytest.mark.parametrize(
    ("text", "words"),
    cases(
        [
            (job_text('name = "local"', top="evaluate_every = 2"), "measures its models once; remove evaluate_every"),
            (job_text('name = "personalise"', top="evaluate_every = 2"), "once, at the end; remove evaluate_every"),
            (job_text('name = "online"', top="evaluate_every = 2"), "metrics_every says; remove evaluate_every"),
            (job_text('name = "ofskl"', more="test_fraction = 0.1"), "remove data.test_fraction"),
            (job_text('name = "ofskl"\ntarget_range = [0.0, 1.0]', task="binary"), "remove method.target_range"),
            (job_text('name = "ofskl"', more="[features]\nintercept = false"), "remove the [features] section"),
            (
                job_text('name = "reweight"\ntrainer = "adam"', more="[features]\nintercept = false"),
                "trains a network on the columns, without a feature map; remove the [features] section",
            ),
            (job_text('name = "probe"'), "touches no data; remove the [data] section"),
            ('name = "a"\nseed = 3\n[method]\nname = "probe"', "method probe draws nothing; remove seed"),
            (job_text('name = "local"', more='[features]\nkernel = "linear"\nseed = 1'), "seed: belongs to kernel"),
        ]
    ),
)
def test_a_key_that_the_method_does_not_use_is_refused(text: str, words: str) -> None:
    """The message says what the method does instead; the plan of a job accepted before leaves the key out."""
    with pytest.raises(ConfigError) as caught:
        parse_job(text)
    assert words in str(caught.value)
    key = words.rpartition(".")[2].split()[-1] if "remove" in words and "section" not in words else ""
    assert key not in parse_job(text, accepted=True).plan()
