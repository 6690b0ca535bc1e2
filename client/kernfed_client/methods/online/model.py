"""The personal model of an online job, kept at the client as it is now, and how its weights came about.

`model/` is what `kernfed-client predict` reads. `online/weights.csv` gets a line each time the model is kept: the
round, the rows so far, the mean squared error so far, and the weight of every kernel. Neither ever leaves the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernfed.arrays import Array, Floats
from kernfed.methods.online import dictionary as online
from kernfed.methods.online.dictionary import Dictionary
from kernfed.methods.online.losses import LOSSES, Loss
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.online.learning import OnlineClient
from kernfed_client.models.private_model import PrivateModel, Scorer

KIND = "online"
WEIGHTS_FILE = "weights.csv"


def keep_personal_model(job: LocalJob, client: OnlineClient) -> None:
    """Write the model of a client with a dictionary; one without has none that lasts beyond a row."""
    dictionary = client.dictionary
    if dictionary is None:
        return
    state, rules = client.state, client.rules
    arrays = {"theta": state.theta, "weights": client.prediction_weights()}
    details = {
        "lengthscales": list(dictionary.lengthscales),
        "num_frequencies": dictionary.num_frequencies,
        "num_columns": dictionary.num_columns,
        "seed": dictionary.seed,
        "norm": client.norm,
        "target_low": rules.target_low,
        "target_span": rules.target_span,
        "loss": rules.loss.value,
        "round": state.round_num,
        "num_rows": state.learner.tally.num_rows,
    }
    model = PrivateModel(
        kind=KIND,
        task=job.task,
        feature_names=job.schema.features,
        target=job.schema.target,
        classes=job.classes,
        mean=job.mean,
        deviation=job.deviation,
        arrays=arrays,
        details=details,
        scorer=online_scorer(arrays, details),
        job={"job_id": job.job_id, "client": job.client},
    )
    model.save(job.folder / "model")
    _note_weights(job, client, arrays["weights"])


def online_scorer(arrays: Mapping[str, Array], details: Mapping[str, Any]) -> Scorer:
    """Scores of standardised rows, (n, 1): numbers, or the probability of the second class."""
    dictionary = Dictionary(
        lengthscales=tuple(details["lengthscales"]),
        num_frequencies=int(details["num_frequencies"]),
        num_columns=int(details["num_columns"]),
        seed=int(details["seed"]),
    )
    theta, weights, loss = arrays["theta"], arrays["weights"], LOSSES[Loss(details["loss"])]

    def score(rows: Floats, device: str) -> Floats:
        del device  # too little work for a GPU
        omega = online.draw(dictionary)
        parts = [np.empty(0)]
        for start in range(0, len(rows), 256):
            z = online.features(rows[start : start + 256] / details["norm"], omega)
            parts.append(online.predictions(z, theta) @ weights)
        f = np.concatenate(parts)
        scores: Floats = (details["target_low"] + details["target_span"] * loss.served(f))[:, None]
        return scores

    return score


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
            scales = ",".join(f"weight_{scale:.6g}" for scale in client.dictionary.lengthscales)
            file.write(f"round,num_rows,mse,{scales}\n")
        file.write(line + "\n")
