"""Ways to deal the rows of one data file out to clients, as papers do and as institutions find them.

`iid`: equal parts of the shuffled rows. `quantity:ALPHA`: parts of the shuffled rows whose sizes are Dirichlet(ALPHA).
`dirichlet:ALPHA`: label skew; each class is dealt out by its own Dirichlet(ALPHA) shares. `column:NAME`: a client for
each value of a column. The smaller ALPHA, the more uneven.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv

from kernfed import rng
from kernfed.arrays import Floats, Integers
from kernfed.errors import ConfigError, DataError

_ATTEMPTS = 1000


class Scheme(enum.StrEnum):
    """Way in which rows are dealt out."""

    IID = "iid"
    QUANTITY = "quantity"
    DIRICHLET = "dirichlet"
    COLUMN = "column"


@dataclass(frozen=True, slots=True)
class Partitioning:
    """A scheme and its parameter."""

    scheme: Scheme
    alpha: float = math.inf
    """Of the Dirichlet distribution."""
    column: str = ""


def parse_partitioning(text: str) -> Partitioning:
    """Read `iid`, `quantity:0.5`, `dirichlet:0.5` or `column:site`.

    Raises:
        ConfigError: It is none of these.
    """
    name, _, parameter = text.partition(":")
    if name == Scheme.IID and not parameter:
        return Partitioning(Scheme.IID)
    if name == Scheme.COLUMN and parameter:
        return Partitioning(Scheme.COLUMN, column=parameter)
    if name in (Scheme.QUANTITY, Scheme.DIRICHLET):
        try:
            alpha = float(parameter)
        except ValueError:
            alpha = math.nan
        if 0.0 < alpha < math.inf:
            return Partitioning(Scheme(name), alpha=alpha)
        raise ConfigError(f"--partition {text}: give a number above 0 after the colon, e.g. {name}:0.5")
    raise ConfigError(f"--partition {text}: unknown; use iid, quantity:ALPHA, dirichlet:ALPHA or column:NAME")


def client_names(num_clients: int) -> list[str]:
    """`client-01`, `client-02`, ...: in the order of their numbers when sorted as texts."""
    width = max(2, len(str(num_clients)))
    return [f"client-{i:0{width}d}" for i in range(1, num_clients + 1)]


def deal(
    partitioning: Partitioning,
    num_rows: int,
    labels: Sequence[str] | None,
    num_clients: int,
    seed: int,
    min_rows: int = 4,
) -> dict[str, Integers]:
    """Deal rows out to clients `client-01`, ...; each client's rows stay in the file's order.

    Args:
        partitioning: Any scheme but `column`.
        num_rows: Rows n.
        labels: Class of each row; None for regression.
        num_clients: How many.
        seed: Of the draws.
        min_rows: Fewest rows of a client; uneven shares are drawn again until all have as many.

    Raises:
        ConfigError: `dirichlet` without classes.
        DataError: There are too few rows.
    """
    if num_rows < num_clients * min_rows:
        raise DataError(
            f"{num_rows} rows are too few for {num_clients} clients of at least {min_rows}; lower --clients, or give "
            "more data"
        )
    if partitioning.scheme is Scheme.DIRICHLET and labels is None:
        raise ConfigError(
            "--partition dirichlet skews classes, but the task is regression; use quantity:ALPHA or column:NAME"
        )
    order = rng.stream(seed, "simulation", "order").permutation(num_rows)
    for attempt in range(_ATTEMPTS):
        stream = rng.stream(seed, "simulation", partitioning.scheme, str(attempt))
        if partitioning.scheme is Scheme.IID:
            owners = _owners(order, np.full(num_clients, 1.0 / num_clients))
        elif partitioning.scheme is Scheme.QUANTITY:
            owners = _owners(order, dirichlet(stream, partitioning.alpha, num_clients))
        else:
            owners = np.empty(num_rows, dtype=np.int64)
            known = np.asarray(labels)[order]
            for label in sorted(set(labels or ())):
                rows = order[known == label]
                owners[rows] = _owners(rows, dirichlet(stream, partitioning.alpha, num_clients))[rows]
        sizes = np.bincount(owners[owners >= 0], minlength=num_clients)
        if sizes.min() >= min_rows:
            return {name: np.flatnonzero(owners == i) for i, name in enumerate(client_names(num_clients))}
    raise DataError(
        f"no draw in {_ATTEMPTS} gave each of {num_clients} clients {min_rows} rows; raise ALPHA, or lower --clients"
    )


def deal_by_column(values: Sequence[str]) -> dict[str, Integers]:
    """One client for each value, named after it in lower case; rows stay in the file's order.

    Raises:
        DataError: Two values give the same name, or one gives none.
    """
    names: dict[str, str] = {}
    for value in sorted(set(values)):
        name = re.sub(r"[^a-z0-9._-]+", "-", value.lower()).strip("-._")[:63]
        if not name or name in names:
            raise DataError(
                f"two values of the column give the client name {name!r}; write values that differ in letters or digits"
            )
        names[name] = value
    found = np.asarray(values)
    return {name: np.flatnonzero(found == value) for name, value in sorted(names.items())}


def dirichlet(stream: rng.Stream, alpha: float, size: int) -> Floats:
    """Draw shares from the symmetric Dirichlet distribution, shape (size,), sum 1.

    By inversion of the gamma distribution function, one uniform each; where alpha is so small that all numbers vanish,
    one share has everything, which is the limit.
    """
    uniforms = stream.uniform(size)
    gammas: Floats = gammaincinv(alpha, uniforms)
    if not gammas.sum() > 0:
        gammas = (uniforms == uniforms.max()).astype(np.float64)
    gammas /= gammas.sum()
    return gammas


def _owners(order: Integers, shares: Floats) -> Integers:
    """Cut `order` into consecutive parts of the given shares; who owns each row, shape (max + 1,), -1: nobody."""
    ends = np.rint(np.cumsum(shares) * order.size).astype(np.int64)
    ends[-1] = order.size
    owners = np.full(int(order.max()) + 1, -1, dtype=np.int64)
    for i, part in enumerate(np.split(order, ends[:-1])):
        owners[part] = i
    return owners
