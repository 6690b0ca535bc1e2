"""Networks of many targets, which clients step on in one batch: a round of them, delivery, measuring, checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernfed.arrays import Array, Flags, Floats, Integers
from kernfed.federation.events import RoundMetrics
from kernfed.maths.adam import Adam
from kernfed.maths.tasks import TASKS
from kernfed.methods.personalise.networks.scales import SCALE, Scales
from kernfed.methods.personalise.training_messages import (
    EvaluateNetworksRequest,
    KeepNetworkRequest,
    TrainNetworksRequest,
)
from kernfed.models.network_spec import NetworkSpec, initial_parameters
from kernfed_server.jobs.evaluation import measured
from kernfed_server.jobs.state import State
from kernfed_server.jobs.updating import note_kept_back
from kernfed_server.methods.personalise.state import Collaboration, Targets, targets_of, weighted_sums, without
from kernfed_server.methods.personalise.weights import Personalisation


@dataclass(frozen=True, slots=True)
class Apart:
    """Which rows each of T networks does not see."""

    num_folds: int
    """Folds of each client's rows."""
    own: Integers
    """Place of the client that a network is for, shape (T,)."""
    fold: Integers
    """The fold of that client's rows that it does not see, from 1 on; 0: it sees all. Shape (T,)."""

    def of_client(self, client: int, weighing: Flags) -> dict[str, Any]:
        """What a client is told of the networks that weigh it, as `TrainNetworksRequest` names it."""
        held = np.where(self.own == client, self.fold, 0)[weighing]
        return {"num_folds": self.num_folds, "held": tuple(held.tolist())}


@dataclass(frozen=True, slots=True)
class Everywhere:
    """No network sees the first fold of any client."""

    num_folds: int

    def of_client(self, client: int, weighing: Flags) -> dict[str, Any]:
        """See `Apart.of_client`."""
        del client
        return {"num_folds": self.num_folds, "held": (1,) * int(weighing.sum())}


