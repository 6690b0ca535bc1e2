"""Neural networks in distillation, trained as FedMD does: on the consensus of the public points, then on own rows.

A network goes on from its last state, so states are kept beside the job's setup, round by round: a client that was
restarted, or is asked a round again, gets the same bits. Source: Li & Wang (2019), FedMD; with unlabelled points.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kernfed import rng
from kernfed.arrays import Array, Flags, Floats
from kernfed.errors import ConfigError, DataError
from kernfed.jobs.client_models import NetworkModelSection
from kernfed.section import ACCEPTED
from kernfed_client.data import kept_arrays
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.distill.import_class import import_class
from kernfed_client.methods.distill.kept_apart import parts
from kernfed_client.methods.distill.learner import Compared, Lesson
from kernfed_client.models.private_model import Scorer

Weights = Mapping[str, Array]

_KEPT_ROUNDS = 3
"""States kept beside that before round 1; a coordinator that was restarted goes back by one round."""


class NetworkLearner:
    """A network of this client."""

    def __init__(self, job: LocalJob, lesson: Lesson, section: NetworkModelSection, apart: Flags | None = None) -> None:
        """Check that the network can be made.

        Args:
            job: At this client.
            lesson: What it learns from.
            section: Of the client file.
            apart: Rows that it must not see, (N,): of the network by which the other one is judged.

        Raises:
            ConfigError: It cannot.
        """
        self._device, self._section = job.device, section
        self._twin: NetworkLearner | None = None
        self._apart = lesson.only(np.zeros(len(lesson.x), dtype=bool) if apart is None else apart)
        if apart is not None:
            lesson = lesson.only(~apart)
        elif lesson.comparable:
            # A network learns over all rounds, so rows are kept apart from the first one on, of a network of its own.
            self._twin = NetworkLearner(job, lesson, section, parts(lesson.unit, lesson.seed)[0])
        self._lesson = lesson
        name = "network" if apart is None else "network-kept-apart"
        self._folder = job.folder / "setup" / name  # goes when the job is over, like its setup
        y = lesson.y
        self._offset = y.mean(axis=0)
        self._scale = max(float(y.std()), 1e-12) if y.std() > 0 else 1.0
        self._details: Mapping[str, Any] = {
            "section": section.model_dump(mode="json"),
            "num_columns": lesson.x.shape[1],
            "num_outputs": y.shape[1],
            "offset": self._offset.tolist(),
            "scale": self._scale,
            "seed": lesson.seed,
        }
        make_network(self._details)
        self._fitted: dict[tuple[int, str], Weights] = {}

    def own(self) -> _FittedNetwork:
        """See `Learner.own`."""
        return self._wrap(self._state_of(0) or self._pretrain())

    def distilled(
        self, trained_round: int, targets: Floats, *, lasting: bool, deregularise: bool = False
    ) -> _FittedNetwork:
        """See `Learner.distilled`: goes on from the last round that this client took part in."""
        del deregularise
        if lasting and self._twin is not None:
            self._twin.distilled(trained_round, targets, lasting=True)
        key = trained_round, hashlib.sha256(np.ascontiguousarray(targets).tobytes()).hexdigest()
        weights = self._fitted.get(key)
        if weights is None:
            before = self._latest_before(trained_round)
            start = self._state_of(before) if before is not None else None
            weights = self._learn(start or self._state_of(0) or self._pretrain(), trained_round, targets)
            self._fitted = {key: weights}
        if lasting:
            self._keep(trained_round, weights)
        return self._wrap(weights)

    def compared(self, trained_round: int, targets: Floats) -> Compared | None:
        """See `Learner.compared`: by a second network that learns the same way without a fifth of the rows."""
        if self._twin is None:
            return None
        own, distilled = self._twin.own(), self._twin.distilled(trained_round, targets, lasting=False)
        apart = self._twin._apart
        alone, taught = (apart.y - model.scores(apart.x) for model in (own, distilled))
        return Compared(alone, taught, apart.unit, apart.near, apart.y)

    def _pretrain(self) -> Weights:
        network = make_network(self._details).to(self._device)
        self._train(network, self._lesson.x, self._lesson.y, self._section.pretrain_epochs, 0, "own")
        weights = _weights(network)
        self._keep(0, weights)
        return weights

    def _learn(self, start: Weights, trained_round: int, targets: Floats) -> Weights:
        network = make_network(self._details).to(self._device)
        _load(network, start)
        lesson, section = self._lesson, self._section
        self._train(network, lesson.public, targets, section.digest_epochs, trained_round, "public")
        self._train(network, lesson.x, lesson.y, section.revisit_epochs, trained_round, "own")
        return _weights(network)

    def _train(self, network: nn.Module, x: Floats, t: Floats, epochs: int, round_num: int, part: str) -> None:
        rows = torch.tensor(x, dtype=torch.float32, device=self._device)
        targets = torch.tensor((t - self._offset) / self._scale, dtype=torch.float32, device=self._device)
        optimiser = torch.optim.Adam(network.parameters(), lr=self._section.learning_rate)
        order = rng.stream(self._lesson.seed, "network", part, str(round_num))
        network.train()
        with torch.random.fork_rng():
            torch.manual_seed(self._lesson.seed + round_num)  # dropout
            for _ in range(epochs):
                shuffled = torch.from_numpy(order.permutation(len(rows))).to(self._device)
                for batch in torch.split(shuffled, self._section.batch_size):
                    optimiser.zero_grad()
                    loss = torch.nn.functional.mse_loss(network(rows[batch]), targets[batch])
                    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                    optimiser.step()
        if not all(bool(p.isfinite().all()) for p in network.parameters()):
            raise DataError("the network's training left the range of numbers; lower learning_rate in the client file")

    def _wrap(self, weights: Weights) -> _FittedNetwork:
        return _FittedNetwork(weights, self._details, self._lesson.public, str(self._device))

    def _path(self, round_num: int) -> Path:
        return self._folder / f"{round_num:07d}.safetensors"

    def _rounds(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.safetensors")) if self._folder.is_dir() else []

    def _latest_before(self, round_num: int) -> int | None:
        return max((r for r in self._rounds() if r < round_num), default=None)

    def _state_of(self, round_num: int) -> Weights | None:
        kept = kept_arrays.read(self._path(round_num))
        return None if kept is None else kept[0]

    def _keep(self, round_num: int, weights: Weights) -> None:
        kept_arrays.write(self._path(round_num), weights)
        for old in [r for r in self._rounds() if 0 < r <= round_num][:-_KEPT_ROUNDS]:
            self._path(old).unlink(missing_ok=True)


class _FittedNetwork:
    def __init__(self, weights: Weights, details: Mapping[str, Any], public: Floats, device: str) -> None:
        self._weights, self._details, self._public, self._device = weights, details, public, device

    def public(self) -> Floats:
        return self.scores(self._public)

    def scores(self, x: Floats) -> Floats:
        return module_scorer(self._weights, self._details)(x, self._device)

    def parts(self) -> tuple[str, Weights, Mapping[str, Any], Scorer]:
        return "network", self._weights, self._details, module_scorer(self._weights, self._details)


def module_scorer(weights: Weights, details: Mapping[str, Any]) -> Scorer:
    """Scores of a site's own network with given weights; arguments as of `_FittedNetwork`."""

    def score(x: Floats, device: str) -> Floats:
        network = make_network(details).to(device)
        _load(network, weights)
        network.eval()
        with torch.no_grad():
            rows = torch.tensor(x, dtype=torch.float32, device=device)
            parts = [network(part) for part in torch.split(rows, 4096)]
        found = torch.cat(parts).cpu().numpy() if len(x) else np.zeros((0, details["num_outputs"]))
        scores: Floats = found.astype(np.float64) * details["scale"] + np.asarray(details["offset"])
        return scores

    return score


