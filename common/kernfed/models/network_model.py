"""A global model that is a network: saved beside its columns, scales and classes, and loaded to predict with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kernfed.arrays import Floats
from kernfed.artifact_names import JOB_JSON, MODEL_FACTS
from kernfed.columns.plan import ColumnPlan, feature_names
from kernfed.errors import ConfigError
from kernfed.federation.messages.data import LearningTask
from kernfed.models import global_model_file
from kernfed.models.base import Loader, Model, load
from kernfed.models.columns_fact import columns_fact, columns_of_facts
from kernfed.models.global_model import load_model
from kernfed.models.global_model_file import PAIR
from kernfed.models.network_spec import NetworkSpec, check_spec, read_spec, spec_facts
from kernfed.models.rows import finite, ordered, standardised

if TYPE_CHECKING:
    import pandas as pd

    from kernfed.jobs.client_models import SiteNetworkSection

    Module = Callable[..., Any] | Mapping[str, SiteNetworkSection]  # modules are called, and their classes

FORMAT = "kernfed.network-model/1"
ARRAYS = ("mean", "deviation", "parameters", "target_mean", "target_deviation")


@dataclass(frozen=True, eq=False)
class NetworkModel:
    """Predicts like `kernfed.models.global_model.GlobalModel`. d columns, C outputs, P parameters. Checked when made.

    Raises:
        ConfigError: A part does not fit the others, or holds NaN or infinity.
    """

    task: LearningTask
    feature_names: tuple[str, ...]
    target: str
    classes: tuple[str, ...]
    """Binary: negative, positive; empty for regression."""
    mean: Floats
    """Shape (d,)."""
    deviation: Floats
    """Shape (d,), above 0."""
    network: NetworkSpec
    parameters: Floats
    """Shape (P,)."""
    target_mean: Floats
    """Shape (C,); zeros for classes."""
    target_deviation: Floats
    """Shape (C,); ones for classes."""
    job: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[ColumnPlan, ...] = ()
    """Of the table, from which the columns are made; empty: these are its columns."""
    module: Any = None
    """Of a network of the clients' own, without which it does not predict; `with_module` checks it."""

    def __post_init__(self) -> None:
        """Check the parts against each other."""
        check_spec(self.network)
        d, c = self.network.num_columns, self.network.num_outputs
        shapes = {
            "mean": (d,),
            "deviation": (d,),
            "parameters": (self.network.num_parameters,),
            "target_mean": (c,),
            "target_deviation": (c,),
        }
        for name in ARRAYS:
            array = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
            if array.shape != shapes[name] or not np.isfinite(array).all():
                raise ConfigError(f"model: {name} has shape {array.shape}, want {shapes[name]}, or is not finite")
            object.__setattr__(self, name, array)
        if len(self.feature_names) != d or not (self.deviation > 0).all():
            raise ConfigError(f"model: {len(self.feature_names)} feature names for {d} columns, or a deviation of 0")
        if self.columns and feature_names(self.columns) != self.feature_names:
            raise ConfigError("model: its columns do not make its features; fetch the model again")

    def predict_scores(self, rows: pd.DataFrame | npt.ArrayLike, *, device: str = "cpu") -> Floats:
        """Compute scores of rows in the units of the data, shape (n, C): numbers, or probabilities of classes.

        Args:
            rows: A data frame (columns by name), or numbers of shape (n, d) in the order of `feature_names`.
            device: Where to compute.

        Raises:
            DataError: A column is missing, or a value is not a finite number, or so large that its row has no score.
            ConfigError: The network is of the clients' own, and its module is not here.
        """
        from kernfed.models.tensors.predict import network_scores  # noqa: PLC0415  # the coordinator has no torch

        x = standardised(ordered(rows, self.feature_names, self.columns), self.mean, self.deviation)
        scores = network_scores(x, self.network, self.parameters, device, self.module)
        return finite(scores * self.target_deviation + self.target_mean)

    @property
    def lacks_module(self) -> bool:
        """Whether it cannot predict before `with_module`."""
        return self.network.is_own and self.module is None

    def with_module(self, network: Module) -> NetworkModel:
        """The model with the module of a network of the clients' own.

        Args:
            network: The module; or what makes it, called with the numbers of columns and outputs; or the `networks` of
                a client file.

        Raises:
            ConfigError: The model is of another kind, or the module does not fit it.
        """
        from kernfed.models.tensors.predict import fitting_module  # noqa: PLC0415  # the coordinator has no torch

        return replace(self, module=fitting_module(self.network, network, int(self.job.get("seed", 0))))

    def save(self, folder: Path | str, *, durable: bool = True) -> None:
        """Write `model.safetensors` and `model.json`; the same model gives the same bytes.

        Args:
            folder: Made where it does not exist.
            durable: Whether to wait for the disk; False where the caller syncs the folder.
        """
        facts = {
            "format": FORMAT,
            "task": self.task,
            "feature_names": self.feature_names,
            "target": self.target,
            "classes": self.classes,
            "network": spec_facts(self.network),
            "job": dict(self.job),
            **columns_fact(self.columns),
        }
        PAIR.write(folder, facts, {name: getattr(self, name) for name in ARRAYS}, durable=durable)


def load_network_model(folder: Path | str) -> NetworkModel:
    """Load what `NetworkModel.save` wrote.

    Raises:
        ConfigError: A file is missing, damaged, or from another model.
    """
    facts, arrays = PAIR.read(folder, FORMAT)
    try:
        return NetworkModel(
            task=LearningTask(facts["task"]),
            feature_names=tuple(facts["feature_names"]),
            target=facts["target"],
            classes=tuple(facts["classes"]),
            network=read_spec(facts["network"]),
            job=facts["job"],
            columns=columns_of_facts(facts),
            **{name: arrays[name] for name in ARRAYS},
        )
    except (ValueError, KeyError, TypeError) as err:
        raise PAIR.refuse(folder, err) from err


def load_predictor(folder: Path | str, network: Module | None = None) -> Model:
    """Load a job's global model, whatever it is.

    Args:
        folder: Of the model.
        network: As of `NetworkModel.with_module`, where the model is a network of the clients' own.

    Raises:
        ConfigError: It cannot be loaded, or the network does not fit it.
    """
    place = Path(folder)
    if not (place / MODEL_FACTS).exists() and (place / JOB_JSON).is_file():
        raise ConfigError(
            f"{folder} holds a job's files and no model: the job failed, its method leaves none, or every client keeps "
            "a model of its own (personalise, distill, FedBN), which `kernfed-client predict --job JOB` uses there"
        )
    model = load(place, LOADERS, PAIR)
    if network is None:
        return model
    if not isinstance(model, NetworkModel):
        raise ConfigError(f"{folder} holds no network of the clients' own; load it without one")
    return model.with_module(network)


LOADERS: dict[str, Loader] = {global_model_file.FORMAT: load_model, FORMAT: load_network_model}
"""How a model is loaded, by its format."""
