"""Weights at which most rows' predictions are certain: sums over all rows then stand for the few that are not.

A logistic function of large scores is a step. Gradients at two weights whose steps lie on two sides of one row differ
by this row alone, so whoever chooses weights reads it exactly. Where most scores are moderate the function is smooth,
and each sum has a part of many rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernfed.errors import PolicyError
from kernfed.maths.losses import Link
from kernfed.methods.heads.losses import FACTS
from kernfed.methods.heads.tensors.losses import Head
from kernfed.tensors.rows_behind import sure_rows

_MOST_ROWS = 4096
"""Rows looked at."""


def refuse_sure_rows(head: Head, w: Tensor, least: int) -> None:
    """Refuse weights at which more than half of the rows are sure of their class.

    Args:
        head: The client's problem.
        w: W, shape (D, C).
        least: The policy's least number of rows; 1: any weights will do.

    Raises:
        PolicyError: They are; names the remedies.
    """
    if least == 1 or not head.num_rows or FACTS[head.loss].link is Link.IDENTITY:
        return
    some = head.take(torch.arange(min(head.num_rows, _MOST_ROWS), device=head.z.device))
    if bool(sure_rows(some.scores(w))):
        raise PolicyError(
            "at these weights most training rows are predicted with certainty, so that sums over all rows would tell "
            "about the few that are not; begin with smaller weights, lower the learning rate, or raise the ridge"
        )
