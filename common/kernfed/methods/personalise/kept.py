"""What a job keeps for clients that join later: what its clients agreed on and shared, in one file among its artifacts.

A later job names the folder of these artifacts. Its clients find their weights against what is kept, and nobody else is
asked. The file is safetensors; `facts` holds JSON. Nothing is ever unpickled.

P feature columns, M features, C outputs, Z embedded columns, E embedding features, B clients, Q inputs of the ridge
models and T = Q (Q + 1)/2; R directions of the features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from kernfed import files
from kernfed.adapters import adapter
from kernfed.arrays import Array, Floats
from kernfed.artifact_names import JOB_JSON
from kernfed.errors import ConfigError, DataError
from kernfed.features.kernels import MOST_SQUARE, RANDOM_KERNELS
from kernfed.features.spec import FeatureSpec, check_spec
from kernfed.jobs.plans import parts_of
from kernfed.jobs.taken_over import absurd, other_features
from kernfed.maths.aggregate import norm
from kernfed.maths.model_spread import MODEL_SPREAD
from kernfed.maths.triangles import packed_size
from kernfed.methods.personalise.crossfit_messages import CandidateGrid, StageDecision
from kernfed.methods.personalise.embedding_messages import ClientEmbedding
from kernfed.methods.personalise.messages import Statistics
from kernfed.methods.personalise.plausible import Kernels, impossible_parts
from kernfed.pki.names import check_name

FORMAT: Final = "kernfed.shared/1"
NAME: Final = "shared"
FILE: Final = "embeddings.safetensors"
ARTIFACT: Final = f"{NAME}-{FILE}"
"""Name of the artifact."""

FREE_KEYS: Final = {
    "method": ("embed_unlabelled", "from_job", "keep_shared", "targets"),
    "data": ("classes", "missing", "split", "test_fraction", "unseen_classes", "validation_fraction"),
}
"""Keys by table in which a later job may differ from the one whose file it names."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is no array."""

    format: Literal["kernfed.shared/1"]
    job: str
    """Name of the job, for people."""
    plan: dict[str, dict[str, Any]]
    """Its tables `method`, `data` and `features` as they were in effect, without `FREE_KEYS`."""
    classes: tuple[str, ...]
    features: FeatureSpec
    fingerprint: str
    """Of `features`; see `kernfed.features.spec.fingerprint`."""
    backbone: str
    embedding: FeatureSpec
    clients: tuple[str, ...]
    """Those that shared, sorted; B of them."""
    grid: CandidateGrid | None
    """Of cross-fitting, with the decisions that all clients' scores led to; None: Q-aggregation."""
    decisions: tuple[StageDecision, ...]
    class_order: tuple[int, ...] = ()
    """In which the columns of classes are embedded; empty: that of `classes`."""
    ridge: float | None = None
    """Of the job, where it went by a rule."""


@dataclass(frozen=True, slots=True)
class KeptShared:
    """The file's content."""

    facts: Facts
    mean: Floats
    """Subtracted from the columns, (P,)."""
    deviation: Floats
    """By which they are divided, (P,)."""
    bounds: Floats
    """Of the standardised training rows, (P,), 0: none; empty: none at all."""
    feature_mean: Floats
    """(M,)."""
    target_mean: Floats
    """(C,)."""
    column_mean: Floats
    """Of all clients' rows, feature columns before targets, in the units of the data, (P + C,)."""
    column_deviation: Floats
    """(P + C,)."""
    embed_mean: Floats
    """Subtracted from the embedded columns, (Z,)."""
    embed_deviation: Floats
    """(Z,)."""
    federated: Floats
    """The model of all rows alike, (M, C)."""
    num_rows: Floats
    """(B,)."""
    means: Floats
    """Embeddings, (B, E)."""
    traces: Floats
    """Over `num_rows` they are the expected squared errors of the embeddings, (B,)."""
    grams: Floats
    """(B, T)."""
    moments: Floats
    """(B, Q, C)."""
    squares: Floats
    """(B,)."""
    basis: Floats
    """Directions in which the ridge models lie, (M, R); R = 0: they use all features."""

    def to_bytes(self) -> bytes:
        """As the file; the same content gives the same bytes."""
        facts = adapter(Facts).dump_json(self.facts)
        arrays = {name: np.ascontiguousarray(getattr(self, name), dtype=np.float64) for name in _SHAPES}
        data: bytes = save({"facts": np.frombuffer(facts, np.uint8), **arrays})
        return data


@dataclass(frozen=True, slots=True)
class SharedFile:
    """The file as a job leaves it."""

    content: bytes

    def save(self, folder: Path | str, *, durable: bool = True) -> None:
        """Write the file."""
        files.replace(Path(folder) / FILE, self.content, durable=durable)


