"""Who is different, before round 1 of FedNewton: a few trips along common directions."""

from __future__ import annotations

import asyncio

import numpy as np

from kernfed.errors import QuorumNotMetError
from kernfed.features.kernels import MOST_SQUARE, RANDOM_KERNELS
from kernfed.federation.cohort import Cohort
from kernfed.methods.ridge.differences import TRIPS, Probes, rows_enough, upsilon_part
from kernfed.methods.ridge.finding import DifferenceOfClient, DifferencesFinding
from kernfed.methods.ridge.messages import SecondMomentsRequest
from kernfed.methods.ridge.report import FAR
from kernfed.wording import listed
from kernfed_server.jobs.run import Members, Run
from kernfed_server.jobs.start.preparation import Setup


async def tell_differences(setup: Setup, ridge: float, cohort: Cohort, run: Run) -> None:
    """Publish how far each client's second moments are from those of all, and what follows for the paper's step.

    What leaves a client: C_j along a few directions (`sufficient_statistic`), and solves (`newton_step`). A client
    whose policy forbids one is left out of the diagnosis, and takes part in the job.
    """
    members, trip = cohort.clients, 0
    probes = _drawn(setup, ridge, members)
    while trip < TRIPS:
        request = SecondMomentsRequest(ridge=ridge, directions=probes.directions, right=probes.right)
        try:
            replies = await cohort.ask(request, clients=members, everyone=True, optional=True)
        except QuorumNotMetError as err:
            run.note(f"how different clients are is not told: {err}")
            return
        if missing := sorted(set(members) - set(replies)):  # sums of others than before: anew
            run.note(f"how different clients are is told without {listed(missing)}: {cohort.why_missing(missing[0])}")
            members, trip = tuple(replies), 0
            probes = _drawn(setup, ridge, members)
            continue
        mean = await asyncio.to_thread(cohort.weighted, replies, setup.agreed.num_rows)
        products = {client: np.asarray(reply.product, dtype=np.float64) for client, reply in replies.items()}
        await asyncio.to_thread(probes.absorb, products, mean.product, mean.solve, mean.mean_square)
        trip += 1
    _tell(_finding(setup, probes, run), run)


def _drawn(setup: Setup, ridge: float, members: Members) -> Probes:
    return Probes.drawn(setup.agreed.spec.seed, setup.num_features, members, ridge)


def _finding(setup: Setup, probes: Probes, run: Run) -> DifferencesFinding:
    counted = run.counted({client: float(setup.agreed.num_rows[client]) for client in probes.clients})
    total = sum(counted.values())
    clients = []
    for client in probes.clients:
        share, rows = counted[client] / total, setup.agreed.num_rows[client]
        clients.append(
            DifferenceOfClient(
                client=client,
                rows=rows,
                share=share,
                difference=probes.found[client],
                by_chance=probes.by_chance(share, rows),
                upsilon=share * upsilon_part(probes.found[client], probes.ridge),
            )
        )
    bounded = setup.agreed.spec.kernel in RANDOM_KERNELS
    return DifferencesFinding(
        ridge=probes.ridge,
        norm=probes.norm,
        upsilon=sum(c.upsilon for c in clients),
        contraction=probes.contraction,
        growth=probes.growth,
        rows_enough=rows_enough(MOST_SQUARE, probes.ridge) if bounded else None,
        clients=tuple(clients),
    )


def _tell(finding: DifferencesFinding, run: Run) -> None:
    run.publish(finding)
    far = sorted((c for c in finding.clients if c.times >= FAR), key=lambda c: -c.times)
    if far:
        named = listed([f"{c.client} ({c.times:.2g} times)" for c in far], more=", …")
        run.note(f"features whose second moments differ from all by more than chance, by how many times: {named}")
    if finding.contraction >= 1.0:
        run.note(
            f"Algorithm 1's step would multiply the error by {finding.contraction:.3g} or more at worst, so it "
            'diverges; step = "auto" cannot'
        )
