"""Clients that join an earlier job: models near those of a rerun, in one round that asks nobody else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError, DataError, JobError, KernfedError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm
from kernfed.federation.messages.base import Kind
from kernfed.jobs.job_file import JobFile
from kernfed.methods.personalise.kept import ARTIFACT, Facts, KeptShared, from_bytes, pack_folder
from kernfed_client.data.local_job import LocalJob
from kernfed_simulation.federation import Rows, from_rows
from kernfed_simulation.run import Simulated, simulate
from kernfed_testing.in_process import make_job
from kernfed_testing.methods.personalise import (
    NAMES,
    clients,
    finding,
    notes,
    opposite_rows,
    personal_job,
    run,
    without,
)

pytestmark = pytest.mark.slow

OPEN = {"allow": list(Kind)}
LATE = NAMES[-1]


def some(rows: Mapping[str, Rows], names: tuple[str, ...], state: Path, **policy: Any) -> dict[str, LocalJob]:
    """Clients whose policies let the job keep what they share, but for those with another one."""
    return clients({name: rows[name] for name in names}, state, **{name: policy.get(name, OPEN) for name in names})


def joining(folder: Path, **settings: Any) -> tuple[JobFile, dict[str, bytes]]:
    """A job whose clients join that of a folder of artifacts, and its file as it would travel."""
    job = personal_job(from_job=str(folder), **settings)
    assert job.data is not None
    content = pack_folder(folder, tuple(job.data.features))
    digest = hashlib.sha256(content).hexdigest()
    return job.model_copy(update={"files": {str(folder): digest}}), {digest: content}


def join(folder: Path, jobs: Mapping[str, LocalJob], out: Path | None = None, **settings: Any) -> Simulated:
    """Run such a job; an error is raised."""
    job, files = joining(folder, **settings)
    done = simulate(job, jobs, files=files, out=out)
    if done.error is not None:
        raise done.error
    return done


COMMON: dict[str, Any] = {"num_columns": 5, "grid": "lite"}
WAYS: dict[str, dict[str, Any]] = {
    "crossfit": COMMON,
    "paper": {"num_columns": 5, "weights": "paper"},
    "exact": {"num_columns": 5, "weights": "exact"},
    "directions": {**COMMON, "features": "", "directions": 20},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_joins_later_has_nearly_the_model_of_a_whole_rerun(tmp_path: Path, way: str) -> None:
    """Six clients of two opposite rules, the last one late: its error and teachers are those of all six together."""
    rows, settings = opposite_rows(), WAYS[way]
    whole = run(personal_job(**settings), clients(rows, tmp_path / "whole"))
    first = run(personal_job(keep_shared=True, **settings), some(rows, NAMES[:-1], tmp_path / "a"), tmp_path / "first")
    assert (tmp_path / "first" / ARTIFACT).exists()
    assert first.model is not None
    late = join(tmp_path / "first", some(rows, (LATE,), tmp_path / "b"), **settings)
    again, alone = whole.final.clients[LATE]["personal"]["mse"], whole.final.clients[LATE]["local"]["mse"]
    assert late.final.clients[LATE]["personal"]["mse"] < again + max(0.25 * (alone - again), 0.03)
    assert set(late.final.clients) == {LATE}
    assert f"{LATE} joined 5 clients of the earlier job test" in notes(late)
    own = {c["client"]: c for c in finding(late)["clients"]}[LATE]
    teachers = {t["client"] for t in own["learns_from"] if t["weight"] > 0.05}
    assert teachers <= {"bee", "dog", LATE}
    kept = json.loads((tmp_path / "b" / LATE / "model" / "model.json").read_text())["job"]
    assert {t["client"] for t in kept["learns_from"]} <= set(NAMES)
    assert late.model is not None
    np.testing.assert_array_equal(late.model.weights, first.model.weights)


def test_those_who_join_can_be_joined_again(tmp_path: Path) -> None:
    """A chain of three jobs; a client that joins anew stands in the place of its former self."""
    rows = opposite_rows()
    run(personal_job(keep_shared=True, **COMMON), some(rows, NAMES[:4], tmp_path / "a"), tmp_path / "first")
    second = some(rows, ("dog", "eel"), tmp_path / "b")
    join(tmp_path / "first", second, tmp_path / "second", keep_shared=True, **COMMON)
    kept = from_bytes((tmp_path / "second" / ARTIFACT).read_bytes())
    assert kept.facts.clients == NAMES[:5]
    third = join(tmp_path / "second", some(rows, (LATE,), tmp_path / "c"), **COMMON)
    assert third.final.clients[LATE]["personal"]["mse"] < 0.4
    assert "joined 5 clients" in notes(third)


def test_what_a_policy_does_not_allow_is_not_kept(tmp_path: Path) -> None:
    """By default nobody allows it; who does not, or shared no normal equations, is not in the file, and is named."""
    rows = opposite_rows()
    job = personal_job(keep_shared=True, **COMMON)
    closed: Any = dict.fromkeys(NAMES, without(Kind.STORED_STATISTIC))
    done = run(job, clients(rows, tmp_path / "a", **closed), tmp_path / "no")
    assert "nothing is kept for clients that join later" in notes(done)
    assert not (tmp_path / "no" / ARTIFACT).exists()
    with pytest.raises(DataError, match="kept nothing for clients that join later; run it with keep_shared = true"):
        pack_folder(tmp_path / "no", ("x0",))
    quiet = {"ant": without(Kind.STORED_STATISTIC), "bee": without(Kind.SUFFICIENT_STATISTIC)}
    done = run(job, some(rows, NAMES, tmp_path / "b", **quiet), tmp_path / "some")
    assert "kept for clients that join later without ant, bee" in notes(done)
    assert from_bytes((tmp_path / "some" / ARTIFACT).read_bytes()).facts.clients == NAMES[2:]


def test_the_policy_of_the_client_that_joins_decides_too(tmp_path: Path) -> None:
    """Without normal equations it learns from its own rows and teaches nobody; without an embedding it is refused."""
    rows = opposite_rows()
    run(personal_job(keep_shared=True, **COMMON), some(rows, NAMES[:-1], tmp_path / "a"), tmp_path / "first")
    withheld = some(rows, (LATE,), tmp_path / "b", **{LATE: without(Kind.SUFFICIENT_STATISTIC)})
    late = join(tmp_path / "first", withheld, **COMMON)
    assert late.final.clients[LATE]["personal"]["mse"] < 0.4
    assert finding(late)["clients"][-1]["choice"].endswith("; teaches nobody")
    silent = some(rows, (LATE,), tmp_path / "c", **{LATE: without(Kind.MEAN_EMBEDDING)})
    with pytest.raises(JobError, match="mean_embedding, which must not leave"):
        join(tmp_path / "first", silent, **COMMON)


def test_a_client_in_other_units_is_named(tmp_path: Path) -> None:
    """Its column x 1000 is held against the rows of the earlier job, with the factor."""
    rows = opposite_rows()
    run(personal_job(keep_shared=True, **COMMON), some(rows, NAMES[:-1], tmp_path / "a"), tmp_path / "first")
    r = rows[LATE]
    scale = np.array([1000.0, 1, 1, 1, 1])
    rows[LATE] = Rows(r.x_train * scale, r.y_train, r.x_test * scale, r.y_test)
    late = join(tmp_path / "first", some(rows, (LATE,), tmp_path / "b"), **COMMON)
    assert "fox: values spread otherwise than those of the earlier job test" in notes(late)
    assert "x0 by" in notes(late)


def binary(classes: tuple[str, ...], names: tuple[str, ...], state: Path) -> dict[str, LocalJob]:
    """Clients with two classes of their names."""
    random = np.random.default_rng(8)
    rows = {}
    for name in names:
        x = random.normal(size=(60, 2))
        rows[name] = Rows(x[:40], (x[:40, 0] > 0).astype(np.int64), x[40:], (x[40:, 0] > 0).astype(np.int64))
    jobs = from_rows(rows, classes, state)
    for job in jobs.values():
        job.file = job.file.model_copy(update={"policy": job.file.policy.model_copy(update={"allow": list(Kind)})})
    return jobs


def test_other_columns_classes_or_settings_are_refused(tmp_path: Path) -> None:
    """Each with what differs and what to do; also a folder that is not there, and one without artifacts."""
    common: dict[str, Any] = {"task": "binary", "num_columns": 2, "features": 'kernel = "linear"', "grid": "lite"}
    first = run(
        make_job("personalise", keep_shared=True, **common),
        binary(("no", "yes"), NAMES[:3], tmp_path / "a"),
        tmp_path / "first",
    )
    assert first.model is not None
    assert join_binary(tmp_path, ("no", "yes"), common).final.clients["fox"]["personal"]["accuracy"] > 0.8
    with pytest.raises(JobError, match=r"fox: .*a class that the job does not know|classes are not among"):
        join_binary(tmp_path, ("ill", "well"), common)
    with pytest.raises(DataError, match=r"that job has other feature columns \(x2 in one of the two only\)"):
        join_binary(tmp_path, ("no", "yes"), {**common, "num_columns": 3})
    with pytest.raises(ConfigError, match=r"differs: method.view = 'x' \(there 'xy'\)\. Take the file of that job"):
        join_binary(tmp_path, ("no", "yes"), {**common, "view": "x"})
    with pytest.raises(DataError, match=r"there is no such folder; .*kernfed job fetch"):
        pack_folder(tmp_path / "nowhere", ("x0",))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no artifacts of a job are there"):
        pack_folder(tmp_path / "empty", ("x0",))
    with pytest.raises(ConfigError, match="from_job: belongs to trainer"):
        personal_job(trainer="newton", from_job="first")


def join_binary(tmp_path: Path, classes: tuple[str, ...], settings: dict[str, Any]) -> Simulated:
    job = make_job("personalise", from_job=str(tmp_path / "first"), **settings)
    assert job.data is not None
    content = pack_folder(tmp_path / "first", tuple(job.data.features))
    digest = hashlib.sha256(content).hexdigest()
    job = job.model_copy(update={"files": {str(tmp_path / "first"): digest}})
    done = simulate(job, binary(classes, ("fox",), tmp_path / "b"), files={digest: content})
    if done.error is not None:
        raise done.error
    return done


def _drawn(facts: Facts) -> Facts:
    """With features of random frequencies."""
    size = facts.features.num_columns
    drawn = replace(facts.features, kernel=Kernel.GAUSSIAN, form=FeatureForm.COSINE, num_frequencies=size)
    return replace(facts, features=replace(drawn, lengthscales=(1.0,) * size))


def _of_first(kept: KeptShared, factor: float) -> KeptShared:
    """The first client's targets so many times as large."""
    moments, squares = kept.moments.copy(), kept.squares.copy()
    moments[0] *= factor
    squares[0] *= factor**2
    return replace(kept, moments=moments, squares=squares)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """Cut short, with numbers that do not fit, or with something else in it: a sentence, never a crash."""
    rows = opposite_rows()
    run(personal_job(keep_shared=True, **COMMON), some(rows, NAMES[:3], tmp_path / "a"), tmp_path / "first")
    content = (tmp_path / "first" / ARTIFACT).read_bytes()
    kept = from_bytes(content)
    assert kept.to_bytes() == content
    for bad in (content[:-9], b"", b"nothing", content.replace(b'"means"', b'"meanz"')):
        with pytest.raises(KernfedError, match="fetch the job's artifacts again"):
            from_bytes(bad)
    for changed in (
        replace(kept, deviation=-kept.deviation),
        replace(kept, basis=np.zeros(0)),
        replace(kept, grams=kept.grams[:, :-1]),
        replace(kept, means=np.full_like(kept.means, np.nan)),
        replace(kept, facts=replace(kept.facts, clients=kept.facts.clients[::-1])),
        replace(kept, facts=replace(kept.facts, decisions=())),
        replace(kept, basis=np.array(1.0)),
        replace(kept, num_rows=kept.num_rows * 1e300),
        replace(kept, num_rows=kept.num_rows + 0.5),
        replace(kept, facts=replace(kept.facts, ridge=-1.0)),
        replace(kept, facts=replace(kept.facts, clients=("\x1b[2J", *kept.facts.clients[1:]))),
        *(
            replace(kept, facts=replace(kept.facts, plan=kept.facts.plan | {"data": {"features": columns}}))
            for columns in (5, [[1], {}], "x0")
        ),
    ):
        with pytest.raises(DataError, match="fetch the job's artifacts again"):
            from_bytes(changed.to_bytes())
    for absurd, told in (
        (replace(kept, target_mean=kept.target_mean + 1e200), "target_mean holds something else than numbers up to 1e"),
        (replace(kept, target_mean=kept.target_mean + 1e9), "target_mean is 1e.09, where the targets' mean is"),
        (replace(kept, deviation=kept.deviation * 1e300), "deviation holds something else than numbers"),
        (replace(kept, federated=kept.federated - 1e150), "federated holds something else than numbers"),
        (replace(kept, federated=kept.federated * 1e50), "federated has norm .*, and its ridge allows"),
        (replace(kept, mean=kept.mean + 1e20), "mean lies more than 30 deviations away"),
        (replace(kept, deviation=kept.deviation * 1e20), "deviation is more than 30 times"),
        (replace(kept, facts=_drawn(kept.facts), feature_mean=kept.feature_mean + 1e9), "feature_mean has norm"),
        (replace(kept, means=kept.means * 1e30), ": a mean embedding of norm"),
        (replace(kept, traces=kept.traces * 1e30), ": an embedding of rows that vary by"),
        (replace(kept, moments=kept.moments * 1e30), ": products of inputs and targets are larger"),
        (replace(kept, grams=-kept.grams), ": a mean square of an input is negative"),
        (_of_first(kept, 1e30), ".*1e.06 times is the most that may be"),
        (
            replace(kept, facts=replace(kept.facts, fingerprint="0" * 64)),
            "fingerprint '000000000000', and this release",
        ),
    ):
        with pytest.raises(DataError, match=f"{ARTIFACT}: .*{told}.*; fetch the job's artifacts again"):
            from_bytes(absurd.to_bytes())
