"""Frozen feature extractors of the client file: a torch module, or a model of timm or sentence-transformers.

A peer names a backbone by the client file's word for it, never a class, a path or a model. Weights are read as
safetensors; nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from kernfed.errors import ConfigError, DataError
from kernfed.jobs.client_models import BackboneSection
from kernfed.models.tensors.site_network import import_object, load_weights

Features = npt.NDArray[np.float32]
Images = npt.NDArray[np.uint8]
_FACTS = {"image_size", "channels", "mean", "deviation", "source"}


@dataclass(frozen=True)
class Backbone:
    """A loaded feature extractor on a device."""

    name: str
    section: BackboneSection
    fingerprint: str
    """SHA-256 over weights, source and transforms: the same at every client that extracts alike."""
    encode: Callable[[Any], Features]
    """A batch (images (n, channels, h, w) after the transforms, rows (n, d), or texts) to features, (n, k)."""

    @property
    def reads_text(self) -> bool:
        """Whether it reads texts and not images or rows."""
        return self.section.source.startswith("sentence-transformers:")

    def features(self, batches: Callable[[int], Sequence[Any]], num_rows: int) -> Features:
        """Extract features in batches.

        Args:
            batches: Rows from an index on, at most `batch_size` of them, as `encode` takes them.
            num_rows: How many rows there are.

        Raises:
            DataError: The backbone does not take such rows, or gives numbers that are not finite.
        """
        parts = []
        for start in range(0, num_rows, self.section.batch_size):
            try:
                part = self.encode(batches(start))
            except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as err:
                raise DataError(f"backbone {self.name!r} cannot take these rows: {err}") from err
            parts.append(part.reshape(len(part), -1))
        found = np.concatenate(parts) if parts else np.zeros((0, 0), np.float32)
        if not np.isfinite(found).all():
            raise DataError(
                f"backbone {self.name!r} gives numbers that are not finite; check its weights and transforms"
            )
        return found


def load_backbone(
    name: str, sections: dict[str, BackboneSection], device: torch.device, key: str = "data.backbone"
) -> Backbone:
    """Load what the client file has under a name, which the job has under a key.

    Raises:
        ConfigError: It has none of that name, or it cannot be loaded; says what to install or correct.
    """
    section = sections.get(name)
    if section is None:
        known = ", ".join(sorted(sections)) or "none"
        raise ConfigError(
            f"backbone {name!r} is not allowed here (allowed: {known}); add [backbones.{name}] to the client file, or "
            f"correct {key} in the job"
        )
    kind, _, what = section.source.partition(":")
    makers = {"torch": _torch_module, "timm": _timm_module, "sentence-transformers": _sentence_module}
    module = makers[kind](name, what, section)
    module.eval().requires_grad_(False).to(device)
    encode = _sentence_encoder(module, section) if kind == "sentence-transformers" else _tensor_encoder(module, device)
    return Backbone(name, section, _fingerprint(module, section), encode)


def prepare_images(images: Images, section: BackboneSection) -> npt.NDArray[np.float32]:
    """Scale, repeat or average channels, and normalise: (n, h, w) or (n, h, w, c) bytes to (n, channels, h', w').

    Raises:
        DataError: The shape is not that of images.
    """
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[-1] not in (1, 3):
        raise DataError(f"images have shape {images.shape[1:]}; want (height, width) or (height, width, 1 or 3)")
    return prepare_pixels(
        torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float().div_(255.0), section
    )


def prepare_pixels(x: torch.Tensor, section: BackboneSection) -> npt.NDArray[np.float32]:
    """The same for pixels in [0, 1], float32 (n, 1 or 3, h, w)."""
    if section.channels == 3 and x.shape[1] == 1:
        x = x.expand(-1, 3, -1, -1)
    elif section.channels == 1 and x.shape[1] == 3:
        x = x.mean(1, keepdim=True)
    size = section.image_size
    if size is not None and tuple(x.shape[2:]) != (size, size):
        x = torch.nn.functional.interpolate(x, (size, size), mode="bicubic", antialias=True).clamp_(0.0, 1.0)
    mean, deviation = (torch.tensor(v).reshape(1, -1, 1, 1) for v in (section.mean, section.deviation))
    found: npt.NDArray[np.float32] = ((x - mean) / deviation).numpy()
    return found


def _tensor_encoder(module: nn.Module, device: torch.device) -> Callable[[Any], Features]:
    def encode(batch: npt.NDArray[np.float32]) -> Features:
        with torch.inference_mode():
            found: Features = module(torch.from_numpy(np.ascontiguousarray(batch)).to(device)).float().cpu().numpy()
        return found

    return encode


def _sentence_encoder(module: Any, section: BackboneSection) -> Callable[[Any], Features]:
    def encode(batch: Sequence[str]) -> Features:
        found = module.encode(
            list(batch), batch_size=section.batch_size, convert_to_numpy=True, show_progress_bar=False
        )
        return np.asarray(found, dtype=np.float32)

    return encode


def _torch_module(name: str, what: str, section: BackboneSection) -> nn.Module:
    key = f"[backbones.{name}] of the client file"
    make = import_object(what, key)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(section.seed)
            module = make(**section.parameters)
    except (TypeError, ValueError, RuntimeError) as err:
        raise ConfigError(f"{key}: {what} cannot be made with its parameters: {err}") from err
    if not isinstance(module, torch.nn.Module):
        raise ConfigError(f"{key}: {what} gives no torch.nn.Module")
    if section.weights is not None:
        load_weights(module, section.weights, key)
    return module


def _timm_module(name: str, what: str, section: BackboneSection) -> nn.Module:
    timm = _import_extra(name, "timm", "timm")
    options = {}
    if section.weights is not None:
        if section.weights.suffix != ".safetensors":  # timm would unpickle anything else
            raise ConfigError(
                f"[backbones.{name}] of the client file: weights {section.weights.name} is no .safetensors file; save "
                "the model's state_dict with safetensors.torch.save_file"
            )
        options["pretrained_cfg_overlay"] = {"file": str(section.weights)}
    try:
        module: nn.Module = timm.create_model(
            what, pretrained=True, num_classes=0, in_chans=section.channels, **options
        )
    except Exception as err:  # of the hub, of files, of names: the library has no family of its own
        raise ConfigError(
            f"[backbones.{name}] of the client file: timm cannot load {what!r} with its weights ({err}); check the "
            "name, and on machines without a network give weights, a .safetensors file"
        ) from err
    return module


def _sentence_module(name: str, what: str, section: BackboneSection) -> nn.Module:
    package = _import_extra(name, "sentence_transformers", "sentences")
    try:
        module: nn.Module = package.SentenceTransformer(what, device="cpu")
    except Exception as err:  # as above
        raise ConfigError(
            f"[backbones.{name}] of the client file: sentence-transformers cannot load {what!r} ({err}); check the "
            "name, or give a folder that holds the model"
        ) from err
    return module


def _import_extra(name: str, package: str, extra: str) -> Any:
    """An optional library; where it is there and broken, the usual cause is a torchvision of another build."""
    try:
        return importlib.import_module(package)
    except Exception as err:  # a torchvision that does not fit raises RuntimeError, and others hide that
        section = f"[backbones.{name}] of the client file"
        if isinstance(err, ModuleNotFoundError) and err.name == package:
            raise ConfigError(f"{section} needs {package}; pip install 'kernfed[{extra}]'") from err

        raise ConfigError(
            f"{section}: {package} is installed but cannot be imported ({_root(err)}). Most often torchvision is of "
            f"another build than torch, which is {torch.__version__}: install the torchvision of that build, or, for "
            "sentence-transformers, which does without, pip uninstall torchvision"
        ) from err


def _root(err: BaseException) -> str:
    while err.__cause__ is not None:
        err = err.__cause__
    return f"{type(err).__name__}: {err}"


def _fingerprint(module: nn.Module, section: BackboneSection) -> str:
    facts = section.model_dump(mode="json", include=_FACTS | {"parameters"})
    if section.source.startswith("sentence-transformers:"):
        facts["source"] = "sentence-transformers"  # a folder's name says nothing about the model in it
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for key, tensor in sorted(module.state_dict().items()):
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(f"{key} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
