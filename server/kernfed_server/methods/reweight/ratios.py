"""Density ratios at every client before round 1: which there are, from whom, and notes for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kernfed.errors import DataError, InvalidReplyError, JobError, JobStateMissingError
from kernfed.federation.exchange import Fault
from kernfed.maths.tasks import TASKS
from kernfed.methods.reweight.messages import (
    APART,
    MIXTURE,
    UNWEIGHTED,
    LookUpRatiosRequest,
    RatiosHeld,
    RatioSummary,
    UseRatiosRequest,
)
from kernfed.methods.reweight.ratio_spec import RatioInput
from kernfed.methods.reweight.weighted_targets import are_of_targets
from kernfed.wording import listed
from kernfed_server.methods.reweight.fitting import fit
from kernfed_server.methods.reweight.label_priors import mix_classes
from kernfed_server.methods.reweight.mixture import Plan, in_range, mix
from kernfed_server.methods.reweight.reweighting import Reweighting
from kernfed_server.methods.reweight.spectra import tell_condition

FEW_EFFECTIVE = 0.05
"""Share of its rows below which a client's effective sample size is warned about."""
MUCH_UNCOVERED = 0.1
_NEEDS = {False: "samples of unlabelled test rows", True: "sums over rows"}
"""By whether ratios are to the mixture."""


async def weigh(job: Reweighting) -> None:
    """Have every client hold ratios of all variants, and use them; one that loses them later finds them again."""
    _check(job)
    job.cohort.restore_by(partial(_find_again, job))
    recalled = job.recall()
    if not recalled:
        await _find(job)
        if held := [client for client, reply in job.looked.items() if reply.held]:
            job.say(
                f"{listed(held)}: ratios that were found there before the coordinator was stopped are used again; "
                "the audit log of each client says what left it for them"
            )
    weighted = [v for v in (*job.variants, *job.apart) if v.removesuffix(APART) != UNWEIGHTED]
    for variant in weighted:
        await use(job, (variant,), "weighed")
    if not recalled:
        _warn(job)
        if job.settings.compare_spectra:
            await tell_condition(job)
    job.agree()
    job.tell_weights()


async def _find_again(job: Reweighting, lost: Sequence[str]) -> None:
    """Find the ratios again that clients lost, the same ones; where that cannot be, these are left out of the job."""
    job.say(f"{listed(lost)}: the density ratios were lost, and are found again")
    job.restoring = True
    try:
        if job.mixed and not job.still_mixed():
            gone = sorted(set(job.mixed) - set(job.cohort.clients))
            raise JobError(f"they are to a mixture with the rows of {listed(gone)}, out of the job")
        await _find(job, lost if job.scope == "own" else None)
    except (JobError, DataError) as err:
        fault = Fault(JobStateMissingError.reason, f"its density ratios were lost, and cannot be found again: {err}")
        for client in lost:
            job.cohort.exclude(client, fault)
            job.say(f"{client} is left out of this job: {fault.message}")
    finally:
        job.restoring = False


async def _find(job: Reweighting, clients: Sequence[str] | None = None) -> None:
    """Find the ratios of all variants that a client lacks, of all clients or of some, who need no others for it."""
    ratios = job.settings.ratios
    sums = job.variant == MIXTURE if ratios.source == "matching" else ratios.pools_classifier
    looked = await job.gate.ask(
        LookUpRatiosRequest(
            num_points=job.settings.num_points,
            features=job.features,
            distances=sums,
            seed=job.seed("sample"),
        ),
        clients=clients,
        fresh=True,
    )
    job.looked = {**(job.looked if clients else {}), **_decide_map(job, looked)}
    _decide_scope(job, job.looked)
    for variant in job.variants:
        if variant != UNWEIGHTED:
            lacking = [c for c in job.cohort.clients if c in job.looked and variant not in job.looked[c].held]
            if variant == MIXTURE and (lacking or not job.still_mixed()):
                await _mix(job)
            elif lacking:
                await fit(job, variant, lacking, job.looked)


