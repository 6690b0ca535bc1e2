"""What a room hands over for each of its methods: all that the rest of the system asks of a method."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args

from kernfed.errors import ConfigError
from kernfed.federation.messages.base import Request
from kernfed.federation.messages.data import LearningTask
from kernfed.federation.messages.sums import MaskedRequest
from kernfed.methods.shared_settings import NetworkSection
from kernfed.section import MethodSection

S = TypeVar("S", bound=MethodSection)
MedianRule = Literal["median", "median-spaced"]
"""The lengthscale is the median distance between rows: of rows drawn by the job's seed, or evenly spaced."""
COLUMNS: Literal["columns"] = "columns"
"""The median distance, times the part of each column's deviation that lies within clients."""
Lengthscale = float | list[float] | MedianRule | Literal["columns", "auto"]


class Needs(enum.StrEnum):
    """The stage to which clients prepare their data before round 1."""

    NOTHING = "nothing"
    """No data are touched."""
    COLUMNS = "columns"
    """Standardised columns."""
    FEATURES = "features"
    """Columns, mapped by the job's feature map, and centred."""


class Begins(enum.StrEnum):
    """What a job of a method can take over from another one that is over."""

    NOTHING = "nothing"
    """It computes its solution anew."""
    MODEL = "model"
    """A global model, whatever method made it, from whose weights it goes on."""
    STATE = "state"
    """All that a job of the same method had learned."""


FIXED: Mapping[str, str] = {
    **{name: name for name in ("ridge", "batch_size", "learning_rate", "momentum", "proximal", "weight_decay")},
    "num_steps": "local_steps",
    "num_epochs": "local_epochs",
}
"""Numbers of training steps that job files fix, for `Method.fixed`."""


def _names_no_file(path: Path, features: tuple[str, ...]) -> bytes:
    del features
    raise ConfigError(f"{path}: the method of this job names no file")


@dataclass(frozen=True, slots=True)
class Reach:
    """Numbers that follow from one of a job file."""

    holds: Callable[[float], bool]
    says: str
    """Which these are, for people."""


@dataclass(frozen=True, slots=True)
class Method(Generic[S]):
    """A method as everything outside its room sees it. `S` is the class of its [method] table."""

    settings: type[S]
    rounds: Callable[[S], int]
    """Rounds that a job has at most; 0 where nobody can say."""
    needs: Callable[[S], Needs] = lambda _: Needs.FEATURES
    files: Callable[[S], tuple[str, ...]] = lambda _: ()
    """Files that a job names beside itself, as written there."""
    pack: Callable[[Path, tuple[str, ...]], bytes] = _names_no_file
    """(a file that a job names, the job's feature columns) -> the bytes that travel; raises DataError where the file
    does not fit."""
    kept: str = ""
    """The artifact of an earlier job that the files named by a job are; empty: they are the operator's own."""
    begins: Begins = Begins.NOTHING
    """What a job takes over from the one that its `start_from` names."""
    starts: tuple[str, ...] = ()
    """Keys of `[method]` that say where a job begins; they do nothing where `start_from` does."""
    progress: tuple[str, ...] = ("rounds",)
    """Keys of `[method]` in which a job that takes over a state may differ from the one that left it."""
    lengthscale: Callable[[S], Lengthscale] | None = None
    """Of the exact kernel that `[method]` names; None: the job has that of `[features]`."""
    check: Callable[[S, LearningTask | None], None] = lambda _settings, _task: None
    """(settings, `data.task`) -> nothing; raises ValueError where the two do not fit, and names key and remedy."""
    columns: Callable[[S], Mapping[str, str]] = lambda _: {}
    """Keys of `[method]` that name a column of `data.features`, each with that name; empty: it names none."""
    measured: str = "on test rows"
    """What its metrics are of, in the titles of tables."""

    steps: tuple[type[Request[Any]], ...] | None = None
    """Requests that a job of the method may send to clients, beside those that all methods share; a client refuses
    every other. None: not stated, and a client binds the method to no steps."""

    asks: Callable[[S], tuple[type[Request[Any]], ...]] = lambda _: ()
    """Those of `steps` that every job of such settings asks; a client whose policy forbids one takes no part at all."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Number or text of a request, by the name of its field, to the key of the settings that it is, wherever that key
    is one; a client refuses a request of another one where it has the job file under its operator's signature."""
    begun: Callable[[S], Mapping[str, Reach]] = lambda _: {}
    """Keys of `fixed` with whose number a job of such settings only begins, each with what its rounds may choose."""

    masked: Callable[[S], tuple[type[MaskedRequest], ...]] = lambda _: ()
    """Secure sums that a job of such settings asks where it is to have them, each in place of the request it masks."""
    seen: Callable[[S], str] = lambda _: "needs messages of single clients, which are not sums"
    """Why a job of such settings can have no secure sums, after "method NAME "; empty: it can."""

    network: Callable[[S], NetworkSection | None] = lambda _: None
    """The network of the settings; a client refuses a request with another one as it does another number."""

    schema: Mapping[str, object] = field(default_factory=dict)
    """What a job of the method may ask of the data's schema beside what its file says: field to value."""
    reads_stream: bool = False
    """Whether clients learn from the partition `stream` where they have one."""
    all_rows: bool = False
    """Whether a job takes all rows of `train` as they are: none is held out, and none moves since it stands far out."""
    leaves_model: bool = True
    """Whether there is a model at the end, at the coordinator or at clients, by which rows can be predicted."""

    unscaled: Callable[[S], str] = lambda _settings: ""
    """Why a job of these settings must not scale its columns by the clients' moments; empty where it may."""

    def measured_on(self, validation: float) -> str:
        """What the metrics of a job are of, in the titles of tables.

        Args:
            validation: `data.validation_fraction` of the job.
        """
        return "on validation rows" if validation else self.measured

    @property
    def name(self) -> str:
        """The method's key in a job file."""
        name: str = get_args(self.settings.model_fields["name"].annotation)[0]
        return name


def table(*methods: Method[Any]) -> dict[str, Method[Any]]:
    """Methods by their names, as the registry wants them."""
    return {method.name: method for method in methods}
