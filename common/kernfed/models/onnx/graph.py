"""A graph of ONNX operations in the making: constants and nodes have names of their own, in the order they come."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from kernfed.arrays import Array

OPSET, ML_OPSET, IR_VERSION = 17, 2, 8
"""Of the operations, of those for tables, and of the file: what runtimes have had since 2022."""

DOUBLE, INTEGER, FLOAT, TEXT = (
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.INT64,
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.STRING,
)


class Graph:
    """Operations by name of their result; `graph("Add", a, b)` computes a + b from here on."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        """Begin.

        Args:
            taken: Names of inputs and outputs to come, which no result in between gets.
        """
        self._taken = frozenset(taken)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def __call__(
        self, kind: str, *inputs: str | float | np.integer | Array, domain: str = "", **attributes: Any
    ) -> str:
        """Add an operation.

        Args:
            kind: Of ONNX, e.g. `MatMul`.
            inputs: Names of results, or constants: a float is a float64.
            domain: Of the operation; `ai.onnx.ml` for those of tables.
            attributes: Of the operation.

        Returns:
            Name of its result.
        """
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        result = self._named(f"{kind.lower()}_{len(self._nodes)}")
        self._nodes.append(helper.make_node(kind, names, [result], name=result, domain=domain, **attributes))
        return result

    def constant(self, values: float | np.integer | Array) -> str:
        """Add numbers or text; returns their name."""
        name = self._named(f"constant_{len(self._constants)}")
        self._constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def _named(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        return name

    def input(self, name: str, kind: int, shape: Sequence[str | int]) -> str:
        """Declare an input; returns its name."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, kind: int, shape: Sequence[str | int], value: str) -> None:
        """Declare an output, which is a result so far."""
        self._nodes.append(helper.make_node("Identity", [value], [name], name=f"as_{name}"))
        self._outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def where(self, condition: str, yes: str | float | np.integer | Array, no: str | float | np.integer | Array) -> str:
        """Choose by row and column."""
        return self("Where", condition, yes, no)

    def cast(self, value: str, kind: int) -> str:
        """Of another type."""
        return self("Cast", value, to=kind)

    def model(self, name: str, about: str, facts: Mapping[str, str]) -> onnx.ModelProto:
        """The whole, checked.

        Args:
            name: Of the graph.
            about: A sentence for who opens the file.
            facts: Kept beside the graph.
        """
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, self._constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        made = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="kernfed", doc_string=about
        )
        helper.set_model_props(made, dict(facts))
        onnx.checker.check_model(made)
        return made
