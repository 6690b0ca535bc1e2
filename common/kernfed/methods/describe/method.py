"""The method `describe`."""

from __future__ import annotations

from kernfed.methods.base import Method, Needs, table
from kernfed.methods.describe.messages import DescribeColumnsRequest, DescribePairsRequest
from kernfed.methods.describe.settings import DescribeSettings

METHODS = table(
    Method(
        DescribeSettings,
        rounds=lambda _: 1,
        needs=lambda _: Needs.COLUMNS,
        lengthscale=lambda _: 1.0,
        steps=(DescribeColumnsRequest, DescribePairsRequest),
        asks=lambda _: (DescribeColumnsRequest,),
        fixed={"num_levels": "num_levels"},
        all_rows=True,
        leaves_model=False,
    )
)
