"""Points for embeddings by the kernel itself: rows without targets, of the clients whose policies let them leave."""

from __future__ import annotations

import numpy as np

from kernfed.arrays import Floats
from kernfed.errors import ConfigError
from kernfed.methods.personalise.embedding_messages import SharePointsRequest
from kernfed.wording import listed
from kernfed_server.methods.personalise.weights import Personalisation

_POINTS = "embedding points"
"""Their name among what is agreed on."""


async def collect_points(job: Personalisation) -> Floats | None:
    """The points, as all clients have columns scaled, in an order that tells nobody's, (L, P); None: none are wanted.

    Raises:
        ConfigError: No client may give any.
    """
    settings = job.settings
    if not settings.embedding_points:
        return None
    kept = job.run.agreed.get(_POINTS)
    if kept is not None:
        return np.asarray(kept, np.float64)
    request = SharePointsRequest(
        num_columns=len(job.setup.schema.features),
        num_points=settings.embedding_points,
        seed=job.seed("points"),
        unlabelled=settings.embed_unlabelled,
    )
    replies = await job.run.optional(job.cohort.ask(request, optional=True), "no points for the embeddings")
    given = [np.asarray(reply.points, np.float64) for reply in replies.values() if len(reply.points)]
    if not given:
        raise ConfigError(
            "method.embedding_points needs clients whose policy.allow lists unlabelled_sample, and none gave a row; "
            "ask their administrators, or remove it: random frequencies send no row"
        )
    points = np.unique(np.concatenate(given), axis=0)
    job.run.agreed.put(_POINTS, points)
    without = sorted(set(job.cohort.clients) - set(replies))
    some = f"; {listed(without)} gave none, and are embedded by the others' points" if without else ""
    rows = f"{len(points):,} different rows of {len(given)} clients"
    job.say(f"{rows}, without targets, are with all clients for embeddings{some}")
    return points
