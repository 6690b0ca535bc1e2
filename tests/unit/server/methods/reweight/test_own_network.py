"""Modules of the clients' own under FedAvg and Adam: what comes of them, and what is told where they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import kernfed
from kernfed.cli.models.serve import serve
from kernfed.errors import ConfigError, JobError
from kernfed.federation.messages.data import LearningTask
from kernfed.jobs.client_models import SiteNetworkSection
from kernfed.jobs.held_to import contradiction
from kernfed.jobs.job_file import JobFile
from kernfed.methods.reweight.messages import NetworkScale, WeightedUpdateRequest
from kernfed.models.network_model import NetworkModel
from kernfed.models.network_spec import own_network_spec
from kernfed.models.tensors.site_network import load_site_network
from kernfed.tensors.modules import parts_of, to_vector
from kernfed_client.methods.reweight.state import ReweightState
from kernfed_client.models.kept_models import load_kept_model
from kernfed_simulation.run import Simulated
from kernfed_testing.in_process import Floats, bench
from kernfed_testing.methods.personalise import run
from kernfed_testing.methods.reweight import CLASSES, NAMES, PAPER, label_shifted_rows, reweight_job, shifted_rows
from kernfed_testing.methods.reweight import sharing as sharing_clients
from kernfed_testing.modules import Dense, Normed

DENSE, NORMED = "torch:kernfed_testing.modules.Dense", "torch:kernfed_testing.modules.Normed"
STEPS: dict[str, Any] = {"trainer": "fedavg", "local_steps": 3, "learning_rate": 0.1, "batch_size": 0}


def own_job(network: str = "", **settings: Any) -> JobFile:
    settings = {"rounds": 2, "compare": False, "ratios": PAPER, **settings}
    return reweight_job(network=f'kind = "own"\nsource = "net"\n{network}', **settings)


def sharing(folder: Path, rows: Any = None, classes: tuple[str, ...] = (), **sources: dict[str, Any]) -> Any:
    """Clients whose files name a network; some another one, or none."""
    jobs = sharing_clients(rows or shifted_rows(40), folder, classes)
    for name, job in jobs.items():
        section = sources.get(name, sources.get("others", {"source": DENSE}))
        networks = {"net": SiteNetworkSection(**section)} if section else {}
        job.file = job.file.model_copy(update={"networks": networks})
    return jobs


def left(done: Simulated) -> NetworkModel:
    assert done.error is None, done.error
    assert isinstance(done.left, NetworkModel)
    return done.left


def test_fedavg_is_what_plain_torch_makes_of_the_module(tmp_path: Path) -> None:
    """Two rounds by hand, from the weights of a file: each client's steps on its weighted rows, then the mean."""
    torch.manual_seed(1)
    start = Dense(2, 1)
    save_file(start.state_dict(), tmp_path / "start.safetensors")
    jobs = sharing(tmp_path, others={"source": DENSE, "weights": tmp_path / "start.safetensors"})
    model = left(run(own_job(**STEPS, scope="own", ratios=""), jobs))
    rows, parts = shifted_rows(40), parts_of(start)
    current = to_vector(start, parts)
    for _ in range(2):
        trained = []
        for name in NAMES:
            module = Dense(2, 1)
            torch.nn.utils.vector_to_parameters(current.clone(), module.parameters())
            x = torch.tensor(jobs[name].x_train)
            y = torch.tensor((rows[name].y_train[:, None] - model.target_mean) / model.target_deviation)
            w = torch.tensor(jobs[name].memory(ReweightState).ratios["own"].weights)
            sgd = torch.optim.SGD(module.parameters(), lr=0.1)
            for _ in range(3):
                sgd.zero_grad()
                ((module(x) - y).square().sum(dim=1) * w).mean().backward()
                sgd.step()
            trained.append(to_vector(module, parts))
        current = torch.stack(trained).mean(dim=0)
    np.testing.assert_allclose(model.parameters, current.numpy(), rtol=1e-10, atol=1e-12)


