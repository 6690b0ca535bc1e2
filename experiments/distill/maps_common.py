"""The rounds of Algorithms 2 and 3 of the distillation paper on the clients' affine maps, many thousands of them.

What a client predicts on the public points is affine in the targets that it is given, so a round needs no solve. The
first rounds of each kind are run through the workflow too, and must agree (`agree`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from distill.common import DataSet, Draw, run_job

from kernfed.maths.points.kernels import gram
from kernfed.maths.sampling import inclusion_probabilities, num_drawn, sample_clients
from kernfed.methods.distill.consensus import Deregulariser, fixed_point, mean_predictions, remember, spectral_radius
from kernfed.methods.distill.consensus_file import PublicConsensus
from kernfed.methods.distill.tensors.distillation import DistilledRidge, kernel_ridge
from kernfed_simulation.partition import client_names

Floats = npt.NDArray[np.float64]
ALIKE: Mapping[str, float] = {}
"""Clients are drawn equally often."""


class Maps:
    """One draw: every client's own predictions on the public points, its affine map, and what undoes the ridge.

    Args:
        data: Its kernel counts.
        drawn: The rows.
        ridge: Of all clients, and of de-regularisation.
    """

    def __init__(self, data: DataSet, drawn: Draw, ridge: float) -> None:
        self.data, self.drawn, self.ridge = data, drawn, ridge
        public = torch.from_numpy(drawn.public)
        self.clients = []
        self.own = []
        for x, y in drawn.train:
            a, b = torch.from_numpy(x), torch.from_numpy(y)[:, None]
            self.own.append(kernel_ridge(data.kernel, a, b, ridge)(public).numpy())
            self.clients.append(DistilledRidge(data.kernel, a, b, public, ridge, 1 / len(drawn.train)))
        self.maps = [(c.affine_map[0].numpy(), c.affine_map[1].numpy()) for c in self.clients]
        self._k = gram(data.kernel, drawn.public)
        self.undo = Deregulariser(self._k, ridge)

    @property
    def limit(self) -> Floats:
        """Consensus of Algorithm 2 after endless rounds, (points, 1), by one solve."""
        return fixed_point(self.maps, self._k, self.ridge)

    @property
    def radius(self) -> float:
        """Spectral radius of Algorithm 2's map: its distance to the limit shrinks by it in a round."""
        return spectral_radius(self.maps, self._k, self.ridge)

    def limit_of(self, fraction: float, participation: Mapping[str, float]) -> Floats:
        """Limit of Algorithm 3 where clients are drawn unequally often (Theorem C.16), (points, 1), by one solve."""
        names = client_names(len(self.own))
        weights = [participation.get(name, 1.0) for name in names]
        shares = inclusion_probabilities(weights, num_drawn(len(names), fraction)).tolist()
        return fixed_point(self.maps, self._k, self.ridge, shares=shares)

    def rounds(
        self,
        fraction: float = 1.0,
        exponent: float | None = None,
        *,
        deregularise: bool = True,
        stale: bool = False,
        participation: Mapping[str, float] = ALIKE,
        remember_predictions: bool = False,
    ) -> Iterator[Floats]:
        """The consensus after each round, (points, 1), without end.

        Args:
            fraction: Part of the clients that is drawn in a round.
            exponent: q of the weights t^-q of Algorithm 3; None: the consensus is the new mean.
            deregularise: Whether the ridge's effect is undone before targets are handed out.
            stale: Whether a client answers by the targets that it was given last, as Algorithm 3 is printed.
            participation: How often clients are drawn, relative to the others.
            remember_predictions: Whether a client's last predictions stand for it where it is not drawn.
        """
        names = client_names(len(self.own))
        v: Floats | None = None
        w: Floats | None = None
        last: dict[str, Floats | None] = dict.fromkeys(names)
        kept: dict[str, Floats] = {}
        t = 0
        while True:
            t += 1
            drawn = names if fraction == 1.0 else sample_clients(names, fraction, 0, t, participation)
            uploads: dict[str, Floats] = {}
            for name in drawn:
                j = names.index(name)
                targets = last[name] if stale else w
                uploads[name] = self.own[j] if targets is None else self.maps[j][0] @ targets + self.maps[j][1]
            kept = {**kept, **uploads} if remember_predictions else uploads
            new = mean_predictions([kept[name] for name in sorted(kept)])
            v = new if exponent is None else remember(v, new, t, exponent)
            w = self.undo(v) if deregularise else v
            last.update(dict.fromkeys(drawn, w))
            yield v

    def predictions(self, client: int, consensus: Floats, x: Floats) -> Floats:
        """What a client's model that is distilled from a consensus predicts at x (N, d): (N,)."""
        model = self.clients[client].model(torch.from_numpy(np.ascontiguousarray(consensus)))
        return model(torch.from_numpy(x)).numpy()[:, 0]

    def error(self, consensus: Floats) -> float:
        """Mean squared test error over the clients' models that are distilled from a consensus."""
        x, y = self.drawn.test
        found = [float(np.square(self.predictions(j, consensus, x) - y).mean()) for j in range(len(self.clients))]
        return sum(found) / len(found)


def agree(
    maps: Maps,
    fraction: float,
    exponent: float | None,
    *,
    stale: bool = False,
    participation: Mapping[str, float] = ALIKE,
) -> None:
    """Stop unless the workflow's consensus of Algorithm 3 after ten rounds is that of the maps, to 1e-10.

    Without an exponent the last predictions of clients are remembered.
    """
    settings: dict[str, Any] = {
        "deregularise": "paper",
        "rounds": 10,
        "client_fraction": fraction,
        **({"remember": "predictions"} if exponent is None else {"memory_exponent": exponent}),
    }
    if fraction < 1:
        settings |= {"uploads": "stale" if stale else "current", "participation": dict(participation)}
    done = run_job(maps.data, maps.drawn, maps.ridge, settings)
    assert isinstance(done.left, PublicConsensus)
    rounds = maps.rounds(
        fraction, exponent, stale=stale, participation=participation, remember_predictions=exponent is None
    )
    found = next(v for t, v in enumerate(rounds, 1) if t == 10)
    difference = float(np.abs(done.left.values - found).max())
    if difference > 1e-10:
        raise SystemExit(f"the workflow differs from the maps by {difference:.2g}{' (stale)' if stale else ''}")
