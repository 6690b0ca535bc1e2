"""Every client alone: what an institution has without the others."""

from __future__ import annotations

from kernfed.arrays import Array
from kernfed.federation.cohort import Cohort
from kernfed.methods.ridge.messages import TrainLocallyRequest
from kernfed.methods.ridge.settings import LocalSettings
from kernfed.methods.shared_settings import ridge_of
from kernfed_server.jobs.arrival import Arrival
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.preparation import Setup


async def run(setup: Setup, settings: LocalSettings, cohort: Cohort, run: Run) -> Array | None:
    """Each client trains a ridge model on its own rows, with scales, lengthscale and means of its own, and keeps it.

    There is no global model. What leaves a client: its row count and its test metrics. The coordinator learns no more.
    """
    async for round_num in run.rounds(1):
        ridge = ridge_of(settings)
        await cohort.ask_each(
            {c: TrainLocallyRequest(ridge=setup.own_ridge.get(c, ridge), alone=True) for c in cohort.clients}
        )
        run.ends(Arrival("each client has solved for the model of its own rows, exactly", True))
        await run.record(round_num, {}, setup.baseline)
    return None