def test_the_model_predicts_with_the_module_alone(tmp_path: Path) -> None:
    """A model's file names no code: whoever loads it gives the module, of which each part has to fit."""
    jobs = sharing(tmp_path / "s", label_shifted_rows(40), CLASSES, others={"source": NORMED})
    job = own_job(task="classification", trainer="adam", step_size=0.05, rounds=3)
    done = run(job, jobs, tmp_path / "out")
    left(done)
    x = pd.DataFrame(label_shifted_rows(40)["ant"].x_test, columns=["x0", "x1"])
    with pytest.raises(ConfigError, match=r"network 'net' of the clients' own, and its module is not here; load it"):
        kernfed.load_model(tmp_path / "out").predict(x)
    with pytest.raises(ConfigError, match=r"module is not here; add --networks FILE, a client file with"):
        serve(tmp_path / "out")
    found = kernfed.load_model(tmp_path / "out", network=Normed)
    correct = float(np.mean(found.predict(x) == np.array(CLASSES)[label_shifted_rows(40)["ant"].y_test]))
    assert correct == pytest.approx(done.final.clients["ant"]["global"]["accuracy"])
    with pytest.raises(ConfigError, match=r"network 'net' of the clients' own has no ONNX form here"):
        kernfed.export_onnx(found, tmp_path / "model.onnx")
    with pytest.raises(
        ConfigError, match=r"has 'layers.0.weight' \[6, 2\] \(weight\) as its part 1, and here .*\[5, 2"
    ):
        kernfed.load_model(tmp_path / "out", network=Normed(2, 3, 5))
    with pytest.raises(ConfigError, match=r"want a torch.nn.Module, or a function that makes one, not int"):
        kernfed.load_model(tmp_path / "out", network=3)  # type: ignore[arg-type]  # what a person may give


def test_each_client_keeps_its_own_normalisation_and_buffers(tmp_path: Path) -> None:
    """FedBN of a module: a kept model predicts what was measured; means and variances never left."""
    job = own_job('batch_norm = "own"', **STEPS, scope="own", ratios="")
    jobs = sharing(tmp_path, others={"source": NORMED})
    done = run(job, jobs)
    assert done.left is None, done.error
    for name in NAMES:
        scores = load_kept_model(jobs[name].folder / "model").predict_scores(shifted_rows(40)[name].x_test)
        mse = np.square(scores[:, 0] - shifted_rows(40)[name].y_test).mean()
        assert mse == pytest.approx(done.final.clients[name]["global"]["mse"])


def test_a_job_that_is_resumed_has_the_same_bits(tmp_path: Path) -> None:
    """Modules that draw, normalise and shuffle: what a crash interrupts goes on as it would have."""

    def made(folder: Path) -> Any:
        found = bench(shifted_rows(40), folder)
        for name, job in sharing(folder, others={"source": NORMED}).items():
            found.jobs[name].file = job.file
        return found

    job = own_job(**{**STEPS, "batch_size": 16}, rounds=3, scope="own", ratios="")
    whole = made(tmp_path / "a").run(job)
    second = made(tmp_path / "b")
    stopped = second.run(job, stop_before=3)
    resumed = second.run(job, resumed=stopped.journal.checkpoints[1])
    last = [r.journal.last for r in (whole, resumed)]
    assert last[0] is not None
    assert last[1] is not None
    np.testing.assert_array_equal(last[0].state["parameters"], last[1].state["parameters"])


class Wrong(nn.Module):
    """Is made of other arguments, or gives other outputs."""

    def __init__(
        self,
        num_columns: int,
        num_outputs: int,
        more: int = 0,
        momentum: bool = True,
        **odd: bool,
    ) -> None:
        super().__init__()
        if odd.get("raises"):
            raise KeyError("mood")
        self.layer = nn.Linear(num_columns, num_outputs + more)
        self.norm = nn.BatchNorm1d(num_outputs + more, momentum=0.1 if momentum else None)
        if odd.get("mixed"):
            self.norm.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.norm(self.layer(x))
        return out


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (
            {"source": DENSE, "parameters": {"width": 5}},
            r"networks 'net' differ: parameter 1 is 'layers.0.weight' \[6, 2\] \(weight\) at ant, and "
            r"'layers.0.weight' \[5, 2\] \(weight\) at cat; give every client file the same source, parameters and",
        ),
        ({"source": NORMED}, r"differ: parameter 5 is none at ant, and 'norm.weight' \[6\] \(norm\) at cat"),
        ({}, r"network 'net' is not allowed here \(allowed: none\); add \[networks.net\] to the client file"),
    ],
)
def test_a_client_with_another_module_is_told_what_differs(tmp_path: Path, other: dict[str, Any], told: str) -> None:
    """The job stops before round 1, and names client, parameter and remedy."""
    with pytest.raises(JobError, match=told):
        run(own_job(**STEPS, scope="own", ratios=""), sharing(tmp_path, cat=other))


