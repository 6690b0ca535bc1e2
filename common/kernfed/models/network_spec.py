"""Networks as specifications: which layers, how many parameters, in which order; needs numpy alone.

Parameters are one vector, layer by layer, weights (output-major) before biases, so that a model is an array on the wire
and a weighted mean of models is a product. `kernfed.tensors.networks` computes with many of them at once.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from kernfed import rng
from kernfed.arrays import Floats
from kernfed.errors import ConfigError
from kernfed.federation.messages.base import Dim, MaxLength, Range
from kernfed.federation.messages.data import LearningTask

Mask = npt.NDArray[np.bool_]

KERNEL_SIZE = 5
"""Side of a convolution's window."""

NORM_RATE = 0.1
"""Share by which the means and variances of batch normalisation move to those of a batch."""

NORM_EPSILON = 1e-5
"""Added to the variances of batch normalisation."""

MAX_PARAMETERS = 100_000_000
MAX_DIMENSIONS = 8
"""Of an array of a module of one's own."""


class NetworkKind(enum.StrEnum):
    """Architectures."""

    LINEAR = "linear"
    """One layer."""
    MLP = "mlp"
    """Dense layers of `widths` with ReLU."""
    CNN = "cnn"
    """Like LeNet-5: two convolutions 5 x 5 (the first padded) of `widths[0:2]` channels, each with ReLU and max pooling
    by 2, then dense layers of the other widths with ReLU."""
    OWN = "own"
    """A module of the clients' own, which their files name; `parts` says what its parameters are."""


class PartRole(enum.StrEnum):
    """What a part of a module of one's own is to training."""

    WEIGHT = "weight"
    """A parameter that descends; weight decay shrinks it where it has two dimensions or more."""
    NORM = "norm"
    """Scale or shift of a normalisation: it descends too, and stays at the client where that is asked for."""
    BUFFER = "buffer"
    """Numbers that the module moves by itself, such as means and variances of batch normalisation."""


