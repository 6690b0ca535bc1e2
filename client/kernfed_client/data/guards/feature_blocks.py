"""The blocks of a job whose sums are over features: of a polynomial, a product of two columns may tell of few rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernfed.arrays import Integers
from kernfed.features.kernels import Kernel
from kernfed.maths.few.rows import ProductsApart, few_products
from kernfed_client.data.guards.joined_blocks import FewStandOut, joined_blocks
from kernfed_client.data.guards.split import JOINED_RULES
from kernfed_client.data.local_job import LocalJob


def feature_block(job: LocalJob) -> Integers | None:
    """Number of each training row's block, (n,), in which few rows stand out neither in a column nor in a product.

    None: rows are drawn one by one.

    Raises:
        JobStateMissingError: The rows were not mapped yet.
    """
    small = job.data.small_block
    products = None if small is None or job.data.rules < JOINED_RULES else _products(job)
    if small is None or products is None:
        return job.block
    columns = FewStandOut(job.data.train, job.file.policy, job.data.rules).allows
    return job.memo("feature block", lambda: joined_blocks(small, lambda rows: columns(rows) and products(rows)))


def _products(job: LocalJob) -> Callable[[Integers], bool] | None:
    """Whether no product tells of few of some rows, by their places; None: the map has none, or any number may.

    Products that tell of few among all rows are taken as 0, and those do not count.
    """
    spec, least = job.features, job.fewest_apart[0]
    if spec.kernel is not Kernel.POLYNOMIAL2 or not 1 < least <= job.num_rows:
        return None
    scaled = job.x_train / np.array(spec.lengthscales)
    apart, kept = ProductsApart(scaled), ~few_products(scaled, least).few
    return lambda rows: not any(bool((few & kept).any()) for few, _, _ in apart.found(rows, least))
