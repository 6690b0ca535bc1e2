"""Personal networks by federated averaging with each target's weights, all targets at once.

Each round a client steps on the networks of all targets that weigh it, as one batch. A target's network moves by the
weighted mean of what came back, as it is or through Adam.
"""

from __future__ import annotations

from kernfed.federation.events import RoundMetrics
from kernfed.models.network_spec import NetworkSpec
from kernfed_server.methods.personalise.choosing import find_weights
from kernfed_server.methods.personalise.judging import judged
from kernfed_server.methods.personalise.network_batch import Networks, everywhere
from kernfed_server.methods.personalise.state import Collaboration
from kernfed_server.methods.personalise.stopping import Best
from kernfed_server.methods.personalise.weights import Personalisation


async def train_networks(job: Personalisation, found: Collaboration | None) -> None:
    """Round 1 finds the weights; each further round trains. At the end every client gets its own network.

    A client that misses a round is left out of its means, and the others' weights are scaled up for it. Where rows are
    kept apart, each network is that of its best round on them.
    """
    spec = network_of(job)
    networks: Networks | None = None
    best: Best | None = None
    if found is not None and job.run.resumed is not None:
        networks = Networks.from_arrays(job, spec, found, job.run.resumed)
        best = Best.from_arrays(job.run.resumed, networks)
    async for round_num in job.run.rounds(job.settings.rounds):
        if found is None:
            await find_weights(job)
            found = await judged(job, spec, await job.told_weights(needed=True))
            networks = Networks.start(job, spec, found.clients, job.targets(found), everywhere(job.settings.kept_apart))
            best = Best.start(networks)
            state = {**found.to_arrays(), **networks.to_arrays(), **best.to_arrays()}
            await job.run.record(round_num, state, RoundMetrics())
            continue
        assert networks is not None and best is not None  # noqa: S101, PT018  # made with the weights
        networks.leave_by_round(found)
        before = networks.parameters
        moved = await networks.turn(job.seed("batches", str(round_num)))
        job.run.moved(before, networks.parameters)
        last = round_num == job.settings.rounds
        if job.settings.kept_apart:
            await best.watch(networks, round_num)
            if last:
                best.take(networks)
        metrics = RoundMetrics(training={"movement": moved})
        if last:
            await networks.deliver(found)
        if last or job.run.evaluates(round_num, job.settings.rounds):
            metrics = metrics.merged(await networks.measure(alone=last))
        if last:
            job.publish(found, metrics)
            job.run.ends(job.run.settled(round_num, whole=False, what="the networks"))
        state = {**found.to_arrays(), **networks.to_arrays(), **best.to_arrays()}
        await job.run.record(round_num, state, metrics)


def network_of(job: Personalisation) -> NetworkSpec:
    """The network of the job, on its columns.

    Raises:
        ConfigError: They do not fit.
    """
    schema = job.setup.schema
    return job.settings.network.spec(schema.task, len(schema.features), job.setup.num_outputs)
