"""A small job of every method, in each of its variants."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kernfed.federation.messages.base import Kind
from kernfed.jobs.job_file import JobFile
from kernfed_client.data.local_job import LocalJob
from kernfed_simulation.federation import Rows
from kernfed_testing.methods.distill import made_job
from kernfed_testing.methods.installed import installed
from kernfed_testing.methods.personalise import clients, without

SITES = ("ant", "bee", "cat")
COLUMNS = ["x0", "x1", "x2"]
NETWORK: dict[str, Any] = {"kind": "mlp", "widths": [3]}
HEAD: dict[str, Any] = {"name": "newton", "loss": "squared", "rounds": 3}
PERSONAL: dict[str, Any] = {"name": "personalise", "num_frequencies": 10}
MOMENTS: dict[str, Any] = {"embedding_kernel": "polynomial2", "view": "x", "components": 1}
POINTS: dict[str, Any] = {"name": "personalise", "view": "x", "embed_unlabelled": True, "embedding_points": 20}
CONSTANTS = {"c_q": 1.0, "c_p": 1.0}
NOISE = {"noise": {"epsilon": 1.0, "delta": 1e-5}}
WEIGHED: dict[str, Any] = {"name": "reweight", "rounds": 2, "ratios": {"num_frequencies": 10}}
STREAM: dict[str, Any] = {"rounds": 4, "metrics_every": 2, "batch_rows": 2, "wait_s": 0.01}
SMALL: dict[str, Any] = {**STREAM, "num_kernels": 4}

METHODS = installed(
    {
        "local": {"name": "local"},
        "dkrr": {"name": "dkrr"},
        "dkrr chosen": {"name": "dkrr", "ridge": "auto"},
        "newton": {"name": "newton", "rounds": 2},
        "newton paper": {"name": "newton", "step": "paper", "rounds": 2, "ridge": 1.0},
        "newton differences": {"name": "newton", "rounds": 2, "differences": True},
        "head": {**HEAD, "rounds": 60},
        "head exact": {**HEAD, "solver": "exact", "warm_start": False},
        "head cg": {**HEAD, "solver": "cg", "validation_fraction": 0.0, "rounds": 60},
        "head lanczos": {**HEAD, "solver": "lanczos", "step": "paper"},
        "head as printed": {**HEAD, "solver": "eigen", "step": "paper", "gradient": "own"},
        "head lbfgs": {**HEAD, "solver": "lbfgs", "step": "paper", "line_search": True},
        "fedavg": {"name": "fedavg", "rounds": 2},
        "fedavg head": {"name": "fedavg", "loss": "squared", "rounds": 2},
        "fedprox": {"name": "fedprox", "rounds": 2},
        "fedprox head": {"name": "fedprox", "loss": "squared", "rounds": 2},
        "fedsophia": {"name": "fedsophia", "loss": "squared", "rounds": 2},
        "fednew": {"name": "fednew", "loss": "squared", "rounds": 2},
        "distill": {"name": "distill"},
        "distill drawn": {"name": "distill", "client_fraction": 0.7, "uploads": "stale"},
        "personalise": PERSONAL,
        "personalise kept": {**PERSONAL, "keep_shared": True},
        "personalise paper": {**PERSONAL, "weights": "paper"},
        "personalise noise": {**PERSONAL, **NOISE, "weights": "paper", "trainer": "newton", "scale_columns": False},
        "personalise exact": {"name": "personalise", **MOMENTS, "weights": "exact", **CONSTANTS},
        "personalise newton": {**PERSONAL, "trainer": "newton", "rounds": 3},
        "personalise fedavg": {**PERSONAL, "trainer": "fedavg", "rounds": 3, "network": NETWORK},
        "personalise alike": {**PERSONAL, "trainer": "fedavg", "rounds": 3, "network_scale": "all"},
        "personalise density": {**PERSONAL, "view": "x", "weights": "paper", "density": True, "centres": 2},
        "personalise points": {**POINTS, "weights": "paper"},
        "personalise stopped": {**PERSONAL, "trainer": "fedavg", "rounds": 3, "judge": "ridge", "kept_apart": 3},
        "personalise average": {**PERSONAL, "trainer": "fedavg", "rounds": 3, "optimiser": "average"},
        "reweight": WEIGHED,
        "reweight spectra": {**WEIGHED, "compare_spectra": True},
        "reweight refused": {**WEIGHED, "on_refusal": "leave-out", "ratios": {"denominator": "client"}},
        "reweight target": {
            **WEIGHED,
            "scope": "target",
            "target": "ant",
            "ratios": {"divergence": "robust", "num_steps": 20},
        },
        "reweight own": {**WEIGHED, "scope": "own", "trainer": "adam", "network": {**NETWORK, "batch_norm": "average"}},
        "reweight fedavg": {**WEIGHED, "trainer": "fedavg", "ratios": {"model": "mlp", "num_steps": 20}},
        "online": {"name": "online", **STREAM},
        "online gradients": {"name": "online", **SMALL},
        "online hindsight": {"name": "online", **STREAM, "hindsight": True},
        "online paper": {
            "name": "online",
            **STREAM,
            "rates": "paper",
            "lengthscales": [0.5, 1.0],
            "num_frequencies": 8,
        },
        "ofskl": {"name": "ofskl", **STREAM},
        "ofmkl-avg": {"name": "ofmkl-avg", **SMALL},
        "vm-kofl": {"name": "vm-kofl", **SMALL},
        "em-kofl": {"name": "em-kofl", **SMALL},
        "perfedavg": {"name": "perfedavg", **STREAM},
        "describe": {"name": "describe"},
        "glm": {"name": "glm"},
        "glm robust": {"name": "glm", "family": "gaussian", "errors": "robust", "offset": "x2", "intercept": False},
        "kaplan-meier": {"name": "kaplan-meier"},
        "cox": {"name": "cox"},
        "cox robust": {"name": "cox", "ties": "breslow", "errors": "robust", "baseline": False},
        "probe": {"name": "probe", "rounds": 2, "payload_bytes": 80},
    }
)


def job_of(method: Mapping[str, Any], folder: Path) -> tuple[JobFile, dict[str, bytes]]:
    """A job of the method with no key beside it but what it needs."""
    if method["name"] == "distill":
        job, _, files = made_job(folder, **{k: v for k, v in method.items() if k != "name"})
        return job, files
    data: dict[str, Any] = {"task": "regression", "target": "y", "features": COLUMNS}
    data |= {"standardise": False} if "noise" in method else {}
    whole: dict[str, Any] = {"name": "job", "method": method, **({} if method["name"] == "probe" else {"data": data})}
    if "features" in JobFile.model_validate(whole).plan():
        whole["features"] = {"num_frequencies": 10}
    return JobFile.model_validate(whole), {}


def rows_of() -> dict[str, Rows]:
    """Three clients whose test rows lie beside their training rows."""
    random = np.random.default_rng(3)

    def made(num: int, shift: float) -> tuple[Any, Any]:
        x = random.normal(size=(num, 3)) + shift
        return x, np.sin(x).sum(axis=1)

    return {name: Rows(*made(40, 0.0), *made(16, 0.2)) for name in SITES}


def sites(folder: Path, *, refusing: bool) -> dict[str, LocalJob]:
    """The clients; they share samples, but for one where asked."""
    policies: dict[str, Any] = {name: {"allow": list(Kind)} for name in SITES}
    if refusing:
        policies["cat"] = without(Kind.UNLABELLED_SAMPLE)
    return clients(rows_of(), folder, **policies)