@dataclass(frozen=True, slots=True)
class NetworkPart:
    """A parameter or a buffer of a module of one's own."""

    name: Annotated[str, MaxLength(256)]
    """As the module names it."""
    shape: Annotated[tuple[int, ...], MaxLength(MAX_DIMENSIONS), Range(1, 100_000_000)]
    """Empty: a number."""
    role: PartRole

    @property
    def size(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """A network, up to the values of its parameters."""

    kind: NetworkKind
    task: LearningTask
    """Its loss: squared for regression, logistic for binary, cross-entropy for classification."""
    num_columns: Annotated[int, Range(1, 1_000_000)]
    """Columns of a row."""
    num_outputs: Annotated[int, Range(1, 1_000_000)]
    """Outputs C: 1 for regression and binary, else one per class."""
    widths: Annotated[tuple[int, ...], MaxLength(16), Range(1, 100_000)]
    """Widths of the hidden layers; of a cnn first two numbers of channels."""
    image: Annotated[tuple[int, ...], MaxLength(3), Range(1, 100_000)]
    """Channels, height and width of a row that is an image (cnn), else empty."""
    num_parameters: Annotated[int, Dim("P"), Range(1, MAX_PARAMETERS)]
    """Follows from the rest, stated so that both ends can check it."""
    batch_norm: bool = False
    """Whether hidden layers are normalised over the rows of a batch before ReLU (Ioffe & Szegedy, 2015). Of a module of
    one's own: whether it has a normalisation or buffers."""
    name: Annotated[str, MaxLength(63)] = ""
    """Of a module of one's own: how the client files call it; else empty."""
    parts: Annotated[tuple[NetworkPart, ...], MaxLength(65536)] = ()
    """Of a module of one's own, in the order of their numbers among the parameters; else empty."""

    @property
    def is_own(self) -> bool:
        """Whether it is a module of the clients' own."""
        return self.kind is NetworkKind.OWN


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights and biases of a layer."""

    shape: tuple[int, ...]
    """Of the weights: (outputs, inputs) or (channels out, channels in, height, width)."""
    is_convolution: bool
    norm: bool = False
    """Whether four numbers per output follow: scale, shift, and the mean and variance that predictions use."""

    @property
    def num_weights(self) -> int:
        """Numbers in the weights."""
        return math.prod(self.shape)

    @property
    def num_outputs(self) -> int:
        """Biases."""
        return self.shape[0]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of its parts in the vector of parameters: weights, biases, and of the normalisation four."""
        return (self.num_weights, *[self.num_outputs] * (5 if self.norm else 1))


def make_network_spec(
    kind: NetworkKind,
    task: LearningTask,
    num_columns: int,
    num_outputs: int,
    widths: tuple[int, ...] = (),
    image: tuple[int, ...] = (),
    batch_norm: bool = False,
) -> NetworkSpec:
    """Complete a network's specification with the number of its parameters.

    Raises:
        ConfigError: The parts do not fit; names the key of the job's `method.network` table.
    """
    if kind is NetworkKind.OWN:
        raise ConfigError('method.network: kind = "own" is known once the clients have told of it')
    if kind is NetworkKind.CNN:
        if len(image) != 3 or math.prod(image) != num_columns:
            raise ConfigError(
                f"method.network.image is {list(image)}, but a row has {num_columns} columns; "
                "give [channels, height, width] with that product"
            )
        if len(widths) < 3:
            raise ConfigError("method.network.widths: a cnn has two numbers of channels and at least one dense width")
        if min(image[1:]) < 12:
            raise ConfigError("method.network.image: height and width must be at least 12")
    elif image:
        raise ConfigError(f"method.network.image is for a cnn; leave it out for {kind}")
    if (kind is NetworkKind.LINEAR) != (len(widths) == 0):
        raise ConfigError(f"method.network.widths is {list(widths)}; give widths of the hidden layers, none for linear")
    if batch_norm and kind is NetworkKind.LINEAR:
        raise ConfigError("method.network.batch_norm is for hidden layers, of which linear has none; leave it out")
    layers = _layers(kind, num_columns, num_outputs, widths, image, batch_norm)
    count = sum(sum(layer.sizes) for layer in layers)
    if count > MAX_PARAMETERS:
        raise ConfigError(f"method.network has {count} parameters, more than {MAX_PARAMETERS}; use smaller widths")
    return NetworkSpec(kind, task, num_columns, num_outputs, widths, image, count, batch_norm)


def own_network_spec(
    name: str, task: LearningTask, num_columns: int, num_outputs: int, parts: tuple[NetworkPart, ...]
) -> NetworkSpec:
    """The specification of a module of the clients' own, which has these parts.

    Raises:
        ConfigError: It has no parameters, or too many, or two parts of one name.
    """
    count = sum(part.size for part in parts)
    if not any(part.role is not PartRole.BUFFER for part in parts) or count > MAX_PARAMETERS:
        raise ConfigError(f"network {name!r} has {count} parameters; want from 1 to {MAX_PARAMETERS}")
    if len({part.name for part in parts}) < len(parts):
        raise ConfigError(f"network {name!r} has two parts of one name")
    if odd := [part for part in parts if 0 in part.shape or len(part.shape) > MAX_DIMENSIONS]:
        raise ConfigError(
            f"network {name!r} has a part {odd[0].name!r} of shape {list(odd[0].shape)}; want no dimension of 0, and "
            f"{MAX_DIMENSIONS} dimensions at most"
        )
    moved = any(part.role is not PartRole.WEIGHT for part in parts)
    return NetworkSpec(NetworkKind.OWN, task, num_columns, num_outputs, (), (), count, moved, name, parts)


def check_spec(spec: NetworkSpec) -> None:
    """Check that a specification belongs together.

    Raises:
        ConfigError: It contradicts itself.
    """
    if not spec.is_own:
        layout(spec)
    elif spec != own_network_spec(spec.name, spec.task, spec.num_columns, spec.num_outputs, spec.parts):
        raise ConfigError(f"network {spec.name!r}: its specification contradicts itself")


@functools.lru_cache(maxsize=64)
def layout(spec: NetworkSpec) -> tuple[Layer, ...]:
    """List the layers in the order of their parameters.

    Raises:
        ConfigError: The specification contradicts itself.
    """
    again = make_network_spec(
        spec.kind, spec.task, spec.num_columns, spec.num_outputs, spec.widths, spec.image, spec.batch_norm
    ).num_parameters
    if again != spec.num_parameters:
        raise ConfigError(f"method.network: the specification states {spec.num_parameters} parameters, but has {again}")
    return _layers(spec.kind, spec.num_columns, spec.num_outputs, spec.widths, spec.image, spec.batch_norm)


def norm_entries(spec: NetworkSpec) -> tuple[Mask, Mask]:
    """Say which parameters belong to batch normalisation, shape (P,), and which of these are means and variances."""
    if spec.is_own:
        return (
            _of_parts(spec, lambda part: part.role is not PartRole.WEIGHT),
            _of_parts(spec, lambda part: part.role is PartRole.BUFFER),
        )
    norm: list[Mask] = []
    statistics: list[Mask] = []
    for layer in layout(spec):
        for i, size in enumerate(layer.sizes):
            norm.append(np.full(size, i >= 2))
            statistics.append(np.full(size, i >= 4))
    return np.concatenate(norm), np.concatenate(statistics)


def decayed_entries(spec: NetworkSpec) -> Mask:
    """Say which parameters weight decay shrinks, shape (P,): weights, and neither biases nor normalisation."""
    if spec.is_own:
        return _of_parts(spec, lambda part: part.role is PartRole.WEIGHT and len(part.shape) > 1)
    return np.concatenate([np.full(size, i == 0) for layer in layout(spec) for i, size in enumerate(layer.sizes)])


def initial_parameters(spec: NetworkSpec, seed: int, class_order: Sequence[int] = ()) -> Floats:
    """Draw parameters to start from, shape (P,): He's normal weights, biases 0; the same bits everywhere.

    Args:
        spec: The network.
        seed: Of the draws.
        class_order: Places of the classes in an order that does not hang on their names; the first drawn weights of the
            last layer are those of the first class here. Two classes with one output: its weights are turned round
            where the second class comes first. Empty: in the order of the outputs.

    Source: He, Zhang, Ren & Sun (2015), equation (10).
    """
    parts: list[Floats] = []
    for i, layer in enumerate(layout(spec)):
        fan_in = layer.num_weights // layer.num_outputs
        draw = rng.stream(seed, "network", str(i)).normal(1, layer.num_weights)[0]
        parts += [draw * math.sqrt(2.0 / fan_in), np.zeros(layer.num_outputs)]
        if layer.norm:
            zeros, ones = np.zeros(layer.num_outputs), np.ones(layer.num_outputs)
            parts += [ones, zeros, zeros, ones]
    if class_order:
        drawn = parts[-2].reshape(spec.num_outputs, -1)
        placed = np.empty_like(drawn)
        if spec.num_outputs == 1:
            placed[:] = drawn if class_order[0] == 0 else -drawn
        else:
            placed[list(class_order)] = drawn
        parts[-2] = placed.reshape(-1)
    return np.concatenate(parts)


def _of_parts(spec: NetworkSpec, holds: Callable[[NetworkPart], bool]) -> Mask:
    return np.concatenate([np.full(part.size, holds(part)) for part in spec.parts])


def _layers(
    kind: NetworkKind,
    num_columns: int,
    num_outputs: int,
    widths: tuple[int, ...],
    image: tuple[int, ...],
    norm: bool,
) -> tuple[Layer, ...]:
    found: list[Layer] = []
    inputs, dense = num_columns, widths
    if kind is NetworkKind.CNN:
        channels, height, width = image
        found.append(Layer((widths[0], channels, KERNEL_SIZE, KERNEL_SIZE), True, norm))
        found.append(Layer((widths[1], widths[0], KERNEL_SIZE, KERNEL_SIZE), True, norm))
        height, width = ((side // 2 - KERNEL_SIZE + 1) // 2 for side in (height, width))
        inputs, dense = widths[1] * height * width, widths[2:]
    for outputs in dense:
        found.append(Layer((outputs, inputs), False, norm))
        inputs = outputs
    return (*found, Layer((num_outputs, inputs), False))


def spec_facts(spec: NetworkSpec) -> dict[str, Any]:
    """What a model's file holds of a specification; `read_spec` reads it."""
    facts = asdict(spec)
    if not spec.is_own:  # as releases without modules of one's own have it
        del facts["name"], facts["parts"]
    return facts


def read_spec(facts: Mapping[str, Any]) -> NetworkSpec:
    """A specification from the fields that `spec_facts` wrote.

    Raises:
        ValueError, KeyError, TypeError: They are not those of a network.
    """
    widths, image = tuple(facts["widths"]), tuple(facts["image"])
    kind, task = NetworkKind(facts["kind"]), LearningTask(facts["task"])
    parts = tuple(NetworkPart(p["name"], tuple(p["shape"]), PartRole(p["role"])) for p in facts.get("parts", ()))
    return NetworkSpec(**{**facts, "kind": kind, "task": task, "widths": widths, "image": image, "parts": parts})
