"""The personal model of an online job, kept at the client as it is now, and how its weights came about.

`model/` is what `kernfed-client predict` reads. `online/weights.csv` gets a line each time the model is kept: the
round, the rows so far, the mean squared error so far, and the weight of every kernel. Neither ever leaves the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.methods.online import dictionary as online
from kernfed.methods.online.dictionary import Dictionary
from kernfed.methods.online.losses import LOSSES, Loss
from kernfed.methods.online.own_model import own_features
from kernfed.methods.online.pooled_ridge import KEEPS
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.online.learning import OnlineClient
from kernfed_client.models.own_model import private_model
from kernfed_client.models.private_model import Scorer

KIND = "online"
WEIGHTS_FILE = "weights.csv"


def keep_personal_model(job: LocalJob, client: OnlineClient) -> None:
    """Write the model of a client with a dictionary; one without has none that lasts beyond a row."""
    dictionary = client.dictionary
    if dictionary is None:
        return
    state, rules = client.state, client.rules
    weights = client.prediction_weights()
    arrays = {"theta": state.theta, "weights": weights}
    own, own_dictionary = state.learner.own, client.own_dictionary
    if own is not None:
        common, stacked, alone = own.expert_weights
        arrays["weights"] = common * weights + stacked * own.stack.theta[0, :-1]
        arrays["offset"] = stacked * own.stack.theta[0, -1:]
        arrays["own_theta"] = own.ridges.theta
        arrays["own_weights"] = alone * own.mix.mixture().kernels
        if state.theta.ndim == 3:  # ridges on pooled rows have the features of the client's own
            arrays = _one_ridge(arrays)
            own_dictionary = None
    details: dict[str, Any] = {
        **asdict(dictionary),
        "norm": client.norm,
        "target_low": rules.target_low,
        "target_span": rules.target_span,
        "loss": rules.loss.value,
        "round": state.round_num,
        "num_rows": state.learner.tally.num_rows,
    }
    if own_dictionary is not None:
        details["own"] = asdict(own_dictionary)
    model = private_model(job, KIND, arrays, details, online_scorer(arrays, details))
    model.save(job.folder / "model", durable=job.durable)
    _note_weights(job, client, weights)


def _one_ridge(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Pooled ridges and own ones by their weights, where all have the same features: one for each kernel."""
    pooled = np.einsum("jnf,jn->nf", arrays["theta"], arrays["weights"].reshape(arrays["theta"].shape[:2]))
    theta = pooled + arrays["own_theta"] * arrays["own_weights"][:, None]
    return {
        "theta": theta[:, :-1],
        "weights": np.ones(len(theta)),
        "offset": arrays["offset"] + theta[:, -1].sum(),
    }


def online_scorer(arrays: Mapping[str, Array], details: Mapping[str, Any]) -> Scorer:
    """Scores of standardised rows, (n, 1): numbers, or the probability of the second class."""
    dictionary = _dictionary(details)
    own = _dictionary(details["own"]) if "own" in details else None
    theta, weights, loss = arrays["theta"], arrays["weights"], LOSSES[Loss(details["loss"])]

    def score(rows: Floats, device: str) -> Floats:
        del device  # too little work for a GPU
        omega = online.draw(dictionary)
        parts = [np.empty(0)]
        for start in range(0, len(rows), 256):
            x = rows[start : start + 256] / details["norm"]
            f = online.predictions(online.features(x, omega), theta) @ weights
            if "offset" in arrays:
                f = f + arrays["offset"]
            if own is not None:
                z = own_features(online.features(x, online.draw(own)))
                f = f + online.predictions(z, arrays["own_theta"]) @ arrays["own_weights"]
            parts.append(f)
        served = loss.served(np.concatenate(parts))
        scores: Floats = (details["target_low"] + details["target_span"] * served)[:, None]
        return scores

    return score


def _dictionary(details: Mapping[str, Any]) -> Dictionary:
    return Dictionary(
        lengthscales=tuple(details["lengthscales"]),
        num_frequencies=int(details["num_frequencies"]),
        num_columns=int(details["num_columns"]),
        seed=int(details["seed"]),
    )


def _note_weights(job: LocalJob, client: OnlineClient, weights: Array) -> None:
    folder, tally = job.folder / "online", client.state.learner.tally
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / WEIGHTS_FILE
    assert client.dictionary is not None  # noqa: S101  # the caller has looked
    mse = tally.squared_error / tally.num_rows if tally.num_rows else 0.0
    facts = (f"{client.state.round_num}", f"{tally.num_rows}", f"{mse:.9g}")
    line = ",".join([*facts, *(f"{w:.6g}" for w in weights)])
    with path.open("a", encoding="ascii") as file:
        if file.tell() == 0:
            names = [f"weight_{scale:.6g}" for scale in client.dictionary.lengthscales]
            if len(weights) > len(names):  # a ridge for each memory
                names = [f"{name}_keep_{keep:g}" for keep in KEEPS for name in names]
            file.write(f"round,num_rows,mse,{','.join(names)}\n")
        file.write(line + "\n")
