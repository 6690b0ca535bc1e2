"""The coordinator's artifact of an online job, read back, and predictions by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kernfed.arrays import Floats
from kernfed.methods.online.dictionary import Dictionary, draw, features, predictions
from kernfed.methods.online.losses import LOSSES, Loss
from kernfed.methods.online.parameters import FORMAT, FORMAT_OFFSETS, PAIR, OnlineParameters


def read_parameters(folder: Path) -> OnlineParameters:
    """What `OnlineParameters.save` wrote."""
    known = PAIR.read_facts(folder)["format"]
    facts, arrays = PAIR.read(folder, FORMAT_OFFSETS if known == FORMAT_OFFSETS else FORMAT)
    told: dict[str, Any] = {key: arrays.get(key) for key in ("mean", "scale", "theta", "offset")}
    told |= {key: tuple(facts[key]) for key in ("feature_names", "classes")}
    told |= {key: facts[key] for key in ("target", "target_low", "target_span")}
    sizes = [facts[key] for key in ("num_frequencies", "num_columns", "seed")]
    dictionary = Dictionary(tuple(facts["lengthscales"]), *sizes)
    return OnlineParameters(**told, loss=Loss(facts["loss"]), dictionary=dictionary, round_num=facts["round"])


def predicted(left: OnlineParameters, rows: Floats, weights: Floats | None = None) -> Floats:
    """Predictions of rows (n, d) in the data's units by a mix of the kernels, (n,); weights (N,), unset: equal."""
    n = left.dictionary.num_kernels
    w = np.full(n, 1.0 / n) if weights is None else weights
    of_kernels = predictions(features((rows - left.mean) / left.scale, draw(left.dictionary)), left.theta)
    f = (of_kernels if left.offset is None else of_kernels + left.offset) @ w
    told: Floats = left.target_low + left.target_span * LOSSES[left.loss].served(f)
    return told
