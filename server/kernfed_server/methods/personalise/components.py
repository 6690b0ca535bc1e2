"""Personal components, densities and centres at the coordinator: asked for once, after the weights, and told."""

from __future__ import annotations

from kernfed.errors import ConfigError, QuorumNotMetError
from kernfed.federation.messages.base import Request
from kernfed.methods.personalise.component_messages import (
    ComponentsFound,
    DensityFound,
    FindCentresRequest,
    FindComponentsRequest,
    FindDensityRequest,
)
from kernfed.methods.personalise.finding import CentresFinding, ClientMixture, ComponentsFinding, DensityFinding
from kernfed_server.methods.personalise.weights import Personalisation


def check_components(job: Personalisation) -> None:
    """Refuse more components than there are columns.

    Raises:
        ConfigError: There are more.
    """
    wanted, columns = job.settings.components, len(job.setup.schema.features)
    if wanted > columns:
        raise ConfigError(f"method.components is {wanted}, and the data have {columns} feature columns; give fewer")


async def find_components(job: Personalisation) -> None:
    """Let every client that gets a model find components of its own, where the job asks for it."""
    num = job.settings.components
    if num and (told := await _parts_left(job, FindComponentsRequest(num_components=num), "components", num)):
        job.run.publish(ComponentsFinding(num_components=num, clients=told))


async def find_centres(job: Personalisation) -> None:
    """Let every client that gets a model find centres of its own, where the job asks for it."""
    num = job.settings.centres
    if num and (told := await _parts_left(job, FindCentresRequest(num_centres=num), "centres", num)):
        job.run.publish(CentresFinding(num_centres=num, clients=told))


async def _parts_left(
    job: Personalisation, request: Request[ComponentsFound], what: str, num: int
) -> tuple[ClientMixture, ...]:
    """What each client's components or centres leave of the variance of its test rows; told in a note, too."""
    try:
        replies = await job.ask_learners(request, everyone=False)
    except QuorumNotMetError as err:
        job.say(f"too few clients told of their {what}; those that found some keep them. {err}")
        return ()
    total = sum(reply.total for reply in replies.values())
    if total > 0.0:
        left = (sum(getattr(r, name) for r in replies.values()) / total for name in ("personal", "local", "pooled"))
        kept, alone, alike = (f"{100 * part:.3g} %" for part in left)
        job.say(
            f"personal {what}, {num} each, leave {kept} of the test rows' variance, those of own rows alone {alone}, "
            f"those of all rows alike {alike}"
        )
    return tuple(_told(client, reply) for client, reply in sorted(replies.items()))


def _told(client: str, reply: ComponentsFound) -> ClientMixture:
    if reply.total <= 0.0:
        return ClientMixture(client, reply.num_test_rows)
    personal, local, pooled = (round(e / reply.total, 5) for e in (reply.personal, reply.local, reply.pooled))
    return ClientMixture(client, reply.num_test_rows, personal, local, pooled)


async def find_density(job: Personalisation) -> None:
    """Let every client that gets a model find a density of its own, where the job asks for it."""
    if not job.settings.density:
        return
    try:
        replies = await job.ask_learners(FindDensityRequest(), everyone=False)
    except QuorumNotMetError as err:
        job.say(f"too few clients told of their densities; those that found one keep it. {err}")
        return
    told = tuple(_of_density(client, reply) for client, reply in sorted(replies.items()))
    job.run.publish(DensityFinding(clients=told))
    if judged := [c for c in told if c.personal is not None]:
        means = (sum(getattr(c, name) for c in judged) / len(judged) for name in ("personal", "local", "pooled"))
        kept, alone, alike = (f"{mean:.3g}" for mean in means)
        job.say(
            f"personal densities are at a mean squared distance of {kept} from the test rows, those of own rows alone "
            f"at {alone}, those of all rows alike at {alike}"
        )


def _of_density(client: str, reply: DensityFound) -> ClientMixture:
    num = reply.num_test_rows
    if num == 0:
        return ClientMixture(client, num)
    scores = (reply.personal, reply.local, reply.pooled)
    personal, local, pooled = (float(f"{max(0.0, score - reply.total) / num:.4g}") for score in scores)
    return ClientMixture(client, num, personal, local, pooled)
