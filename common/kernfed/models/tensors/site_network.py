"""Modules that a site's own file names: imported, made and checked. Weights are safetensors; nothing is unpickled."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from kernfed import rng
from kernfed.errors import ConfigError
from kernfed.jobs.client_models import SiteNetworkSection
from kernfed.models.network_spec import NetworkSpec
from kernfed.tensors.modules import in_words, parts_of, seeded


def load_site_network(
    name: str, sections: Mapping[str, SiteNetworkSection], num_columns: int, num_outputs: int, seed: int
) -> nn.Module:
    """Make the module that a client file has under a name.

    Args:
        name: The client file's word for it.
        sections: Of the client file.
        num_columns: Columns of a row.
        num_outputs: Outputs of the job.
        seed: Of what is drawn as it is made.

    Raises:
        ConfigError: There is none of that name, or it cannot be made, or does not fit; says what to correct.
    """
    section = sections.get(name)
    if section is None:
        known = ", ".join(sorted(sections)) or "none"
        raise ConfigError(
            f"network {name!r} is not allowed here (allowed: {known}); add [networks.{name}] to the client file, or "
            "correct method.network.source in the job"
        )
    return make_site_network(f"[networks.{name}] of the client file", section, num_columns, num_outputs, seed)


def make_site_network(
    key: str, section: SiteNetworkSection, num_columns: int, num_outputs: int, seed: int
) -> nn.Module:
    """Make a module, whose first weights are drawn by a seed or those of a file.

    Args:
        key: Where it is named, for errors.
        section: What it is.
        num_columns: Columns of a row.
        num_outputs: Outputs of the job.
        seed: Of what is drawn as it is made.

    Raises:
        ConfigError: It cannot be made, or does not give so many outputs for so many columns.
    """
    make = _imported(key, section.source)
    with seeded(seed):
        try:
            module = make(num_columns, num_outputs, **section.parameters)
        except Exception as err:  # whatever the site's own code raises
            raise ConfigError(
                f"{key}: {section.source} cannot be made with (columns, outputs, parameters): {in_words(err)}"
            ) from err
        if not isinstance(module, nn.Module):
            raise ConfigError(f"{key}: {section.source} gives no torch.nn.Module")
        if section.weights is not None:
            load_weights(module, section.weights, key)
        check_module(module, num_columns, num_outputs, key)
    return module


def fitting_module(spec: NetworkSpec, network: object, seed: int) -> nn.Module:
    """The module of a model's network, checked against it.

    Args:
        spec: Of the model.
        network: The module, or what makes it of the numbers of columns and outputs, or sections of a client file.
        seed: Of the job.

    Raises:
        ConfigError: It is none, or does not fit.
    """
    if not spec.is_own:
        raise ConfigError("the model is a network that kernfed builds; load it without one")
    key = f"network {spec.name!r}"
    if isinstance(network, Mapping):
        drawn = own_network_seed(seed, spec.name)
        module = load_site_network(spec.name, network, spec.num_columns, spec.num_outputs, drawn)
    else:
        made = network if isinstance(network, nn.Module) or not callable(network) else _made(spec, network, seed)
        if not isinstance(made, nn.Module):
            raise ConfigError(f"{key}: want a torch.nn.Module, or a function that makes one, not {type(made).__name__}")
        module = made
        check_module(module, spec.num_columns, spec.num_outputs, key)
    check_fits(module, spec)
    return module


def own_network_seed(seed: int, name: str) -> int:
    """Of what a module draws as it is made, from a job's seed: the same at all clients."""
    return rng.seed(seed, "own network", name)


def _made(spec: NetworkSpec, make: Callable[[int, int], object], seed: int) -> object:
    with seeded(own_network_seed(seed, spec.name)):
        return make(spec.num_columns, spec.num_outputs)


