"""What a job's clients agreed on outlives a coordinator, whoever is there when it is back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import JobError
from kernfed.features.kernels import Kernel
from kernfed.features.spec import FeatureForm, make_spec
from kernfed.federation.events import EventKind
from kernfed.jobs.job_file import JobFile
from kernfed.methods.registry import METHODS
from kernfed_server.jobs.journal import Checkpoint
from kernfed_server.jobs.start.agreement import Agreement
from kernfed_simulation.federation import Rows
from kernfed_testing.in_process import Bench, Outcome, bench, label_skewed_rows, make_job, regression_rows
from kernfed_testing.methods.distill import made_job, made_rows
from kernfed_testing.methods.distill import run as run_distill
from kernfed_testing.methods.head_jobs import CLASSES, head_job

SIZES = {"ant": 40, "bee": 50, "cat": 60}
GONE = "cat"


def _shifted() -> dict[str, Rows]:
    """Without the last client the others would agree on other scales."""
    return regression_rows(SIZES, shift=2.0)


def _labelled() -> dict[str, Rows]:
    return dict(zip(SIZES, label_skewed_rows(3).values(), strict=True))


JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "dkrr": ("dkrr", {}),
    "fedavg": ("fedavg", {"rounds": 4}),
    "fedprox": ("fedprox", {"rounds": 4}),
    "newton": ("newton", {"rounds": 4, "tolerance": 1e-14}),
    "newton-paper": ("newton", {"rounds": 4, "step": "paper", "ridge": 1.0, "tolerance": 1e-12}),
    "heads-newton": ("newton", {"rounds": 4}),
    "heads-fedavg": ("fedavg", {"rounds": 4}),
    "heads-fednew": ("fednew", {"rounds": 4}),
    "personalise-exact": ("personalise", {}),
    "personalise-newton": ("personalise", {"trainer": "newton", "rounds": 4, "tolerance": 1e-14}),
    "personalise-networks": ("personalise", {"trainer": "fedavg", "rounds": 4}),
    "reweight": ("reweight", {"compare": False, "rounds": 4, "tolerance": 1e-14}),
    "reweight-networks": ("reweight", {"frequencies": None, "trainer": "adam", "rounds": 4}),
}
"""Method and settings, by a name that begins with the method's room."""


@dataclass(frozen=True)
class Story:
    """One client goes for good before a round: a job that it only left, and one whose coordinator was killed then."""

    undisturbed: Outcome
    clients: Bench
    killed: Outcome


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Story]:
    """By name and round, each made once; who goes on with its clients is the only one."""

    @functools.cache
    def story(name: str, round_num: int) -> Story:
        folder = tmp_path_factory.mktemp(name)
        calm, clients = (_clients(name, folder / of, away={GONE: round_num}) for of in ("calm", "killed"))
        return Story(calm.run(_job(name)), clients, clients.run(_job(name), stop_before=round_num))

    return story


def _job(name: str) -> JobFile:
    method, settings = JOBS[name]
    return (head_job if name.startswith("heads") else make_job)(method, **settings)


