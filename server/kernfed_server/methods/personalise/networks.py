"""Personal networks by federated averaging with each target's weights, all targets at once.

Each round a client steps on the networks of all targets that weigh it, as one batch. A target's network moves by the
weighted mean of what came back, as it is or through Adam.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Array, Floats
from kernfed.federation.events import RoundMetrics
from kernfed.maths.adam import Adam
from kernfed.maths.tasks import TASKS
from kernfed.methods.personalise.network_scales import SCALE, Scales
from kernfed.methods.personalise.training_messages import (
    EvaluateNetworksRequest,
    KeepNetworkRequest,
    TrainNetworksRequest,
)
from kernfed.models.network_spec import NetworkSpec, initial_parameters
from kernfed_server.jobs.evaluation import measured
from kernfed_server.jobs.state import State
from kernfed_server.methods.personalise.choosing import find_weights
from kernfed_server.methods.personalise.state import Collaboration, Targets, targets_of, weighted_sums, without
from kernfed_server.methods.personalise.weights import Personalisation


async def train_networks(job: Personalisation, found: Collaboration | None) -> None:
    """Round 1 finds the weights; each further round trains. At the end every client gets its own network.

    A client that misses a round is left out of its means, and the others' weights are scaled up for it.
    """
    spec = network_of(job)
    networks: _Networks | None = None
    if found is not None and job.run.resumed is not None:
        networks = _Networks.from_arrays(job, spec, found, job.run.resumed)
    async for round_num in job.run.rounds(job.settings.rounds):
        if found is None:
            await find_weights(job)
            found = await job.told_weights(needed=True)
            networks = _Networks.start(job, spec, found)
            await job.run.record(round_num, {**found.to_arrays(), **networks.to_arrays()}, RoundMetrics())
            continue
        assert networks is not None  # noqa: S101  # made with the weights
        moved = await networks.turn(round_num)
        last = round_num == job.settings.rounds
        metrics = RoundMetrics(training={"movement": moved})
        if last:
            await networks.deliver()
        if last or job.run.evaluates(round_num, job.settings.rounds):
            metrics = metrics.merged(await networks.measure(alone=last))
        if last:
            job.publish(found, metrics)
            job.run.ends(job.run.settled(round_num, whole=False, what="the networks"))
        await job.run.record(round_num, {**found.to_arrays(), **networks.to_arrays()}, metrics)


def network_of(job: Personalisation) -> NetworkSpec:
    """The network of the job, on its columns.

    Raises:
        ConfigError: They do not fit.
    """
    schema = job.setup.schema
    return job.settings.network.spec(schema.task, len(schema.features), job.setup.num_outputs)


@dataclass
class _Networks:
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

    @property
    def on_rows(self) -> Floats:
        """The networks on rows as clients have them, shape (T, P)."""
        return self.parameters if self.scales is None else self.scales.to_rows(self.spec, self.parameters)

    @classmethod
    def start(cls, job: Personalisation, spec: NetworkSpec, found: Collaboration) -> _Networks:
        """All from the same parameters."""
        targets = job.targets(found)
        start = initial_parameters(spec, job.seed("network"), job.setup.class_order)
        parameters = np.tile(start, (len(targets.mix), 1))
        scales = None
        if job.settings.network_scale == "mixture" and "network_scale" not in job.settings.idle_keys():
            scales = mixture_scales(job, spec, found.clients, targets.mix)
        return cls(job, spec, found.clients, targets, parameters, Adam.start(parameters.shape), scales)

    async def turn(self, round_num: int) -> float:
        """A round of local steps; returns the root mean square movement of a parameter."""
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
                    seed=self.job.seed("batches", str(round_num)),
                )
        replies = await self.job.cohort.ask_each(requests)
        parts = {k: replies[c].networks for k, c in enumerate(self.clients) if c in replies}
        missing = [k for k in range(len(self.clients)) if k not in parts]
        before = self.parameters
        await asyncio.to_thread(self._move, without(mix, missing) if missing else mix, networks, parts)
        self.job.run.moved(before, self.parameters)
        return float(np.sqrt(np.square(self.parameters - before).mean()))

    def _move(self, mix: Floats, networks: Floats, parts: Mapping[int, Floats]) -> None:
        settings = self.job.settings
        reached: npt.NDArray[np.bool_] = mix.max(axis=1) > 0
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

    async def deliver(self) -> None:
        """Give every client its own network."""
        members, networks = set(self.job.cohort.clients), self.on_rows
        own = {
            c: KeepNetworkRequest(network=self.spec, parameters=networks[i])
            for i, c in enumerate(self.targets.names)
            if c in members
        }
        await self.job.run.optional(self.job.cohort.ask_each(own), "not all clients could keep their networks")

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
        start = initial_parameters(self.spec, self.job.seed("network"), self.job.setup.class_order)
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
                **own.get(c, {}),
            )
            for i, c in enumerate(self.targets.names)
            if c in members
        }
        return await measured(self.job.cohort.ask_each(requests), self.job.setup.schema.task, self.job.run)

    def to_arrays(self) -> dict[str, Array]:
        """All that a resumed run needs."""
        scales = {} if self.scales is None else self.scales.to_arrays()
        return {"parameters": self.parameters, **self.adam.to_arrays(), **scales}

    @classmethod
    def from_arrays(cls, job: Personalisation, spec: NetworkSpec, found: Collaboration, arrays: State) -> _Networks:
        """Go on where an earlier life had come to."""
        return cls(
            job,
            spec,
            found.clients,
            targets_of(found, job.settings.min_weight),
            np.array(arrays["parameters"], dtype=np.float64),
            Adam.from_arrays(arrays),
            Scales.from_arrays(arrays.part(SCALE)),
        )


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