async def use(job: Reweighting, variants: tuple[str, ...], purpose: str) -> dict[str, RatioSummary]:
    """Have clients weigh their rows by variants; a mixture that lost a client is found anew.

    Args:
        job: The job.
        variants: The first one weighs the rows of the linear model, and is told about.
        purpose: What for: once for each in the life of the job, a later life goes on with what was told then.
    """
    request = UseRatiosRequest(variants=variants)
    check, name = _check_summary(job, variants[0]), f"{purpose} by {' '.join(variants)}"
    anew = False
    while True:
        found = await job.gate.once(name, request, check, fresh=True, anew=anew)
        if not any(v.removesuffix(APART) == MIXTURE for v in variants) or job.still_mixed():
            job.summaries = {**job.summaries, variants[0]: found}
            return found
        gone = sorted(set(job.mixed) - set(job.cohort.clients))
        job.say(f"{listed(gone)}: out of the job, so the mixture is that of the others, and ratios are found anew")
        if not job.looked:
            await _find(job)
        else:
            await _mix(job)
        anew = True


async def _mix(job: Reweighting) -> None:
    """Find ratios to the mixture of the clients that are here, and have all keep them."""
    settings = job.settings
    shares = job.shares
    if settings.ratios.source != "matching":
        await mix_classes(job, {c: float(n) for c, n in shares.items()})
        return
    plan = Plan(
        settings.ratios.spec(job.seed("ratios")),
        job.features,
        settings.num_points,
        job.num_columns,
        job.seed("sample"),
    )
    while True:
        clients = tuple(c for c in job.cohort.clients if job.looked[c].shares_sums)
        found = await mix(job.gate, plan, job.looked, clients, {c: float(n) for c, n in shares.items()})
        job.mixed = dict(found.ranges)
        await job.gate.ask(found.request, fresh=True)
        if job.still_mixed():
            break
    job.sharing = {
        c: f"sums over its rows and {found.num_points[c]} test points" if c in found.num_points else "nothing"
        for c in job.cohort.clients
    }
    if few := [c for c, num in found.num_points.items() if num == 0]:
        job.say(
            f"{listed(few)}: fewer test points than policy.min_rows, so no sum over them leaves, and the model is "
            "for the test points of the others"
        )
    job.say(
        f"one ratio for all clients, of test points to the mixture of their training rows, from sums over "
        f"{len(job.mixed)} clients' rows: lengthscale {found.request.map.lengthscales[0]:.4g}, ridge "
        f"{found.ratio.ridge:.3g}; on rows held out better than equal weights by {100 * found.ratio.gain:.1f} %"
    )


def _check(job: Reweighting) -> None:
    if job.settings.target is not None and job.settings.target not in job.cohort.clients:
        raise JobError(
            f"method.target is {job.settings.target!r}, which is not among the job's clients "
            f"({', '.join(job.cohort.clients)}); name one of them"
        )
    source = job.settings.ratios.source
    if source != "matching" and not TASKS[job.setup.schema.task].has_classes:
        raise JobError(
            f'method.ratios.source is "{source}", which is for classes, and the task is regression; use "matching"'
        )
    if job.setup.schema.backbone and job.features.source is not RatioInput.COLUMNS:
        raise JobError(
            f"the columns are those of data.backbone {job.setup.schema.backbone!r} already; remove "
            "method.ratios.features, or data.backbone to train on the data themselves"
        )


def _decide_map(job: Reweighting, looked: dict[str, RatiosHeld]) -> dict[str, RatiosHeld]:
    """Points of all clients must lie in one space; of those that are in the space of most, what they told."""
    spaces = Counter((reply.fingerprint, reply.num_columns) for reply in looked.values())
    ((space, num),) = spaces.most_common(1)
    if len(spaces) > 1:
        told = "; ".join(f"{c}: {looked[c].fingerprint[:12]} ({looked[c].num_columns})" for c in sorted(looked))
        name = job.settings.ratios.backbone
        words = (
            f"the clients' backbones {name!r} differ (fingerprints and columns: {told}), so their points are not "
            f"comparable; give every client file the same source, weights and transforms in [backbones.{name}]"
        )
        if 2 * num <= len(looked):
            raise JobError(words)
        others = sorted(c for c, reply in looked.items() if (reply.fingerprint, reply.num_columns) != space)
        faults = dict.fromkeys(others, Fault(InvalidReplyError.reason, words))
        job.gate.leave_out(LookUpRatiosRequest.step, len(looked), looked, faults)
    job.num_columns = space[1]
    return looked


