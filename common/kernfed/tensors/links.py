"""From linear scores to predictions, on CPU or CUDA."""

from __future__ import annotations

from torch import Tensor

from kernfed.maths.losses import Link


def linked(link: Link, scores: Tensor) -> Tensor:
    """Turn scores into predictions, shape (..., C): numbers, or probabilities of classes."""
    if link is Link.IDENTITY:
        return scores
    if link is Link.EXPONENTIAL:
        return scores.exp()
    return scores.softmax(-1) if link is Link.SOFTMAX else scores.sigmoid()
