"""Columns of so few values that random features of them would tell of single rows: such a job is refused.

Neither a lengthscale nor a number of features helps, as `kernfed.maths.few.combinations` says, and to leave such rows
out, or to take them as others, costs more than a linear map does. So the job is refused where fewer rows than
`policy.min_rows` have one of the combinations. Where each has enough, blocks are joined until each of them has.
"""

from __future__ import annotations

import numpy as np
import structlog

from kernfed.arrays import Floats, Integers
from kernfed.errors import PolicyError
from kernfed.maths.few.combinations import all_combinations_of
from kernfed.wording import listed
from kernfed_client.data.guards.few_in_columns import fewest_alike
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.reading.partition_data import in_file

log = structlog.get_logger(__name__)

EXACT_FEATURES = 'features.kernel = "linear" or "polynomial2"'
"""The remedy where random features of the job are refused."""


def refuse_few_alike(
    job: LocalJob,
    lengthscales: tuple[float, ...] | None = None,
    x: Floats | None = None,
    *,
    remedy: str = EXACT_FEATURES,
    row_numbers: Integers | None = None,
) -> None:
    """Refuse functions of the feature columns of which few rows have a combination of values, of few that there may be.

    Args:
        job: Its rows are scaled.
        lengthscales: Those of a feature map or kernel, one or P; unset: functions change as fast as they like.
        x: Training rows as the functions see them, (n, P); unset: the scaled ones.
        remedy: What the job may use in their stead.
        row_numbers: Of these rows in their file, (n,); unset: they are the training rows.

    Raises:
        JobStateMissingError: The rows were not scaled yet.
        PolicyError: Names the remedies, and neither values nor numbers.
    """
    data, features = job.data, job.schema.features
    lengths = None if lengthscales is None else np.array(lengthscales)
    seen = job.x_train if x is None else x
    least = fewest_alike(job.file.policy, data.rules)
    alike = all_combinations_of(seen, lengths) if 1 < least <= len(seen) else iter(())
    found = next((combinations for combinations in alike if combinations.rare(least).any()), None)
    if found is None:
        return
    rare = found.rare(least)
    names = listed([repr(features[j]) for j in found.columns])
    where = in_file((data.train.row_numbers if row_numbers is None else row_numbers)[rare])
    log.warning("few rows share values of the columns of a job, which is refused", columns=names, rows=where)
    raise PolicyError(
        f"{'column' if len(found.columns) == 1 else 'columns'} {names}: so few values, or combinations of values, that "
        "random features, networks and kernels of them would tell the sum of the targets of each, and fewer rows than "
        f"policy.min_rows have some of these; use {remedy}, other columns, or let this client's administrator set "
        'policy.few_values = "allow"'
    )
