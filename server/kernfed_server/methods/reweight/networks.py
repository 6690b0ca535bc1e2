"""Networks on weighted rows: all variants from the same start, on the same clients and batches."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.errors import QuorumNotMetError
from kernfed.federation.events import RoundMetrics
from kernfed.maths.adam import Adam
from kernfed.maths.sampling import sample_clients
from kernfed.maths.tasks import TASKS
from kernfed.methods.reweight.choice_messages import CompareNetworksRequest
from kernfed.methods.reweight.messages import (
    UNWEIGHTED,
    KeepOwnNetworkRequest,
    MeasureNetworksRequest,
    NetworkScale,
    WeightedGradientRequest,
    WeightedUpdateRequest,
)
from kernfed.methods.reweight.weighted_targets import spread_of
from kernfed.models.beside import ModelsBeside
from kernfed.models.network_model import NetworkModel
from kernfed.models.network_spec import NORM_RATE, NetworkSpec, decayed_entries, initial_parameters, norm_entries
from kernfed_server.jobs.assembly import agreed, job_facts
from kernfed_server.jobs.evaluation import measured
from kernfed_server.jobs.run import Model
from kernfed_server.jobs.state import State
from kernfed_server.jobs.updating import note_kept_back
from kernfed_server.methods.reweight.choice import WEIGHTED, chosen, compare, tell, unweighted_wins
from kernfed_server.methods.reweight.findings import publish
from kernfed_server.methods.reweight.own_network import own_network
from kernfed_server.methods.reweight.reweighting import Reweighting


async def train_networks(job: Reweighting) -> Model | None:
    """Each round the clients' weighted gradients, or what they trained to, are averaged and taken.

    With batch normalisation that clients keep to themselves (FedBN) each keeps a model, and there is none for all.

    Source: the FTW-ERM paper, Section 2.2: w ← w - η Σ_k g_k, its Adam on the mean of g_k; McMahan et al. (2017); Li et
    al. (2020), FedProx; Reddi et al. (2021), FedAdam and FedYogi.
    """
    networks = await _Networks.begin(job)
    settings = job.settings
    networks.leave_by_round()
    async for round_num in job.run.rounds(settings.rounds):
        moved = await networks.turn(round_num)
        last = round_num == settings.rounds
        metrics = RoundMetrics(training={"movement": moved})
        if last or job.run.evaluates(round_num, settings.rounds):
            metrics = metrics.merged(await networks.measure())
        if last:
            await networks.compare()
            networks.plain = unweighted_wins(job, metrics)
            if networks.own_norm:
                await networks.keep_at_clients()
            tell(job, metrics)
            publish(job, chosen(job, metrics))
            job.run.ends(job.run.settled(round_num, whole=False, what="the networks"))
        await job.run.record(round_num, networks.to_arrays(), chosen(job, metrics))
    if networks.own_norm:
        return None
    if not networks.plain:
        return networks.model()
    return ModelsBeside(networks.model(job.variants.index(UNWEIGHTED)), {WEIGHTED: networks.model()})


@dataclass
class _Networks:
    """Networks of V variants of Q parameters, and what their training remembers."""

    job: Reweighting
    spec: NetworkSpec
    scale: NetworkScale
    parameters: Floats
    """Shape (V, Q)."""
    adam: Adam
    total: Floats
    """Sum of the parameters over the last rounds that are averaged, shape (V, Q)."""
    num_summed: int
    plain: bool = False
    """Whether the unweighted network is the job's."""

    @classmethod
    async def begin(cls, job: Reweighting) -> _Networks:
        """All variants from the same parameters, or from where an earlier life of the run had come to."""
        section, schema = job.settings.network, job.setup.schema
        if section.own_name:
            spec, first = await own_network(job)
        else:
            spec = section.spec(schema.task, len(schema.features), job.setup.num_outputs, batch_norm=section.normed)
            first = initial_parameters(spec, job.seed("network"), job.setup.agreed.class_order)
        scale = _target_scale(job)
        if job.run.resumed is not None:
            state = job.run.resumed
            found = {n: np.array(a, dtype=np.float64) for n, a in state.items() if np.asarray(a).dtype != np.uint8}
            adam, num_summed = Adam.from_arrays(found), int(found["num_summed"][0])
            plain = bool(found.get("plain", np.zeros(1))[0])
            return cls(job, spec, scale, found["parameters"], adam, found["total"], num_summed, plain)
        count = len(job.variants) + len(job.apart)
        start = np.tile(first, (count, 1))
        return cls(job, spec, scale, start, Adam.start(start.shape), np.zeros_like(start), 0)

    async def turn(self, round_num: int) -> float:
        """A round; returns the root mean square movement of a parameter of the job's own network."""
        job, settings, before = self.job, self.job.settings, self.parameters
        drawn = sample_clients(job.cohort.clients, settings.client_fraction, job.setup.schema.seed, round_num)
        few = settings.client_fraction < 1
        seed = job.seed("batches", str(round_num))
        if settings.trainer == "adam":
            request = WeightedGradientRequest(
                network=self.spec, scale=self.scale, networks=before, batch_size=settings.batch_size, seed=seed
            )
            slopes = await job.cohort.ask(request, clients=drawn, drawn=few)
            note_kept_back(job.run, slopes)
            mean = await self._mean({client: reply.gradients for client, reply in slopes.items()})
            slope = mean + settings.weight_decay * before * decayed_entries(self.spec)
            self.parameters, self.adam = self.adam.step(before, slope, settings.step_size)
            if self.spec.batch_norm:  # means and variances follow those of the batches, which is no descent
                statistics = norm_entries(self.spec)[1]
                self.parameters[:, statistics] = before[:, statistics] - NORM_RATE * mean[:, statistics]
        else:
            update = WeightedUpdateRequest(
                network=self.spec,
                scale=self.scale,
                networks=before,
                learning_rate=settings.learning_rate,
                num_steps=settings.local_steps,
                batch_size=settings.batch_size,
                weight_decay=settings.weight_decay,
                seed=seed,
                round_num=round_num,
                own_norm=self.own_norm,
                proximal=settings.proximal,
            )
            trained = await job.cohort.ask(update, clients=drawn, drawn=few)
            note_kept_back(job.run, trained)
            self._move(await self._mean({client: reply.networks for client, reply in trained.items()}))
        if round_num > settings.rounds - settings.average_last:
            self.total, self.num_summed = self.total + self.parameters, self.num_summed + 1
        job.run.moved(before, self.parameters)
        return float(np.sqrt(np.square(self.parameters[0] - before[0]).mean()))

    def _move(self, mean: Floats) -> None:
        """To the mean of the clients' networks, (V, Q), or a step of the job's optimiser towards it."""
        settings, before = self.job.settings, self.parameters
        if settings.optimiser == "average":
            self.parameters = mean
            return
        slope = (before - mean) / settings.learning_rate
        yogi = settings.optimiser == "yogi"
        self.parameters, self.adam = self.adam.step(before, slope, settings.step_size, yogi=yogi)
        if self.spec.batch_norm:  # means and variances are those of the clients' rows, which is no descent
            statistics = norm_entries(self.spec)[1]
            self.parameters[:, statistics] = mean[:, statistics]

    async def _mean(self, found: Mapping[str, Array]) -> Floats:
        """Mean of what clients sent, (V, Q), each variant by its own weights of the clients."""
        clients, variants = sorted(found), (*self.job.variants, *self.job.apart)
        counted = [self.job.counted(v, clients) for v in variants]
        weights = np.array([[float(of[c]) for c in clients] for of in counted])

        def make() -> Floats:
            shares = weights / weights.sum(axis=1, keepdims=True)
            mean = np.zeros(np.shape(found[clients[0]]))
            for i, client in enumerate(clients):
                mean += shares[:, i : i + 1] * found[client]
            return mean

        return await asyncio.to_thread(make)

    @property
    def own_norm(self) -> bool:
        """Whether clients keep their batch normalisation to themselves."""
        return self.job.settings.network.batch_norm == "own"

    @property
    def result(self) -> Floats:
        """Parameters of each variant's model, shape (V, Q)."""
        return self.total / self.num_summed if self.num_summed else self.parameters

    async def measure(self) -> RoundMetrics:
        """Metrics of the job's own network (`global`), and of those beside it."""
        result = self.result
        found = await self._measured(result)
        if not self.own_norm:  # else each client has a part of the network that moves on
            self.job.run.came_to({"networks": result}, found)
        return found

    async def _measured(self, result: Floats) -> RoundMetrics:
        names = ("global", *self.job.variants[1:])
        request = MeasureNetworksRequest(
            network=self.spec,
            scale=self.scale,
            networks=result[: len(names)],
            names=names,
            own_norm=self.own_norm,
        )
        return await measured(self.job.cohort.ask(request), self.job.setup.schema.task, self.job.run)

    def leave_by_round(self) -> None:
        """Say how a round that was measured is left, if the run diverges later."""

        async def leave(of: State) -> Model:
            return self.model(of=of["networks"])

        async def measure(of: State) -> RoundMetrics:
            return await self._measured(of["networks"])

        self.job.run.sound.leave_by(leave, measure)

    async def compare(self) -> None:
        """Choose between the weighted and the unweighted network, where the job is to."""
        if self.job.apart:
            networks = self.result[len(self.job.variants) :]
            request = CompareNetworksRequest(
                variant=self.job.variant, network=self.spec, scale=self.scale, networks=networks
            )
            await compare(self.job, request)

    async def keep_at_clients(self) -> None:
        """Have each client keep a model of its own; name those that failed, or have only the start's normalisation."""
        try:
            kept = await self.job.cohort.ask(
                KeepOwnNetworkRequest(network=self.spec, scale=self.scale, networks=self.result)
            )
        except QuorumNotMetError as err:
            self.job.say(f"not all clients could keep their networks: {err}")
            return
        self.job.say(
            "each client has its own batch normalisation, so the coordinator has no model: every client keeps its own, "
            "and `kernfed-client predict` there uses it"
        )
        lacking = [c for c in self.job.cohort.clients if c not in kept]
        if lacking:
            self.job.say(f"{', '.join(lacking)}: did not answer when models were kept, and has none")
        unseen = sorted(c for c in kept if not kept[c].normalised)
        if unseen:
            self.job.say(
                f"{', '.join(unseen)}: never drawn for a round, so its model has the normalisation that training "
                "started with; do not predict with it"
            )

    def model(self, variant: int = 0, of: Floats | None = None) -> NetworkModel:
        """The model of a variant, by its place among them; `of` are the networks of an earlier round."""
        setup = self.job.setup
        facts = job_facts(setup, self.job.settings)
        return NetworkModel(
            **agreed(setup),
            network=self.spec,
            parameters=(self.result if of is None else of)[variant],
            target_mean=np.asarray(self.scale.mean, np.float64),
            target_deviation=np.asarray(self.scale.deviation, np.float64),
            job=facts if variant == 0 else {**facts, "variant": self.job.variants[variant]},
        )

    def to_arrays(self) -> dict[str, Array]:
        """All that a resumed run needs."""
        return {
            "parameters": self.parameters,
            **self.adam.to_arrays(),
            "total": self.total,
            "num_summed": np.array([self.num_summed]),
            "plain": np.array([self.plain]),
            **self.job.kept(),
        }


def _target_scale(job: Reweighting) -> NetworkScale:
    """Of a regression: mean and deviation of the weighted targets, over clients."""
    num = job.setup.num_outputs
    if TASKS[job.setup.schema.task].has_classes:
        return NetworkScale(mean=np.zeros(num), deviation=np.ones(num))
    told = job.summaries[job.variant]
    counted = job.counted(job.variant, told)
    weights = [float(counted[c]) for c in sorted(told)]
    mean = np.average([told[c].target_mean for c in sorted(told)], axis=0, weights=weights)
    squares = [spread_of(told[c]) + np.square(told[c].target_mean - mean) for c in sorted(told)]
    deviation = np.sqrt(np.average(squares, axis=0, weights=weights))
    return NetworkScale(mean=mean, deviation=np.where(deviation > 0, deviation, 1.0))
