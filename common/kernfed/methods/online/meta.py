"""A small network that is meant to be adapted: personalised federated averaging (Per-FedAvg), first-order, online.

Two hidden layers of ReLU units, one output. The weights travel as one vector: for each layer its matrix, row by row,
then its offsets. Inputs are rows of norm at most 1, targets lie in [0, 1], the loss is (f - y)².

Source: Fallah, Mokhtari & Ozdaglar (2020), *Personalized federated learning with theoretical guarantees*, Algorithm 1
with the first-order update, one row at a time as in Ghari & Shen (2022), Section 4.
"""

from __future__ import annotations

import math

import numpy as np

from kernfed import rng
from kernfed.arrays import Floats


def shapes(num_columns: int, hidden: int) -> tuple[tuple[int, int], ...]:
    """Matrices of the layers, (outputs, inputs)."""
    return (hidden, num_columns), (hidden, hidden), (1, hidden)


def num_weights(num_columns: int, hidden: int) -> int:
    """Length of the vector of all weights."""
    return sum(rows * (columns + 1) for rows, columns in shapes(num_columns, hidden))


def start(num_columns: int, hidden: int, seed: int, *, mirrored: bool = False) -> Floats:
    """Weights of deviation sqrt(2/inputs), offsets 0.

    A mirrored start is for two classes: it says 1/2 for every row, and which of them is called 1 does not matter. Units
    of the second hidden layer come in pairs of the same weights and of opposite weights at the output, whose offset is
    1/2. So the network that learns 1 - y is that which learns y with the units of each pair exchanged. A last unit
    without a partner has the weight 0 at the output.

    Sources: He, Zhang, Ren & Sun (2015), Section 2.2; the pairs are of Zhang, Xu, Luo & Ma (2020), *A type of
    generalization error induced by initialization in deep neural networks*.
    """
    matrices = [
        rng.stream(seed, "online", "network", str(i)).normal(rows, columns) * math.sqrt(2.0 / columns)
        for i, (rows, columns) in enumerate(shapes(num_columns, hidden))
    ]
    offsets = [np.zeros(len(matrix)) for matrix in matrices]
    if mirrored:
        pairs = hidden // 2
        _, second, output = matrices
        second[pairs : 2 * pairs] = second[:pairs]
        output[:, pairs : 2 * pairs] = -output[:, :pairs]
        output[:, 2 * pairs :] = 0.0
        offsets[-1][:] = 0.5
    return np.concatenate([part.reshape(-1) for pair in zip(matrices, offsets, strict=True) for part in pair])


def predict(weights: Floats, x: Floats, hidden: int) -> float:
    """Output for one row, shape (d,)."""
    return _forward(weights, x, hidden)[-1].item()


def gradient(weights: Floats, x: Floats, y: float, hidden: int) -> Floats:
    """Gradient of (f(x) - y)² by the weights, in their layout."""
    h1, h2, out = _forward(weights, x, hidden)
    _, (w2, _), (w3, _) = _layers(weights, len(x), hidden)
    slope = 2.0 * (out - y)
    back2 = (w3.T @ slope) * (h2 > 0.0)
    back1 = (w2.T @ back2) * (h1 > 0.0)
    parts = [np.outer(back1, x), back1, np.outer(back2, h1), back2, np.outer(slope, h2), slope]
    return np.concatenate([p.reshape(-1) for p in parts])


def sizes(weights: Floats, x: Floats, hidden: int) -> Floats:
    """How much a row counts behind each number of `gradient`, in its layout, whatever its target.

    At a unit that is the size of all paths from it to the output, by the weights' absolute values and the units that
    the row sets off, times |f(x) - 1/2| + 1/2, which is at least the residual. Sizes of columns do not count.
    """
    h1, h2, out = _forward(weights, x, hidden)
    _, (w2, _), (w3, _) = _layers(weights, len(x), hidden)
    of_output = np.abs(out - 0.5) + 0.5
    second = (np.abs(w3).T @ of_output) * (h2 > 0.0)
    first = (np.abs(w2).T @ second) * (h1 > 0.0)
    parts = [np.repeat(first, len(x)), first, np.outer(second, h1), second, np.outer(of_output, h2), of_output]
    return np.concatenate([p.reshape(-1) for p in parts])


def between_hidden(num_columns: int, hidden: int) -> slice:
    """Places of the weights between the two hidden layers, in the layout of `gradient`."""
    first = hidden * (num_columns + 1)
    return slice(first, first + hidden * hidden)


def _layers(weights: Floats, num_columns: int, hidden: int) -> list[tuple[Floats, Floats]]:
    found, at = [], 0
    for rows, columns in shapes(num_columns, hidden):
        matrix = weights[at : at + rows * columns].reshape(rows, columns)
        at += rows * columns
        found.append((matrix, weights[at : at + rows]))
        at += rows
    return found


def _forward(weights: Floats, x: Floats, hidden: int) -> tuple[Floats, Floats, Floats]:
    (w1, b1), (w2, b2), (w3, b3) = _layers(weights, len(x), hidden)
    h1 = np.maximum(w1 @ x + b1, 0.0)
    h2 = np.maximum(w2 @ h1 + b2, 0.0)
    return h1, h2, w3 @ h2 + b3
