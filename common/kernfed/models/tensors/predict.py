"""Scores of rows under a model: linear on features, or a network."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from kernfed.arrays import Floats
from kernfed.errors import ConfigError
from kernfed.features.spec import FeatureSpec, Frequencies
from kernfed.maths.losses import Link
from kernfed.models.network_spec import NetworkSpec
from kernfed.models.tensors.site_network import fitting_module
from kernfed.tensors.feature_maps import FeatureMap
from kernfed.tensors.links import linked
from kernfed.tensors.networks import dtype_of, scores

__all__ = ["fitting_module", "linear_scores", "network_scores"]

_ROWS = 4096
"""Rows that a network maps at a time."""


def linear_scores(
    x: Floats, spec: FeatureSpec, frequencies: Frequencies, weights: Floats, offset: Floats, link: Link, device: str
) -> Floats:
    """Compute link(φ(x) weights + offset), shape (n, C).

    Args:
        x: Standardised rows, (n, d).
        spec: The feature map φ, M features.
        frequencies: Its frequencies, as drawn.
        weights: (M, C).
        offset: (C,).
        link: From linear scores to predictions.
        device: Where to compute.
    """
    rows = torch.from_numpy(x).to(device)
    w = torch.from_numpy(weights).to(device)
    b = torch.from_numpy(offset).to(device)
    mapped = FeatureMap(spec, device=device, frequencies=frequencies).blocks(rows)
    parts = [linked(link, torch.addmm(b, z, w)) for z in mapped]
    if not parts:
        return np.empty((0, weights.shape[1]))
    found: Floats = torch.cat(parts).cpu().numpy()
    return found


def network_scores(
    x: Floats, network: NetworkSpec, parameters: Floats, device: str, module: nn.Module | None = None
) -> Floats:
    """Compute the scores of a network's outputs, shape (n, C).

    Args:
        x: Standardised rows, (n, d).
        network: The network.
        parameters: (P,).
        device: Where to compute.
        module: Of one's own, where the network is one.

    Raises:
        ConfigError: It is one, and its module is not given.
    """
    if network.is_own and module is None:
        raise ConfigError(
            f"this model is network {network.name!r} of the clients' own, and its module is not here; load it with "
            "the module: kernfed.load_model(FOLDER, network=MODULE), or kernfed predict --networks FILE, a client file "
            f"with [networks.{network.name}]"
        )
    kind = dtype_of(network, module)
    if module is not None:
        module.to(device)
    placed = torch.tensor(parameters[None], dtype=kind, device=device)
    parts = []
    with torch.no_grad():
        for part in np.array_split(x, max(1, len(x) // _ROWS)):
            found = scores(network, placed, torch.tensor(part, dtype=kind, device=device), module)
            parts.append(found[0].double().cpu().numpy())
    return np.concatenate(parts)
