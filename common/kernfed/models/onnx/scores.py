"""From feature columns to scores, and from scores to predictions, as models compute them."""

from __future__ import annotations

import functools
import math

import numpy as np

from kernfed.arrays import Floats
from kernfed.errors import ConfigError
from kernfed.features.kernels import RADIAL, Kernel
from kernfed.features.spec import FeatureForm, FeatureSpec, draw_frequencies
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.losses import Link
from kernfed.maths.points.landmarks import landmark_root
from kernfed.maths.tasks import TASKS
from kernfed.models.global_model import GlobalModel
from kernfed.models.network_model import NetworkModel
from kernfed.models.network_spec import KERNEL_SIZE, NORM_EPSILON, NetworkKind, layout
from kernfed.models.onnx.graph import DOUBLE, FLOAT, INTEGER, Graph


def linear_scores(graph: Graph, model: GlobalModel, x: str) -> str:
    """Scores (n, C) of feature columns (n, d), float64, in the units of the data."""
    rows = graph("Div", graph("Sub", x, model.mean[None]), model.deviation[None])
    offset = model.target_mean - model.feature_mean @ model.weights
    features = _features(graph, model.spec, rows)
    return linked(graph, model.link, graph("Add", graph("MatMul", features, model.weights), offset[None]))


def linked(graph: Graph, link: Link, scores: str) -> str:
    """See `kernfed.tensors.links.linked`."""
    if link is Link.IDENTITY:
        return scores
    if link is Link.SOFTMAX:
        return graph("Softmax", scores, axis=-1)
    return graph("Exp" if link is Link.EXPONENTIAL else "Sigmoid", scores)


def _features(graph: Graph, spec: FeatureSpec, x: str) -> str:
    """See `kernfed.tensors.feature_maps.FeatureMap`."""
    scaled = functools.partial(graph, "Div", x, np.array(spec.lengthscales)[None])
    if spec.kernel is Kernel.LINEAR:
        return scaled()
    if spec.kernel is Kernel.POLYNOMIAL2:
        return _polynomial(graph, spec.num_columns, scaled())
    drawn = draw_frequencies(spec)
    if spec.form is FeatureForm.NYSTROEM:
        points = drawn.omega / np.array(spec.lengthscales)
        return graph("MatMul", _kernel(graph, spec, scaled(), points), landmark_root(spec, drawn.omega).matrix)
    projected = graph("MatMul", x, np.ascontiguousarray(drawn.omega.T))
    quarter = math.pi / 2  # a sine, for not every runtime has the cosine of a float64
    if spec.form is FeatureForm.SINE_COSINE:
        parts = graph("Sin", projected), graph("Sin", graph("Add", projected, quarter))
        found = graph("Concat", *parts, axis=1)
    else:
        found = graph("Sin", graph("Add", projected, drawn.phase[None] + quarter))
    return graph("Mul", found, math.sqrt((2.0 if spec.form is FeatureForm.COSINE else 1.0) / spec.num_frequencies))


def _polynomial(graph: Graph, num_columns: int, x: str) -> str:
    """All products of (1, x), those of two different times the root of 2."""
    first, second = np.triu_indices(num_columns + 1)
    ones = graph("Add", graph("Mul", graph("Gather", x, np.array([0]), axis=1), 0.0), 1.0)
    u = graph("Concat", ones, x, axis=1)
    products = graph("Mul", graph("Gather", u, first, axis=1), graph("Gather", u, second, axis=1))
    return graph("Mul", products, np.where(first == second, 1.0, math.sqrt(2.0))[None])


def _kernel(graph: Graph, spec: FeatureSpec, x: str, points: Floats) -> str:
    """The kernel between rows and landmarks, (n, D), from differences, as `kernfed.features.kernels.values`."""
    apart = graph("Sub", graph("Unsqueeze", x, np.array([1])), points[None])
    square = graph("ReduceSum", graph("Mul", apart, apart), np.array([2]), keepdims=0)
    distance = _Term(graph, graph("Sqrt", square))
    found: _Term = RADIAL[spec.kernel].value(distance, lambda term: _Term(graph, graph("Exp", term.name)))
    return found.name


class _Term:
    """A result in a formula that is written for arrays."""

    def __init__(self, graph: Graph, name: str) -> None:
        self._graph, self.name = graph, name

    def _with(self, kind: str, other: _Term | float) -> _Term:
        return _Term(self._graph, self._graph(kind, self.name, other.name if isinstance(other, _Term) else other))

    def __add__(self, other: _Term | float) -> _Term:
        return self._with("Add", other)

    def __mul__(self, other: _Term | float) -> _Term:
        return self._with("Mul", other)

    def __neg__(self) -> _Term:
        return self * -1.0

    __radd__, __rmul__ = __add__, __mul__