@dataclass
class Networks:
    """Networks of all targets, T of P parameters."""

    job: Personalisation
    spec: NetworkSpec
    clients: tuple[str, ...]
    targets: Targets
    parameters: Floats
    """Shape (T, P)."""
    adam: Adam
    scales: Scales | None = None
    """In which the parameters are; None: those of all rows."""
    apart: Apart | Everywhere | None = None
    """Rows that networks do not see; None: they see all."""

    @property
    def on_rows(self) -> Floats:
        """The networks on rows as clients have them, shape (T, P)."""
        return self.parameters if self.scales is None else self.scales.to_rows(self.spec, self.parameters)

    @classmethod
    def start(
        cls,
        job: Personalisation,
        spec: NetworkSpec,
        clients: tuple[str, ...],
        targets: Targets,
        apart: Apart | Everywhere | None = None,
    ) -> Networks:
        """All from the same parameters."""
        start = initial_parameters(spec, job.seed("network"), job.setup.agreed.class_order)
        parameters = np.tile(start, (len(targets.mix), 1))
        scales = None
        if job.settings.network_scale == "mixture" and "network_scale" not in job.settings.idle_keys():
            scales = mixture_scales(job, spec, clients, targets.mix)
        return cls(job, spec, clients, targets, parameters, Adam.start(parameters.shape), scales, apart)

    async def turn(self, seed: int) -> float:
        """A round of local steps, batches by the seed; returns the root mean square movement of a parameter."""
        settings, mix = self.job.settings, self.targets.mix
        members = set(self.job.cohort.clients)
        requests = {}
        networks = self.on_rows
        for k, client in enumerate(self.clients):
            weighing = mix[:, k] > 0
            if client in members and weighing.any():
                requests[client] = TrainNetworksRequest(
                    network=self.spec,
                    networks=networks[weighing],
                    learning_rate=settings.learning_rate,
                    num_steps=settings.local_steps,
                    batch_size=settings.batch_size,
                    weight_decay=settings.weight_decay,
                    seed=seed,
                    **(self.apart.of_client(k, weighing) if self.apart else {}),
                )
        replies = await self.job.cohort.ask_each(requests)
        note_kept_back(self.job.run, replies)
        parts = {k: replies[c].networks for k, c in enumerate(self.clients) if c in replies}
        missing = [k for k in range(len(self.clients)) if k not in parts]
        before = self.parameters
        await asyncio.to_thread(self._move, without(mix, missing) if missing else mix, networks, parts)
        return float(np.sqrt(np.square(self.parameters - before).mean()))

    def _move(self, mix: Floats, networks: Floats, parts: Mapping[int, Floats]) -> None:
        settings = self.job.settings
        reached: Flags = mix.max(axis=1) > 0
        # Rows of zeros: of those that the target weighs nobody answered.
        mean = weighted_sums(mix, parts, (self.parameters.shape[1],))
        moved = np.where(reached[:, None], mean, networks)
        if settings.optimiser == "average":
            self.parameters = moved
            return
        gradient = (networks - moved) / settings.learning_rate
        if self.scales is not None:
            gradient = self.scales.of_gradients(self.spec, gradient)
        self.parameters, self.adam = self.adam.step(self.parameters, gradient, settings.step_size)

    async def deliver(self, found: Collaboration) -> None:
        """Give every client its own network, and the weights that trained it."""
        members, networks = set(self.job.cohort.clients), self.on_rows
        own = {}
        for i, c in enumerate(self.targets.names):
            if c in members:
                k = found.clients.index(c)
                weights, choice = tuple(found.weights[k].tolist()), found.choices[k]
                own[c] = KeepNetworkRequest(network=self.spec, parameters=networks[i], weights=weights, choice=choice)
        await self.job.run.optional(self.job.ask_each_learner(own), "not all clients could keep their networks")

    async def measure(self, *, alone: bool) -> RoundMetrics:
        """Metrics of personal networks and the global one; with `alone` also of what clients train by themselves."""
        settings = self.job.settings
        members, networks = set(self.job.cohort.clients), self.on_rows
        own: dict[str, dict[str, tuple[float, ...]]] = {}
        if self.scales is not None and alone:
            known = [c for c in self.clients if c in self.job.moments]  # after a restart one may have fallen out
            shares = self.targets.mix[-1][[self.clients.index(c) for c in known]]
            everyone = np.vstack([np.eye(len(known)), shares / shares.sum()])
            scales = mixture_scales(self.job, self.spec, tuple(known), everyone)
            own = {c: scales.of_one(k) for k, c in enumerate(known)}
        start = initial_parameters(self.spec, self.job.seed("network"), self.job.setup.agreed.class_order)
        requests = {
            c: EvaluateNetworksRequest(
                network=self.spec,
                personal=networks[i],
                federated=networks[-1],
                start=start,
                local_rounds=settings.rounds - 1 if alone else 0,
                adam=settings.optimiser == "adam",
                step_size=settings.step_size,
                learning_rate=settings.learning_rate,
                num_steps=settings.local_steps,
                batch_size=settings.batch_size,
                weight_decay=settings.weight_decay,
                seed=self.job.seed("alone"),
                num_folds=settings.kept_apart,
                **own.get(c, {}),
            )
            for i, c in enumerate(self.targets.names)
            if c in members
        }
        found = await measured(self.job.ask_each_learner(requests), self.job.setup.schema.task, self.job.run)
        self.job.run.came_to({"parameters": self.parameters}, found)
        return found

    def leave_by_round(self, found: Collaboration) -> None:
        """Say how a round that was measured is left, if the run diverges later: each client gets its network of it."""

        def networks(of: State) -> Networks:
            return replace(self, parameters=np.array(of["parameters"], dtype=np.float64))

        async def leave(of: State) -> None:
            await networks(of).deliver(found)

        self.job.run.sound.leave_by(leave, lambda of: networks(of).measure(alone=False))

    def to_arrays(self) -> dict[str, Array]:
        """All that a resumed run needs."""
        scales = {} if self.scales is None else self.scales.to_arrays()
        return {"parameters": self.parameters, **self.adam.to_arrays(), **scales}

    @classmethod
    def from_arrays(cls, job: Personalisation, spec: NetworkSpec, found: Collaboration, arrays: State) -> Networks:
        """Go on where an earlier life had come to."""
        return cls(
            job,
            spec,
            found.clients,
            targets_of(found, job.settings.min_weight),
            np.array(arrays["parameters"], dtype=np.float64),
            Adam.from_arrays(arrays),
            Scales.from_arrays(arrays.part(SCALE)),
            everywhere(job.settings.kept_apart),
        )


def everywhere(num_folds: int) -> Everywhere | None:
    """What is kept apart by the job's key `kept_apart`."""
    return Everywhere(num_folds) if num_folds else None


def mixture_scales(job: Personalisation, spec: NetworkSpec, clients: tuple[str, ...], mix: Floats) -> Scales:
    """The scale of each mixture's rows, from the moments that clients stated."""
    num_columns = spec.num_columns
    parts = [job.moments[client] for client in clients]
    columns = [(m.mean[:num_columns], m.deviation[:num_columns]) for m in parts]
    if TASKS[spec.task].has_classes:
        return Scales.of_mixtures(mix, columns, None, spec)
    centre, spread = job.embedded_by.target_mean, job.embedded_by.target_deviation
    targets = [((m.mean[num_columns:] - centre) / spread, m.deviation[num_columns:] / spread) for m in parts]
    return Scales.of_mixtures(mix, columns, targets, spec)