def _clients(name: str, folder: Path, **kwargs: Any) -> Bench:
    heads = name.startswith("heads")
    return bench(_labelled() if heads else _shifted(), folder, CLASSES if heads else (), **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize("forgot", [False, True], ids=["known", "forgot"])
@pytest.mark.parametrize("round_num", [1, 3], ids=["after-preparation", "after-a-round"])
@pytest.mark.parametrize("name", [name for name, (method, _) in JOBS.items() if method in METHODS])
def test_a_restart_with_a_client_gone_changes_no_bit(
    tmp_path: Path, stories: Callable[[str, int], Story], name: str, round_num: int, *, forgot: bool
) -> None:
    """Killed with a client gone for good, the job ends as one does that it only left; also where the others forgot."""
    if (name in ("dkrr", "personalise-exact") and round_num > 1) or (name.startswith("reweight") and forgot):
        pytest.skip("it has one round; or its clients cannot find their ratios again without the one that is gone")
    story = stories(name, round_num)
    undisturbed, killed = story.undisturbed, story.killed
    assert killed.stopped
    assert killed.journal.last is not None
    assert killed.journal.last.round_num == round_num - 1
    clients = _clients(name, tmp_path) if forgot else story.clients
    resumed = replace(clients, away={GONE: 0}).run(_job(name), resumed=killed.journal.last)
    assert _bits(resumed) == _bits(undisturbed)
    last = resumed.metrics[-1].clients
    assert last.keys() == undisturbed.metrics[-1].clients.keys()


def _bits(outcome: Outcome) -> tuple[bytes, ...]:
    """What was learned, and the scales that belong to it."""
    state = outcome.journal.checkpoints[-1].state
    learned = next(
        state[name] for name in ("weights", "parameters", "part.weights", "own", "collaboration") if name in state
    )
    scales = [] if outcome.model is None else [outcome.model.mean, outcome.model.deviation, outcome.model.target_mean]
    return tuple(np.asarray(array).tobytes() for array in (learned, *scales))


@pytest.mark.parametrize("lengthscale", ['lengthscale = "median"', "lengthscale = 1.5"])
@pytest.mark.parametrize("round_num", [1, 3], ids=["after-preparation", "after-a-round"])
def test_who_was_left_out_stays_out_after_a_restart(tmp_path: Path, lengthscale: str, round_num: int) -> None:
    """Its file is there again when the coordinator is back: the others go on with their scales, and it is told."""
    job = make_job("fedavg", rounds=4, cohort='preflight = "quorum"', features=lengthscale)

    def fails(_: object) -> object:
        raise JobError("no such file")

    faulty = bench(_shifted(), tmp_path, tamper={(GONE, "data.describe"): fails})
    undisturbed = bench(_shifted(), tmp_path / "calm", tamper={(GONE, "data.describe"): fails}).run(job)
    killed = faulty.run(job, stop_before=round_num)
    resumed = bench(_shifted(), tmp_path / "back").run(job, resumed=killed.journal.last)
    assert _bits(resumed) == _bits(undisturbed)
    assert resumed.cohort.clients == ("ant", "bee")
    assert [note for note in resumed.notes if GONE in note] == [
        "cat is left out of this job as before the restart: JOB_FAILED: no such file"
    ]
    assert not [e for e in resumed.journal.events if e.client == GONE]


def test_a_client_that_is_prepared_again_on_other_rows_is_refused(tmp_path: Path) -> None:
    """It lost its state, and its file holds other rows now, as many or not: what to do is told."""
    job = make_job("fedavg", rounds=4)
    killed = bench(_shifted(), tmp_path / "before").run(job, stop_before=3)
    same = bench(_shifted(), tmp_path / "same").run(job, resumed=killed.journal.last)
    assert not [e for e in same.journal.events if e.kind is EventKind.CLIENT_FAILED]
    other = _shifted()
    other[GONE] = replace(other[GONE], x_train=other[GONE].x_train * 1.01)
    resumed = bench(other, tmp_path / "other").run(job, resumed=killed.journal.last)
    failed = {e.message for e in resumed.journal.events if e.kind is EventKind.CLIENT_FAILED}
    assert any("its data are others than before round 1" in why and "submit it anew" in why for why in failed)
    more = bench(regression_rows({**SIZES, GONE: 70}, shift=2.0), tmp_path / "more")
    refused = more.run(job, resumed=killed.journal.last)
    failed = {e.message for e in refused.journal.events if e.kind is EventKind.CLIENT_FAILED}
    assert any("num_rows is 70, but cat stated 60 training rows before" in why for why in failed)


def test_a_checkpoint_of_before_goes_on_and_says_from_whom_the_values_are(tmp_path: Path) -> None:
    """An earlier release kept no agreement: who is there agrees anew, and the operator is told."""
    job = make_job("fedavg", rounds=4, learning_rate=0.5)
    clients = bench(_shifted(), tmp_path)
    killed = clients.run(job, stop_before=3)
    assert killed.journal.last is not None
    stored = _without_agreement(killed.journal.last)
    resumed = clients.run(job, resumed=stored)
    assert resumed.weights.tobytes() == clients.run(job).weights.tobytes()
    assert any("agreed on anew, by ant, bee, cat" in note for note in resumed.notes)
    assert Agreement.of_checkpoint(resumed.journal.checkpoints[0].state) is not None


def _without_agreement(checkpoint: Checkpoint) -> Checkpoint:
    kept = ("run.rules", "run.rule.", "run.movements")
    state = checkpoint.state.items()
    return replace(checkpoint, state={n: a for n, a in state if not n.startswith("run.") or n.startswith(kept)})


def test_a_coordinator_that_draws_other_features_refuses_to_go_on(tmp_path: Path) -> None:
    """Another release behind the same checkpoint: nobody's clients are blamed, and the remedy is the coordinator's."""
    job = make_job("fedavg", rounds=4)
    clients = bench(_shifted(), tmp_path)
    killed = clients.run(job, stop_before=3)
    assert killed.journal.last is not None
    agreement = Agreement.of_checkpoint(killed.journal.last.state)
    assert agreement is not None
    other = {f"run.agreement.{n}": a for n, a in replace(agreement, fingerprint="f" * 64).to_arrays().items()}
    resumed = replace(killed.journal.last, state={**killed.journal.last.state, **other})
    with pytest.raises(JobError, match=r"this coordinator draws other random features .* go on with the release"):
        clients.run(job, resumed=resumed)


def test_an_agreement_comes_back_to_the_last_bit() -> None:
    """All of its fields survive the checkpoint."""
    random = np.random.default_rng(1)
    agreement = Agreement(
        classes=("no", "yes"),
        mean=random.normal(size=3),
        deviation=random.uniform(size=3) + 0.1,
        spec=make_spec(Kernel.MATERN32, FeatureForm.SINE_COSINE, 3, [0.1, 1 / 3, 7.0], 5, 2**62 + 1),
        bounds=(0.0, 8.0, 0.1),
        class_order=(1, 0),
        fingerprint="ab" * 32,
        feature_mean=random.normal(size=10),
        target_mean=random.normal(size=2),
        backbone="cd" * 32,
        ridge=1 / 3,
        num_rows={"a": 3, "b": 4},
        descriptions={"a": "0" * 64},
    )
    arrays: Mapping[str, np.ndarray] = {f"run.agreement.{n}": a for n, a in agreement.to_arrays().items()}
    found = Agreement.of_checkpoint(arrays)
    assert found is not None
    for name in Agreement.__dataclass_fields__:
        assert np.array_equal(getattr(found, name), getattr(agreement, name)), name
    assert found.to_arrays().keys() == agreement.to_arrays().keys()
    assert Agreement.of_checkpoint({}) is None
    broken = {**arrays, "run.agreement.facts": np.frombuffer(b"{}", np.uint8)}
    with pytest.raises(JobError, match="start the release of kernfed that began the job"):
        Agreement.of_checkpoint(broken)


def test_the_opening_checkpoint_closes_no_round(tmp_path: Path) -> None:
    """It is on disk before round 1 opens, and holds who takes part, who does not, and the clients' own models."""
    killed = bench(_shifted(), tmp_path).run(make_job("fedavg", rounds=4), stop_before=1)
    last = killed.journal.last
    assert last is not None
    assert last.round_num == 0
    assert not last.closes
    assert {"run.agreement.facts", "run.clients", "run.agreed.local models", "run.agreed.learning rate"} <= {
        *last.state
    }


@pytest.mark.parametrize("forgot", [False, True], ids=["known", "forgot"])
@pytest.mark.parametrize("round_num", [1, 3], ids=["after-preparation", "after-a-round"])
def test_distillation_keeps_rows_ridge_and_targets(tmp_path: Path, round_num: int, *, forgot: bool) -> None:
    """With a client gone the share of the rows, the ridge that was chosen and the centre of the targets stay."""
    gone = "site-3"
    job, _, files = made_job(tmp_path, ridge=None, lengthscale=None, intercept=None)
    undisturbed = run_distill(job, files, bench(made_rows(), tmp_path / "calm", away={gone: round_num}))
    clients = bench(made_rows(), tmp_path / "killed", away={gone: round_num})
    killed = run_distill(job, files, clients, stop_before=round_num)
    if forgot:
        clients = bench(made_rows(), tmp_path / "forgot")
    resumed = run_distill(job, files, replace(clients, away={gone: 0}), resumed=killed.journal.last)
    assert resumed.values.tobytes() == undisturbed.values.tobytes()
    assert resumed.metrics().clients.keys() == undisturbed.metrics().clients.keys()