def _decide_scope(job: Reweighting, looked: Mapping[str, RatiosHeld]) -> None:
    """Find the clients that share; refusals are dealt with before anything is asked for."""
    settings = job.settings
    if job.scope == "own" or settings.ratios.source != "matching":
        return
    if all(job.variant in reply.held for reply in looked.values()):  # found before a restart
        return
    mixes = job.variant == MIXTURE
    wanted = [settings.target] if settings.target else list(looked)
    refusing = sorted(c for c in wanted if not (looked[c].shares_sums if mixes else looked[c].shares))
    if not refusing:
        return
    names = ", ".join(refusing)
    if mixes:
        told = (
            f"{names}: the policy lets no sums over rows leave (`sufficient_statistic` or `mean_embedding` is not "
            "in policy.allow)"
        )
    else:
        told = f"{names}: the policy lets no unlabelled samples leave (`unlabelled_sample` is not in policy.allow)"
    if settings.on_refusal == "stop" or (settings.on_refusal == "leave-out" and len(refusing) == len(wanted)):
        others = 'method.on_refusal = "leave-out" goes on without their test points, ' if not settings.target else ""
        raise JobError(
            f'scope = "{job.scope}" needs {_NEEDS[mixes]}, and not every client shares them; '
            f"nothing was sent\n  {told}\n"
            f'  use method.scope = "own", with which nothing leaves; {others}'
            'method.on_refusal = "own" goes on with own ratios; or the administrators of these clients allow it'
        )
    if settings.on_refusal == "own":
        job.scope = "own"
        job.say(f'{told}; the job goes on with scope = "own": every client uses its own test points')
    elif mixes:
        job.say(f"{told}; the weighted model is that of the other clients' rows, for their test points")
    else:
        job.say(f"{told}; the job goes on without their test points; their training rows are weighed all the same")


def _check_summary(job: Reweighting, variant: str) -> Callable[[str, RatioSummary], None]:
    stated = job.setup.agreed.target_moments

    def check(client: str, reply: RatioSummary) -> None:
        if client in stated and not are_of_targets(reply, *stated[client]):
            raise InvalidReplyError(
                f"{client} states means of its weighted targets that no weights like its own make of the targets that "
                "it stated before"
            )
        if variant.removesuffix(APART) != MIXTURE:
            return
        allowed = job.mixed.get(client)
        if allowed is not None and variant.endswith(APART):  # of half of the rows at least
            allowed = (0.0, 2.0 * allowed[1])
        if reply.total != 1.0 or (allowed is not None and not in_range(reply.mean, allowed)):
            raise InvalidReplyError(
                f"{client} states a mean ratio of {reply.mean:.3g}, which cannot be by the sums that it sent"
            )

    return check


def _warn(job: Reweighting) -> None:
    found = job.summaries[job.variant]
    matching, mixes = job.settings.ratios.source == "matching", job.variant == MIXTURE
    for client, summary in found.items():
        if summary.note and not mixes:
            job.say(f"{client}: {summary.note}")
        if summary.uncovered >= MUCH_UNCOVERED and not mixes:
            job.say(
                f"{client}: {100 * summary.uncovered:.0f} % of the test points lie where it has no training row; "
                "there its weights say nothing"
            )
        if matching and summary.held_out <= 0 and not mixes:
            job.say(f"{client}: on rows held out its ratios are no better than equal weights: no shift is found")
        if summary.effective_rows < FEW_EFFECTIVE * summary.num_rows:
            job.say(
                f"{client}: its {summary.num_rows} weighted rows are worth {summary.effective_rows:.1f}; a lower "
                "method.ratios.clip trades bias for variance"
            )
    if not mixes:
        return
    some = next(iter(found.values()))
    if some.uncovered >= MUCH_UNCOVERED:
        job.say(
            f"{100 * some.uncovered:.0f} % of the test points lie where no client has a training row; there the "
            "weights say nothing"
        )
    if matching and some.held_out <= 0:
        job.say("on rows held out the ratios are no better than equal weights: no shift is found")
