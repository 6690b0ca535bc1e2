"""Models that this client has kept, by the job that made them; whatever their format, they predict alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernfed.artifact_names import MODEL_FACTS
from kernfed.errors import ConfigError, UnknownJobError
from kernfed.methods import rooms
from kernfed.models import global_model_file
from kernfed.models.base import Loader, Model, load
from kernfed.models.global_model import load_model
from kernfed_client.models.private_model import FORMAT, PAIR, Scorer, read_private_model
from kernfed_client.models.small_network import NETWORK, network_scorer


def kept_models(state: Path) -> dict[str, Path]:
    """Job id to the folder of its model, below a client's state folder."""
    found: dict[str, tuple[float, Path]] = {}
    for path in sorted((state / "jobs").glob(f"*/model/{MODEL_FACTS}")):
        try:
            job_id = json.loads(path.read_bytes())["job"]["job_id"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        found[str(job_id)] = path.stat().st_mtime, path.parent
    return {job_id: folder for job_id, (_, folder) in sorted(found.items(), key=lambda item: item[1][0])}


def find_kept_model(state: Path, job: str) -> Path:
    """The folder of a job's model, by the job's id or a beginning of it that no other shares.

    Raises:
        UnknownJobError: There is none, or several.
    """
    known = kept_models(state)
    if job in known:
        return known[job]
    fits = [job_id for job_id in known if job_id.startswith(job)] if job else []
    if len(fits) != 1:
        kept = ", ".join(fits or known) or "none yet: methods such as local and distill leave one"
        raise UnknownJobError(f"no model of job {job[:128]!r} here; models are kept of: {kept}")
    return known[fits[0]]


def load_kept_model(folder: Path) -> Model:
    """Load a model of any format that this client keeps.

    Raises:
        ConfigError: It is damaged, or of a format that this release does not know.
    """
    return load(folder, LOADERS, PAIR)


def _scorer(kind: str, facts: Mapping[str, Any]) -> Scorer:
    """Of a model's kind; the rooms' modules `kept` have those of their methods in `SCORERS`."""
    makers = {
        NETWORK: lambda facts: network_scorer(facts["arrays"], facts["details"]),
        **rooms.merged("kernfed_client.methods", "kept", "SCORERS"),
    }
    if kind not in makers:
        raise ConfigError(f"a model of kind {kind!r} is unknown here; install the release of kernfed that kept it")
    scorer: Scorer = makers[kind](facts)
    return scorer


def _load_private_model(folder: Path) -> Model:
    return read_private_model(folder, _scorer)


LOADERS: dict[str, Loader] = {
    global_model_file.FORMAT: load_model,
    FORMAT: _load_private_model,
}
"""How a kept model is loaded, by its format."""