_SHAPES: Final = {
    "mean": "P",
    "deviation": "P",
    "bounds": "",
    "feature_mean": "M",
    "target_mean": "C",
    "column_mean": "U",
    "column_deviation": "U",
    "embed_mean": "Z",
    "embed_deviation": "Z",
    "federated": "MC",
    "num_rows": "B",
    "means": "BE",
    "traces": "B",
    "grams": "BT",
    "moments": "BQC",
    "squares": "B",
    "basis": "MR",
}
"""Shape of each array, a letter for a dimension; nothing: checked apart."""

_ROUNDING, _FAR = 1e-6, 30.0
"""Of shares; and in deviations of the targets, how far the mean of a part of the rows may lie from that of all."""
_POSITIVE = ("deviation", "column_deviation", "embed_deviation", "num_rows")
_NOT_NEGATIVE = ("bounds", "traces", "squares")
_REMEDY = "fetch the job's artifacts again"


def from_bytes(content: bytes, where: str = ARTIFACT) -> KeptShared:
    """Read the file.

    Args:
        content: Its bytes.
        where: Its name, for messages.

    Raises:
        DataError: These are not the bytes of such a file, or its parts do not fit together.
    """
    try:
        found = load(content)
        facts = adapter(Facts).validate_json(found.pop("facts").tobytes())
        check_spec(facts.features)
        check_spec(facts.embedding)
        for client in facts.clients:
            check_name(client, "client")
    except (SafetensorError, ValidationError, ConfigError, ValueError, KeyError) as err:
        raise DataError(f"{where}: not what a job with keep_shared = true leaves ({_first(err)}); {_REMEDY}") from err
    problem = _problem(facts, found)
    if problem:
        raise DataError(f"{where}: {problem}; {_REMEDY}")
    return KeptShared(facts, **{name: found[name] for name in _SHAPES})


def pack_folder(path: Path, features: tuple[str, ...]) -> bytes:
    """The kept file of an earlier job, from the folder of its artifacts, checked.

    Args:
        path: The folder.
        features: Feature columns of the job that names it.

    Raises:
        DataError: There is no such folder, the job kept nothing, or it has other columns.
    """
    if not path.is_dir():
        raise DataError(
            f"{path}: there is no such folder; method.from_job names the folder, relative to the job file, with the "
            "artifacts of an earlier job: `kernfed job fetch` writes it"
        )
    if not (path / ARTIFACT).exists():
        if not (path / JOB_JSON).exists():
            raise DataError(f"{path}: no artifacts of a job are there; `kernfed job fetch` writes them")
        raise DataError(
            f"{path}: the job kept nothing for clients that join later; run it with keep_shared = true, with clients "
            'whose policy.allow lists "stored_statistic"'
        )
    try:
        content = (path / ARTIFACT).read_bytes()
    except OSError as err:
        raise DataError(f"{path / ARTIFACT} cannot be read ({err.strerror}); {_REMEDY}") from err
    earlier = tuple(from_bytes(content, str(path / ARTIFACT)).facts.plan["data"]["features"])
    if earlier != features:
        strange = sorted(set(earlier) ^ set(features))
        what = f"{', '.join(strange[:10])} in one of the two only" if strange else "in another order"
        raise DataError(
            f"{path}: that job has other feature columns ({what}); give data.features as its {JOB_JSON} has them"
        )
    return content


