"""A formula that only tests compute, to hold feature maps against."""

from __future__ import annotations

from torch import Tensor

from kernfed.features.kernels import Kernel, KernelSpec, PointKernel
from kernfed.features.spec import FeatureForm, FeatureSpec
from kernfed.tensors.kernels import gram


def exact_gram(spec: FeatureSpec, x: Tensor, y: Tensor) -> Tensor:
    """Compute the Gram matrix that a feature map approximates: half the kernel for the half-cosine form."""
    if spec.kernel in (Kernel.LINEAR, Kernel.POLYNOMIAL2):
        scales = x.new_tensor(spec.lengthscales)
        k = (x / scales) @ (y / scales).T
        return k if spec.kernel is Kernel.LINEAR else (k + 1.0) ** 2
    k = gram(KernelSpec(PointKernel(spec.kernel.value), spec.lengthscales, False), x, y)
    return k / 2 if spec.form is FeatureForm.HALF_COSINE else k
