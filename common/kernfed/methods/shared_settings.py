"""Settings that several methods share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from kernfed.errors import ConfigError
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.robust import AggregateName, MeanRule
from kernfed.models.network_spec import NetworkKind, NetworkSpec, make_network_spec
from kernfed.section import MethodSection, Only, Section, Unused

BY_ROWS: Literal["by-rows"] = "by-rows"
"""The ridge follows from the feature map and the training rows once clients are prepared."""
AUTO: Literal["auto"] = "auto"
"""The ridge with which rows that clients keep apart are predicted best, once they are prepared."""
AUTO_IF_MANY: Literal["auto-if-many"] = "auto-if-many"
"""`AUTO` where the clients have `MANY_ROWS` training rows in all and the method can search, else `BY_ROWS`."""
MANY_ROWS = 1_000
"""From so many training rows of all clients on, rows kept apart tell ridges apart."""
RidgeNumber = Annotated[float, Field(gt=0, le=1e6)]
RIDGE_RULE = (
    "by-rows: 0.3/rows on random features, half of it for half-cosines; on d columns 0.01 d/rows min(1, d/rows) and at "
    "least 1e-6, of a head 1e-3; at most 1e-3, which the quadratic map has always. Rows are all clients'; for `local` "
    "the client's own."
)
Ridge = Annotated[
    RidgeNumber | Literal["by-rows"],
    Field(description=f"Ridge of the objective |ZW - Y|²/(2n) + (ridge/2)|W|². {RIDGE_RULE}"),
]
CHOSEN = (
    "auto: the one with which the pooled solution predicts folds of the clients' training rows best, of those from "
    "1e-4 to 1e3 times that by rows, by half tens; a list: of those listed. Clients tell sums over folds, of the kind "
    "sufficient_statistic; each client chooses that of its own model alike."
)
ChosenRidge = Annotated[
    RidgeNumber | Literal["by-rows", "auto"] | Annotated[list[RidgeNumber], Field(min_length=1, max_length=100)],
    Field(description=f"Ridge of the objective |ZW - Y|²/(2n) + (ridge/2)|W|². {RIDGE_RULE} {CHOSEN}"),
]
Rounds = Annotated[int, Field(ge=1, le=1_000_000, description="Turns of the method's loop.")]
Width = Annotated[int, Field(ge=1, le=100_000)]

ONE_ROUND = Unused("evaluate_every", "measures its models once")
MAX_SHARE = "cohort.max_share"
ROW_QUORUM = "cohort.min_rows_fraction"
NO_RIDGE_ALONE = Unused("local_shared", "compares itself with no ridge model of each client")
ALL_ROWS = (
    NO_RIDGE_ALONE,
    Unused("data.test_fraction", "takes all rows, and holds none out"),
    Unused("data.validation_fraction", "takes all rows, and holds none out"),
    Unused("data.split", "takes all rows, and holds none out"),
    Unused("data.scales", "takes rows that stand far out as they are"),
    Unused("features", "takes the columns without a feature map"),
    Unused(MAX_SHARE, "counts each row once"),
)
"""Of methods that take all rows as they are (`Method.all_rows`), column by column."""


class AveragedSettings(MethodSection):
    """Keys of methods that make one update of those of all clients, which the coordinator sees."""

    aggregate: AggregateName = Field(
        "mean",
        description="Of what the clients moved to: mean by their rows; median, entry by entry, of clients that count "
        "alike; trimmed: the mean without the largest and smallest of each entry.",
    )
    trim: Annotated[float, Only(aggregate="trimmed")] = Field(
        0.2, gt=0, lt=0.5, description="Part of the clients that is left out at either end, rounded up."
    )
    max_norm: Annotated[float | None, Only(aggregate="mean")] = Field(
        None,
        gt=0,
        le=1e6,
        description="No update counts with more than so many times the median norm of the round's updates; unset: all "
        "count as they are.",
    )

    @property
    def rule(self) -> MeanRule:
        """The three as one."""
        return MeanRule(self.aggregate, self.trim, self.max_norm)


def seen_means(settings: Any) -> str:
    """Why means of settings with `AveragedSettings` and a ridge cannot be secure sums; empty: they can."""
    if not settings.rule.plain:
        return "compares the clients' updates with one another, by method.aggregate or method.max_norm"
    return seen_ridge(settings)


def seen_ridge(settings: Any) -> str:
    """Why sums of settings with a ridge cannot be secure sums; empty: they can."""
    if settings.ridge == AUTO or isinstance(settings.ridge, list):
        return "chooses method.ridge by sums over folds of each client's rows, which are sent in the clear"
    return ""


class NetworkSection(Section):
    """The network that is trained on the standardised columns."""

    kind: str = Field("mlp", description="What it is built of; each table narrows it to the kinds that it takes.")
    widths: Annotated[list[Width], Only(kind=("mlp", "cnn"))] = Field(
        [], max_length=16, description="Hidden layers, e.g. [32, 32]; of a cnn two numbers of channels, then layers."
    )
    image: Annotated[list[Width], Only(kind="cnn")] = Field(
        [], max_length=3, description="[channels, height, width] of a row."
    )

    @property
    def all_widths(self) -> tuple[int, ...]:
        """Widths, LeNet's where a cnn states none and one layer of 32 for an mlp."""
        defaults = {
            NetworkKind.CNN: (6, 16, 120, 84),
            NetworkKind.MLP: (32,),
            NetworkKind.LINEAR: (),
            NetworkKind.OWN: (),
        }
        return tuple(self.widths) or defaults[NetworkKind(self.kind)]

    @property
    def normed(self) -> bool:
        """Whether hidden layers have batch normalisation."""
        return False

    @property
    def own_name(self) -> str:
        """Of a module of the clients' own, how their files call it; else empty."""
        return ""

    def spec(self, task: LearningTask, num_columns: int, num_outputs: int, *, batch_norm: bool = False) -> NetworkSpec:
        """The network on so many columns.

        Raises:
            ConfigError: They do not fit; names the key of the job's `method.network` table.
        """
        return make_network_spec(
            NetworkKind(self.kind), task, num_columns, num_outputs, self.all_widths, tuple(self.image), batch_norm
        )


class BuiltNetworkSection(NetworkSection):
    """A network of the kinds that kernfed builds itself."""

    kind: Literal["linear", "mlp", "cnn"] = Field("mlp", description="linear, mlp or cnn (LeNet).")


def ridge_of(settings: Any) -> float:
    """The number that `ridge` stands for in a job whose clients are prepared.

    Raises:
        ConfigError: They are not: nobody knows the rows yet.
    """
    ridge = settings.ridge
    if isinstance(ridge, str | list):
        raise ConfigError(f"method.ridge = {ridge!r} is a number once the clients are prepared; give a number here")
    return float(ridge)
