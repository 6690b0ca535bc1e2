"""Settings of each method: the `[method]` table of a job file. One class per method, chosen by its `name`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kernfed.toml_file import Section

Ridge = Annotated[float, Field(gt=0, le=1e6, description="Ridge of the objective |ZW - Y|²/(2n) + (ridge/2)|W|².")]
Rounds = Annotated[int, Field(ge=1, le=1_000_000, description="Turns of the method's loop.")]


class LocalSettings(Section):
    """Every client alone: nothing but counts and metrics leaves."""

    name: Literal["local"]
    ridge: Ridge = 1e-3


class DkrrSettings(Section):
    """One-shot average of local ridge solutions."""

    name: Literal["dkrr"]
    ridge: Ridge = 1e-3


class NewtonSettings(Section):
    """FedNewton on (random) features."""

    name: Literal["newton"]
    ridge: Ridge = 1e-3
    rounds: Rounds = 30
    step: Literal["auto", "paper"] = Field(
        "auto",
        description="auto: preconditioned conjugate gradients with the paper's messages, which cannot diverge; "
        "paper: Algorithm 1 with step 1, stopped with a diagnosis if it diverges.",
    )
    tolerance: float = Field(
        1e-8,
        gt=0,
        lt=1,
        description="Stop when the certified relative distance to the pooled solution is below.",
    )


class FedAvgSettings(Section):
    """Federated averaging of local gradient steps on the ridge objective."""

    name: Literal["fedavg"]
    ridge: Ridge = 1e-3
    rounds: Rounds = 50
    learning_rate: float | Literal["auto"] = Field(
        "auto", description="auto: 1 / the largest curvature of any client's objective."
    )
    local_steps: int = Field(5, ge=1, le=100_000, description="Gradient steps of a client in a round.")
    batch_size: int = Field(0, ge=0, description="Rows per local step; 0: all.")


class FedProxSettings(Section):
    """FedProx: the client's problem with a proximal term, solved in closed form."""

    name: Literal["fedprox"]
    ridge: Ridge = 1e-3
    rounds: Rounds = 50
    proximal: float = Field(0.1, ge=0, le=1e6, description="Weight of (proximal/2)|V - W|².")


class ProbeSettings(Section):
    """A test of the lines: numbers go to every client and back; no data are touched."""

    name: Literal["probe"]
    rounds: Rounds = 3
    payload_bytes: int = Field(1_000_000, ge=8, le=8 << 30, description="Bytes each way per client and round.")


MethodSettings = Annotated[
    LocalSettings | DkrrSettings | NewtonSettings | FedAvgSettings | FedProxSettings | ProbeSettings,
    Field(discriminator="name"),
]