def shared_plan(plan: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The parts of a job's plan in which it must agree with those that join it, without `FREE_KEYS`."""
    return parts_of(plan, ("method", "data", "features"), FREE_KEYS)


def _problem(facts: Facts, arrays: Mapping[str, Array]) -> str:
    """Why the parts do not fit together; empty where they do."""
    if sorted(arrays) != sorted(_SHAPES):
        return "it lacks arrays, or has others"
    for name, array in arrays.items():
        if array.dtype != np.float64 or not np.isfinite(array).all():
            return f"{name} holds something else than finite float64 numbers"
        if (name in _POSITIVE and not (array > 0).all()) or (name in _NOT_NEGATIVE and not (array >= 0).all()):
            return f"{name} holds a number that is too small"
    if arrays["basis"].ndim != 2:
        return "basis is no matrix"
    sizes = {"P": facts.features.num_columns, "M": facts.features.num_features, "B": len(facts.clients)}
    sizes |= {"E": facts.embedding.num_features, "Z": facts.embedding.num_columns, "C": arrays["target_mean"].size}
    directions = arrays["basis"].shape[-1] if arrays["basis"].ndim else 0
    inputs = directions or sizes["M"]
    sizes |= {"U": sizes["P"] + sizes["C"], "R": directions}
    sizes["Q"] = inputs + int(bool(facts.plan.get("features", {}).get("intercept")))
    sizes["T"] = packed_size(sizes["Q"])
    for name, letters in _SHAPES.items():
        if letters and arrays[name].shape != tuple(sizes[letter] for letter in letters):
            return f"{name} has shape {arrays[name].shape}, which does not fit the other parts"
    if arrays["bounds"].shape not in ((0,), (sizes["P"],)):
        return f"bounds has shape {arrays['bounds'].shape}, which does not fit the other parts"
    if list(facts.clients) != sorted(set(facts.clients)) or not facts.clients:
        return "its clients are not in order, or there are none"
    columns = facts.plan.get("data", {}).get("features")
    known = isinstance(columns, list) and all(isinstance(column, str) for column in columns)
    if not known or not {"method", "features"} <= facts.plan.keys():
        return "it does not say what the job was"
    if facts.ridge is not None and not 0 <= facts.ridge < float("inf"):
        return f"its ridge is {facts.ridge:g}"
    if (arrays["num_rows"] > 2.0**53).any() or (arrays["num_rows"] % 1 != 0).any():
        return "num_rows holds something else than counts of rows"
    if (facts.grid is None) != (not facts.decisions):
        return "it has candidates without a decision, or the reverse"
    return (
        absurd(arrays, facts.classes)
        or _far_targets(facts, arrays)
        or _far_scales(arrays)
        or _far_model(facts, arrays)
        or _of_no_rows(facts, arrays)
        or other_features(facts.features, facts.fingerprint)
    )


def _far_targets(facts: Facts, arrays: Mapping[str, Array]) -> str:
    """Whether a regression's targets have another mean than all clients' rows."""
    targets, columns = arrays["target_mean"], len(arrays["mean"])
    if facts.classes or not targets.any():
        return ""
    centre, spread = arrays["column_mean"][columns:], arrays["column_deviation"][columns:]
    far = np.abs(targets - centre) > _FAR * spread
    if not far.any():
        return ""
    place = int(np.argmax(far))
    return f"target_mean is {targets[place]:g}, where the targets' mean is {centre[place]:g}"


def _far_scales(arrays: Mapping[str, Array]) -> str:
    """Which scales do not fit the moments of all clients' columns."""
    columns = len(arrays["mean"])
    centre, spread = arrays["column_mean"][:columns], arrays["column_deviation"][:columns]
    deviation = arrays["deviation"]
    scaled = arrays["mean"].any() or (deviation != 1.0).any()
    if scaled and (np.abs(arrays["mean"] - centre) > _FAR * np.maximum(spread, deviation)).any():
        return f"mean lies more than {_FAR:g} deviations away from that of all columns"
    if scaled and (deviation > _FAR * np.maximum(spread, 1.0)).any():
        return f"deviation is more than {_FAR:g} times that of all columns"
    return ""


def _far_model(facts: Facts, arrays: Mapping[str, Array]) -> str:
    """Whether features' means, or the model of all rows, are larger than any of these rows give."""
    size = norm(arrays["feature_mean"])
    if facts.features.kernel in RANDOM_KERNELS and size**2 > MOST_SQUARE * (1.0 + _ROUNDING):
        return f"feature_mean has norm {size:.3g}, larger than any row's features are"
    if facts.ridge:  # ridge |W|² is at most the objective at W = 0, which is the mean square of the targets
        most = MODEL_SPREAD * float(np.sqrt(arrays["squares"].max() / facts.ridge))
        if norm(arrays["federated"]) > most:
            return f"federated has norm {norm(arrays['federated']):.3g}, and its ridge allows {most:.3g}"
    return ""


def _of_no_rows(facts: Facts, arrays: Mapping[str, Array]) -> str:
    """Which client's parts a coordinator would refuse as replies."""
    statistics, embeddings = {}, {}
    for k, client in enumerate(facts.clients):
        rows = int(arrays["num_rows"][k])
        moment, square = arrays["moments"][k], float(arrays["squares"][k])
        statistics[client] = Statistics(num_rows=rows, gram=arrays["grams"][k], moment=moment, square=square)
        trace = float(arrays["traces"][k])
        embeddings[client] = ClientEmbedding(num_rows=rows, mean=arrays["means"][k], trace=trace)
    kernels = Kernels(
        features=None if arrays["basis"].shape[1] else facts.features.kernel,
        embedding=facts.embedding.kernel,
        constant=bool(facts.plan.get("features", {}).get("intercept")),
        noisy=bool(facts.plan.get("method", {}).get("noise")),
    )
    return impossible_parts(statistics, embeddings, kernels)


def _first(err: Exception) -> str:
    if isinstance(err, ValidationError):
        first = err.errors(include_url=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return str(err).splitlines()[0][:200] if str(err) else type(err).__name__
