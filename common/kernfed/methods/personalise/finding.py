"""The result that personalisation tells of itself: who learns from whom, how far apart clients are, and their gains."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from kernfed.methods.finding import UNLESS_NONE, Finding, Told


@dataclass(frozen=True, slots=True)
class Teacher:
    """A client that another one learns from, and its weight."""

    client: str
    weight: float


@dataclass(frozen=True, slots=True)
class Gain:
    """What the mixture of a client promises, by embeddings alone; see `kernfed.methods.personalise.gains`."""

    alone: float
    """Expected squared error of its own embedding, Tr Σ/n, (6)."""
    mixed: float
    """Unbiased estimate of that of its mixture: the error L̂ of Algorithm 1 less Tr Σ/n. It may lie below 0."""
    effective_dimension: float
    """d^e = Tr Σ/|Σ|_op, (13); 0: the client does not tell it."""
    bound: float
    """The least of the bound (14) of `mixed` over sets of the nearest clients, with C = 1; 0 as `effective_dimension`.
    The constant is not known: compare clients by it, and do not read it as a number."""
    nearest: int
    """Clients in the set with this bound, itself among them."""


@dataclass(frozen=True, slots=True)
class Learner:
    """One client's mix."""

    client: str
    num_rows: int = 0
    told: bool = False
    """Whether it told its weights."""
    choice: str = ""
    """How they were found, in words."""
    learns_from: tuple[Teacher, ...] = ()
    """Those of the largest weights, most first; itself among them."""
    effective_rows: float = 0.0
    """Rows that the mix is worth."""
    scores: Told = field(default_factory=dict)
    gain: Gain | None = field(default=None, metadata=UNLESS_NONE)
    """What its embedding promised before any model was scored; None of one that has not told its weights."""
    round_num: int | None = field(default=None, metadata=UNLESS_NONE)
    """The round from which its network is, where rows that are kept apart choose it."""
    learns: bool = True
    """Whether it gets a model in this job; else it helps others, or has one of an earlier job."""


@dataclass(frozen=True, slots=True)
class PersonaliseFinding(Finding):
    """After the last round. B clients."""

    name: ClassVar[str] = "personalise"

    weights: str = ""
    """How they were found, as the job ended up doing it."""
    trainer: str = ""
    words: tuple[str, ...] = ()
    """Notes for people."""
    clients: tuple[Learner, ...] = ()
    matrix: tuple[tuple[float, ...], ...] | None = field(default=None, metadata=UNLESS_NONE)
    """Weights, a row for who learns, shape (B, B); None for many clients, as `distances`."""
    distances: tuple[tuple[float, ...], ...] | None = field(default=None, metadata=UNLESS_NONE)
    """Between embeddings; 0 where noise explains them."""
    alike: tuple[tuple[float | None, ...], ...] | None = field(default=None, metadata=UNLESS_NONE)
    """p-value of the hypothesis that two clients have one law; None within it where one has not told how its rows
    vary."""


@dataclass(frozen=True, slots=True)
class ClientMixture:
    """How far what a client keeps of the mixture that its rows prefer is from its test rows; None: there are none."""

    client: str
    num_test_rows: int
    personal: float | None = field(default=None, metadata=UNLESS_NONE)
    local: float | None = field(default=None, metadata=UNLESS_NONE)
    """Of what follows from its own rows alone."""
    pooled: float | None = field(default=None, metadata=UNLESS_NONE)
    """Of what follows from all clients' rows alike."""


@dataclass(frozen=True, slots=True)
class ComponentsFinding(Finding):
    """After the weights."""

    name: ClassVar[str] = "personalise-components"

    num_components: int = 0
    clients: tuple[ClientMixture, ...] = ()
    """Shares of the variance of the test rows."""


@dataclass(frozen=True, slots=True)
class CentresFinding(Finding):
    """After the weights."""

    name: ClassVar[str] = "personalise-centres"

    num_centres: int = 0
    clients: tuple[ClientMixture, ...] = ()
    """Shares of the variance of the test rows."""


@dataclass(frozen=True, slots=True)
class DensityFinding(Finding):
    """After the weights."""

    name: ClassVar[str] = "personalise-density"

    clients: tuple[ClientMixture, ...] = ()
    """|ν - ν'|² of the densities' embeddings ν and that of the test rows, ν'."""
