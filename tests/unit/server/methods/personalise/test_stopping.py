"""Personal networks of the round in which they lose least on rows that are kept apart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernfed import rng
from kernfed.errors import ConfigError, WireError
from kernfed.federation.exchange import Call
from kernfed.federation.in_process import InProcessExchange
from kernfed.federation.messages.data import LearningTask
from kernfed.methods.personalise.training_messages import KeepNetworkRequest, WatchedNetworks, WatchNetworksRequest
from kernfed.models.network_spec import NetworkKind, NetworkSpec
from kernfed_client.methods.personalise.state import personal
from kernfed_client.methods.personalise.training_steps import watch_networks
from kernfed_client.steps.evaluation import encode_targets
from kernfed_server.methods.personalise.stopping import Best
from kernfed_testing.in_process import bench
from kernfed_testing.methods.personalise import NAMES, clients, concept_rows, finding, notes, personal_job, run

LINEAR = 'kernel = "linear"\n[method.network]\nkind = "linear"'
WANTED: dict[str, Any] = {
    "trainer": "fedavg",
    "weights": "paper",
    "rounds": 6,
    "step_size": 0.9,
    "kept_apart": 3,
    "num_frequencies": 30,
    "features": LINEAR,
}

pytestmark = pytest.mark.slow


def test_each_network_is_of_the_round_with_the_least_loss_of_its_mixture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds and networks are those of the least Σ_k w_k mean (x'b + a - y)² over rows that no network has seen."""
    watched: list[dict[str, Any]] = []
    kept: dict[str, Any] = {}
    ask = InProcessExchange.ask

    async def noted(exchange: InProcessExchange, call: Call[Any]) -> Mapping[str, Any]:
        if isinstance(call.request, WatchNetworksRequest):
            watched.append({c: call.request_of(c) for c in call.clients})
        if isinstance(call.request, KeepNetworkRequest):
            kept.update({c: call.request_of(c) for c in call.clients})
        return await ask(exchange, call)

    monkeypatch.setattr(InProcessExchange, "ask", noted)
    jobs = clients(concept_rows(), tmp_path)
    done = run(personal_job(min_weight=0.0, **WANTED), jobs)
    names = sorted(jobs)
    mix = np.array([kept[c].weights for c in names])
    losses = np.zeros((len(watched), len(names)))
    for k, c in enumerate(names):
        job, request = jobs[c], personal(jobs[c]).request
        y = (encode_targets(job, job.targets_train) - request.target_mean) / request.target_deviation
        order = rng.stream(job.schema.seed, "personalise", "judging", c).permutation(job.num_rows)
        apart = order[::3]
        for r, requests in enumerate(watched):
            weighing = [*np.flatnonzero(mix[:, k]), None]
            for t, network in zip(weighing, requests[c].networks, strict=True):
                if t is not None:
                    errors = job.x_train[apart] @ network[:3] + network[3] - y[apart, 0]
                    losses[r, t] += mix[t, k] * np.square(errors).mean()
    best = losses.argmin(axis=0)
    assert [c["round_num"] for c in finding(done)["clients"]] == (best + 2).tolist()
    assert len(set(best.tolist())) > 1, "nothing is chosen in one round alone"
    own = {c: int((mix[: names.index(c) + 1, names.index(c)] > 0).sum()) - 1 for c in names}
    for c, r in zip(names, best, strict=True):
        np.testing.assert_allclose(kept[c].parameters, watched[r][c].networks[own[c]])
    assert "one of 3 parts of the rows were kept apart" in notes(done)
    networks = watched[0]["ant"].networks
    with pytest.raises(WireError, match="1 folds"):
        watch_networks(
            jobs["ant"], WatchNetworksRequest(network=watched[0]["ant"].network, networks=networks, num_folds=1)
        )


def test_a_run_that_is_resumed_keeps_the_best_networks(tmp_path: Path) -> None:
    """It ends as the run that was not stopped; the second half alone would choose among fewer rounds."""
    rows, job = concept_rows(), personal_job(**WANTED)
    whole = bench(rows, tmp_path).run(job)
    first = bench(rows, tmp_path).run(job, stop_before=5)
    resumed = bench(rows, tmp_path).run(job, resumed=first.journal.last)
    assert resumed.metrics[-1] == whole.metrics[-1]


def test_rows_too_few_to_be_kept_apart_leave_the_last_round(tmp_path: Path) -> None:
    """Where each client's parts would be below its policy, a note says so, and networks are as without the key."""
    few: dict[str, Any] = {name: {"min_rows": 10} for name in NAMES}
    found = {}
    for parts in (0, 3):
        job = personal_job(**{**WANTED, "kept_apart": parts})
        done = run(job, clients(concept_rows(), tmp_path / str(parts), **few))
        found[parts] = done.final.clients
        assert ("no client kept one of 3 parts" in notes(done)) == (parts > 0)
    assert found[0] == found[3]
    with pytest.raises(ConfigError, match="kept_apart is 1"):
        personal_job(**{**WANTED, "kept_apart": 1})


def test_a_network_alone_stops_before_it_follows_the_noise_of_few_rows(tmp_path: Path) -> None:
    """A wide network on six rows of a client: where two are kept apart its error on new rows is less."""
    rows = concept_rows(sizes=(6, 6, 6))
    wide = 'kernel = "linear"\n[method.network]\nkind = "mlp"\nwidths = [30]'
    found = {}
    for parts in (0, 3):
        settings: dict[str, Any] = {**WANTED, "rounds": 60, "step_size": 0.05, "features": wide}
        done = run(
            personal_job(**{**settings, "kept_apart": parts}, top="evaluate_every = 1000"),
            clients(rows, tmp_path / str(parts)),
        )
        found[parts] = done.final.pooled["local"]["mse"]
    assert found[3] < found[0]


async def test_a_client_that_misses_the_first_round_counts_where_nobody_told() -> None:
    """Its own network is of its best round since; one of which another client told is judged by that client alone."""
    spec = NetworkSpec(NetworkKind.LINEAR, LearningTask.REGRESSION, 1, 1, (), (), 2)
    mix, replies = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), dict[str, WatchedNetworks]()

    async def ask_each(_: object) -> Mapping[str, WatchedNetworks]:
        return replies

    cohort = SimpleNamespace(clients=("ant", "bee"), ask_each=ask_each)
    job = SimpleNamespace(cohort=cohort, settings=SimpleNamespace(kept_apart=3))
    on_rows = np.zeros((3, 2))
    networks: Any = SimpleNamespace(
        job=job,
        targets=SimpleNamespace(mix=mix),
        spec=spec,
        on_rows=on_rows,
        parameters=on_rows,
        clients=cohort.clients,
    )
    best = Best.start(networks)
    for round_num, told in enumerate(({"ant": 2.0}, {"ant": 3.0, "bee": 9.0}, {"ant": 1.0, "bee": 99.0}), start=2):
        replies.clear()
        for client, loss in told.items():
            replies[client] = WatchedNetworks(num_rows=9, losses=np.full(2, loss), watched=True)
        await best.watch(networks, round_num)
    assert best.round_num.tolist() == [4, 3, 4]
