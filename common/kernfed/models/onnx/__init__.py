"""A model as an ONNX graph, which programs without kernfed compute."""