def make_network(details: Mapping[str, Any]) -> nn.Module:
    """A network with its first weights, drawn from the seed.

    Raises:
        ConfigError: It cannot be made, or does not give so many outputs for so many columns.
    """
    section = NetworkModelSection.model_validate(details["section"], context={ACCEPTED: True})
    num_columns, num_outputs = int(details["num_columns"]), int(details["num_outputs"])
    with torch.random.fork_rng():
        torch.manual_seed(int(details["seed"]))
        if section.kind == "mlp":
            network = _mlp(num_columns, section.hidden, num_outputs)
        elif section.kind == "cnn":
            network = _cnn(num_columns, section.image_shape or [], num_outputs)
        else:
            network = _custom(section, num_columns, num_outputs)
    network.eval()
    with torch.no_grad():
        try:
            shape = tuple(network(torch.zeros(2, num_columns)).shape)
        except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as err:
            raise ConfigError(
                f"[models] of the client file: the network cannot take {num_columns} columns: {err}"
            ) from err
    if shape != (2, num_outputs):
        raise ConfigError(
            f"[models] of the client file: the network gives {shape[1:]} numbers per row where the job has "
            f"{num_outputs} outputs"
        )
    return network


def _mlp(num_columns: int, hidden: list[int], num_outputs: int) -> nn.Module:
    sizes = [num_columns, *hidden]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], num_outputs))


def _cnn(num_columns: int, image_shape: list[int], num_outputs: int) -> nn.Module:
    """LeNet-5 (LeCun et al., 1998) with ReLU and max-pooling."""
    channels, height, width = image_shape if len(image_shape) == 3 else [1, *image_shape]
    if channels * height * width != num_columns or min(height, width) < 12:
        raise ConfigError(
            f"[models] of the client file: image_shape {image_shape} is for {channels * height * width} columns of at "
            f"least 12 x 12 pixels, and the job has {num_columns}"
        )
    down = ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2)
    return nn.Sequential(
        nn.Unflatten(1, (channels, height, width)),
        nn.Conv2d(channels, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * down, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, num_outputs),
    )


def _custom(section: NetworkModelSection, num_columns: int, num_outputs: int) -> nn.Module:
    found = import_class(section.class_name or "", "[models] of the client file")
    if not issubclass(found, nn.Module):
        raise ConfigError(f"[models] of the client file: {section.class_name} is not a torch.nn.Module")
    try:
        network: nn.Module = found(num_columns, num_outputs, **section.parameters)
    except TypeError as err:
        raise ConfigError(
            f"[models] of the client file: {section.class_name} cannot be made with (columns, outputs, parameters): "
            f"{err}"
        ) from err
    return network


def _weights(network: nn.Module) -> Weights:
    return {name: np.ascontiguousarray(tensor.detach().cpu().numpy()) for name, tensor in network.state_dict().items()}


def _load(network: nn.Module, weights: Weights) -> None:
    def tensor(array: Array) -> Tensor:
        return torch.from_numpy(np.array(array, copy=True))

    network.load_state_dict({name: tensor(array) for name, array in weights.items()})
