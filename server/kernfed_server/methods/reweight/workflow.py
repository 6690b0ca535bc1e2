"""One model for the clients' test distributions: training rows are weighed by density ratios."""

from __future__ import annotations

from kernfed.federation.cohort import Cohort
from kernfed.federation.events import RoundMetrics
from kernfed.methods.reweight.messages import UNWEIGHTED
from kernfed.methods.reweight.settings import ReweightSettings
from kernfed_server.jobs.run import Model, Run
from kernfed_server.jobs.start.preparation import Setup
from kernfed_server.jobs.start.rules import by_sums
from kernfed_server.jobs.verdict import ALONE, Against
from kernfed_server.methods.base import Workflow, local_ridge
from kernfed_server.methods.reweight.choice import WEIGHTED
from kernfed_server.methods.reweight.linear import train_linear
from kernfed_server.methods.reweight.networks import train_networks
from kernfed_server.methods.reweight.ratios import use, weigh
from kernfed_server.methods.reweight.reweighting import Reweighting


async def run(setup: Setup, settings: ReweightSettings, cohort: Cohort, run: Run) -> Model | None:
    """Ratios at every client before round 1, then training on weighted rows.

    What leaves a client: with `scope = "all"` and matching, a sample of its test rows without labels
    (`unlabelled_sample`), which goes to every other client, shuffled among those of all; with `target`, that of one
    client. With label shift, shares of its classes; with `own`, neither. What its ratios look like (`summary`).
    Then what the trainer sends: moments and Hessian solves (`model_update`, `gradient`, `newton_step`), weighted
    gradients (`gradient`), or networks (`model_update`). The coordinator learns all these per client; of the samples it
    keeps nothing.

    Returns None with batch normalisation that clients keep (FedBN): they have the models then.

    Source: Ramezani-Kebrya, Liu, Pethick, Chrysos & Cevher, Federated learning under covariate shifts with
    generalization guarantees: FTW-ERM, FITW-ERM, and (2.1) for one target.
    """
    job = Reweighting(setup, settings, cohort, run)
    await weigh(job)
    if settings.trainer == "newton":
        return await train_linear(job)
    await use(job, (*job.variants, *job.apart), "trained")
    return await train_networks(job)


async def _baseline(setup: Setup, settings: ReweightSettings, cohort: Cohort, run: Run) -> RoundMetrics:
    """Metrics of the clients' own ridge models, where there is a feature map."""
    return await local_ridge(setup, settings, cohort, run) if settings.trainer == "newton" else RoundMetrics()


_COMPARED = (
    *ALONE,
    Against("global", UNWEIGHTED, "the model without weights"),
    Against("global", "own", "the model with each client's own ratios"),
    Against("global", WEIGHTED, "the model with weights"),
)
WORKFLOWS = {
    "reweight": Workflow(run, _baseline, compared=_COMPARED, weights=lambda *_: None, search=lambda _: by_sums),
}