WRONG = f"torch:{__name__}.Wrong"


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"source": DENSE, "parameters": {"wide": 5}}, r"cannot be made with \(columns, outputs, parameters\): .*wide"),
        ({"source": "file:/no/such.py:Net"}, "there is no file /no/such.py"),
        ({"source": "torch:no_such.Net"}, "no_such.Net cannot be imported here .*install its package"),
        ({"source": "torch:os.path.join"}, "cannot be made with"),
        (
            {"source": WRONG, "parameters": {"mixed": True}},
            "its parameters are of types torch.float32, torch.float64",
        ),
        ({"source": WRONG, "parameters": {"raises": True}}, r"cannot be made with .*: KeyError: 'mood'"),
        ({"source": "torch:collections.Counter"}, "cannot be made with|gives no torch.nn.Module"),
        ({"source": WRONG, "parameters": {"more": 2}}, r"gives \[3\] numbers a row where the job has 1 outputs"),
        ({"source": WRONG, "parameters": {"momentum": False}}, "batch normalisation 'norm' keeps no moving means"),
        ({"source": DENSE, "weights": "w.safetensors"}, "weights w.safetensors cannot be read or do not fit the mod"),
    ],
)
def test_a_module_that_cannot_be_had_is_told_of(tmp_path: Path, section: dict[str, Any], told: str) -> None:
    """One sentence: the table of the client file, what is wrong, what to do. Nothing is unpickled."""
    (tmp_path / "w.safetensors").write_bytes(b"\x80\x04.")
    with pytest.raises(ConfigError, match=rf"^\[networks.net\] of the client file: .*({told})"):
        load_site_network("net", {"net": SiteNetworkSection(**section).placed(tmp_path)}, 2, 1, 0)


def test_a_file_of_a_site_may_raise_what_it_likes(tmp_path: Path) -> None:
    """The error names the file and what it raised."""
    (tmp_path / "nets.py").write_text("1 / 0")
    section = SiteNetworkSection(source="file:nets.py:Net").placed(tmp_path)
    with pytest.raises(ConfigError, match=r"Net cannot be had from .*nets.py \(ZeroDivisionError: division by zero\)"):
        load_site_network("net", {"net": section}, 2, 1, 0)


def test_clients_that_start_elsewhere_are_told(tmp_path: Path) -> None:
    """Weights of another file: the parameter is named, and by how much it differs."""
    torch.manual_seed(1)
    module = Dense(2, 1)
    for name in ("one", "two"):
        save_file(module.state_dict(), tmp_path / f"{name}.safetensors")
        module.get_parameter("layers.2.bias").data += 0.5
    files: dict[str, Any] = {
        c: {"source": DENSE, "weights": tmp_path / f"{n}.safetensors"}
        for c, n in zip(NAMES, ("one", "one", "two"), strict=True)
    }
    told = r"start from other numbers: parameter 'layers.2.bias' differs by up to 0.5 between ant and cat"
    with pytest.raises(JobError, match=told):
        run(own_job(**STEPS, scope="own", ratios=""), sharing(tmp_path, **files))


def test_a_coordinator_is_held_to_the_network_of_the_file() -> None:
    """A request for another of the client's networks is refused."""
    job = own_job(**STEPS)
    none: Floats = np.zeros(1)

    def asked(name: str) -> str:
        spec = own_network_spec(name, LearningTask.REGRESSION, 2, 1, parts_of(Dense(2, 1)))
        request = WeightedUpdateRequest(
            network=spec, scale=NetworkScale(mean=none, deviation=none), networks=np.zeros((1, spec.num_parameters)),
            learning_rate=0.1, num_steps=3, batch_size=0, weight_decay=0.0, seed=1, round_num=1, own_norm=False,
        )  # fmt: skip
        return contradiction(job, request)

    assert asked("net") == ""
    assert asked("other") == "reweight.local_update asks for a network other, and the job file says net"


def test_a_simulation_on_frames_takes_the_module_by_name() -> None:
    """`networks` names it, and the model that is left predicts with it."""
    frames = {}
    for name, rows in shifted_rows(40).items():
        frames[name] = pd.DataFrame(rows.x_train, columns=["x0", "x1"]).assign(y=rows.y_train)
    job = kernfed.Job(
        name="own",
        method=kernfed.Reweight(
            trainer="fedavg", rounds=1, scope="own", compare=False, network={"kind": "own", "source": "net"}
        ),
        data=kernfed.Data(task="regression", target="y", features=["x0", "x1"]),
    )
    done = kernfed.simulate(job, frames, networks={"net": DENSE})
    assert done.clients == NAMES
    with pytest.raises(ConfigError, match=r"networks: .*each is a text like 'torch:package.Module'"):
        kernfed.simulate(job, frames, networks={"net": "Dense"})