def check_module(module: nn.Module, num_columns: int, num_outputs: int, key: str) -> None:
    """Check that a module can be trained on so many columns and outputs.

    Raises:
        ConfigError: It cannot; says why.
    """
    norms = [name for name, inner in module.named_modules() if isinstance(inner, _BatchNorm) and _odd(inner)]
    if norms:
        raise ConfigError(
            f"{key}: batch normalisation {norms[0]!r} keeps no moving means (momentum = None or track_running_stats = "
            "False); give it a momentum"
        )
    types = sorted({str(p.dtype) for p in module.parameters()})
    if len(types) != 1 or not next(module.parameters()).is_floating_point():
        raise ConfigError(f"{key}: its parameters are of types {', '.join(types) or 'none'}; want one, of real numbers")
    if not any(p.requires_grad for p in module.parameters()):
        raise ConfigError(f"{key}: none of its parameters learns (requires_grad)")
    module.eval()
    dtype = next(module.parameters()).dtype
    try:
        with torch.no_grad():
            shape = tuple(module(torch.zeros(2, num_columns, dtype=dtype)).shape)
    except Exception as err:  # whatever the site's own code raises
        raise ConfigError(f"{key}: the network cannot take {num_columns} columns: {in_words(err)}") from err
    if shape != (2, num_outputs):
        raise ConfigError(
            f"{key}: the network gives {list(shape[1:])} numbers a row where the job has {num_outputs} outputs"
        )


def check_fits(module: nn.Module, spec: NetworkSpec) -> None:
    """Check that a module has the parts of a specification.

    Raises:
        ConfigError: It has not; names the first part that differs.
    """
    own = parts_of(module)
    for i, part in enumerate(spec.parts):
        if i >= len(own) or own[i] != part:
            here = f"{own[i].name!r} {list(own[i].shape)} ({own[i].role})" if i < len(own) else "none"
            raise ConfigError(
                f"network {spec.name!r} has {part.name!r} {list(part.shape)} ({part.role}) as its part {i + 1}, and "
                f"here {here}; give every client file the same module and parameters"
            )
    if len(own) > len(spec.parts):
        raise ConfigError(
            f"network {spec.name!r} has {len(spec.parts)} parts, and here also {own[len(spec.parts)].name!r}; give "
            "every client file the same module and parameters"
        )


def load_weights(module: nn.Module, path: Path, key: str) -> None:
    """Fill a module with the tensors of a safetensors file.

    Raises:
        ConfigError: It cannot be read, or does not fit.
    """
    try:
        module.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError, TypeError, AttributeError) as err:
        raise ConfigError(
            f"{key}: weights {path.name} cannot be read or do not fit the module: {err}; a state_dict is "
            "saved for kernfed with safetensors.torch.save_file"
        ) from err


def import_object(path: str, key: str) -> Any:
    """An importable object, which a site's own file names.

    Raises:
        ConfigError: There is none.
    """
    package, _, attribute = path.rpartition(".")
    try:
        return getattr(importlib.import_module(package), attribute)
    except (ImportError, AttributeError, ValueError) as err:
        raise ConfigError(f"{key}: {path} cannot be imported here ({err}); install its package") from err
    except Exception as err:  # whatever the site's own code raises
        raise ConfigError(f"{key}: {path} cannot be imported here: {in_words(err)}; correct it") from err


def _imported(key: str, source: str) -> Any:
    kind, _, what = source.partition(":")
    if kind == "torch":
        return import_object(what, key)
    path, _, name = what.rpartition(":")
    spec = importlib.util.spec_from_file_location(f"kernfed_site_network_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{key}: {path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and others look for it there
    try:
        spec.loader.exec_module(module)
        return getattr(module, name)
    except FileNotFoundError as err:
        raise ConfigError(f"{key}: there is no file {path}") from err
    except Exception as err:  # whatever the site's own file raises
        raise ConfigError(f"{key}: {name} cannot be had from {path} ({in_words(err)})") from err


def _odd(norm: _BatchNorm) -> bool:
    return norm.momentum is None or not norm.track_running_stats
