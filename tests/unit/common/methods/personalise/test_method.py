"""What a job file fixes of the networks that a coordinator asks for."""

from __future__ import annotations

import numpy as np

from kernfed.federation.messages.data import LearningTask
from kernfed.jobs.held_to import contradiction
from kernfed.jobs.job_file import parse_job
from kernfed.methods.personalise.training_messages import ScoreNetworksRequest
from kernfed.models.network_spec import NetworkKind, make_network_spec

TEXT = """name = "demo"
[method]
name = "personalise"
trainer = "fedavg"
network = { widths = [8] }
[data]
task = "regression"
target = "y"
features = ["a", "b"]
"""


def asked(*widths: int) -> ScoreNetworksRequest:
    """A request with a network of such layers."""
    spec = make_network_spec(NetworkKind.MLP, LearningTask.REGRESSION, 2, 1, widths)
    none = np.zeros((0, spec.num_parameters))
    return ScoreNetworksRequest(network=spec, networks=none, num_candidates=1, num_folds=1)


def test_the_network() -> None:
    """A network of other layers than the file's is another question about the rows."""
    signed = parse_job(TEXT)
    assert contradiction(signed, asked(8)) == ""
    assert "asks for widths (8, 8), and the job file says (8,)" in contradiction(signed, asked(8, 8))