def network_scores(graph: Graph, model: NetworkModel, x: str) -> str:
    """Scores (n, C) of feature columns (n, d), float64, in the units of the data.

    Raises:
        ConfigError: The network is a module of the clients' own.
    """
    spec = model.network
    if spec.is_own:
        raise ConfigError(
            f"network {spec.name!r} of the clients' own has no ONNX form here; export its module with torch.onnx"
        )
    narrow = spec.kind is NetworkKind.CNN
    kind = np.float32 if narrow else np.float64
    hidden = graph("Div", graph("Sub", x, model.mean[None]), model.deviation[None])
    if narrow:
        hidden = graph("Reshape", graph.cast(hidden, FLOAT), np.array([-1, *spec.image]))
    layers, start = layout(spec), 0
    for i, layer in enumerate(layers):
        pieces = np.split(model.parameters[start : start + sum(layer.sizes)].astype(kind), np.cumsum(layer.sizes)[:-1])
        start += sum(layer.sizes)
        weights, bias, *norm = pieces
        if layer.is_convolution:
            pads = [KERNEL_SIZE // 2 if i == 0 else 0] * 4
            hidden = graph("Conv", hidden, weights.reshape(layer.shape), bias, pads=pads)
            hidden = graph("Relu", _normalised(graph, norm, hidden, (1, -1, 1, 1)))
            hidden = graph("MaxPool", hidden, kernel_shape=[2, 2], strides=[2, 2])
            if not layers[i + 1].is_convolution:
                hidden = graph("Flatten", hidden, axis=1)
            continue
        dense = np.ascontiguousarray(weights.reshape(layer.shape).T)
        hidden = graph("Add", graph("MatMul", hidden, dense), bias[None])
        if i < len(layers) - 1:
            hidden = graph("Relu", _normalised(graph, norm, hidden, (1, -1)))
    found = linked(graph, TASKS[spec.task].link, hidden)
    found = graph.cast(found, DOUBLE) if narrow else found
    return graph("Add", graph("Mul", found, model.target_deviation[None]), model.target_mean[None])


def _normalised(graph: Graph, norm: list[Floats], hidden: str, shape: tuple[int, ...]) -> str:
    """Batch normalisation by the means and variances among the parameters; none without them."""
    if not norm:
        return hidden
    scale, shift, mean, variance = norm
    factor = (scale / np.sqrt(variance + NORM_EPSILON)).astype(scale.dtype)
    return graph("Add", graph("Mul", hidden, factor.reshape(shape)), (shift - mean * factor).reshape(shape))


def probabilities(graph: Graph, task: LearningTask, num_classes: int, scores: str) -> str:
    """See `kernfed.maths.tasks`: of the classes, (n, number of classes); NaN where the scores are."""
    if task is LearningTask.BINARY:
        positive = graph("Min", graph("Max", scores, 0.0), 1.0)
        return graph("Concat", graph("Sub", graph.constant(1.0), positive), positive, axis=1)
    most, least = (graph(kind, scores, axes=[1], keepdims=1) for kind in ("ReduceMax", "ReduceMin"))
    cut = graph("Max", graph("Sub", scores, graph.where(graph("Greater", most, 0.0), 0.0, least)), 0.0)
    total = graph("ReduceSum", cut, np.array([1]), keepdims=1)
    some = graph("Greater", total, 0.0)
    found = graph.where(some, graph("Div", cut, graph.where(some, total, 1.0)), 1.0 / num_classes)
    refused = graph("IsNaN", graph("ReduceSum", scores, np.array([1]), keepdims=1))
    return graph.where(refused, math.nan, found)


def classes(graph: Graph, task: LearningTask, names: tuple[str, ...], scores: str) -> str:
    """Name of the class of each row, (n,); empty where the scores are NaN."""
    if task is LearningTask.BINARY:
        first = graph("Squeeze", scores, np.array([1]))
        place = graph.cast(graph("GreaterOrEqual", first, 0.5), INTEGER)
    else:
        first = graph("ReduceSum", scores, np.array([1]), keepdims=0)
        place = graph("ArgMax", scores, axis=1, keepdims=0)
    text = graph.constant(np.array(names, dtype=object))
    return graph.where(graph("IsNaN", first), graph.constant(np.array("", dtype=object)), graph("Gather", text, place))
