"""Sections of the client file: models that a client brings to a job, and networks and backbones that jobs may name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kernfed.features.kernels import PointKernel
from kernfed.section import Only, Section


class KernelModelSection(Section):
    """Kernel ridge regression with this client's own kernel, lengthscale or ridge."""

    kind: Literal["kernel-ridge"] = Field(description="Chooses this kind of model.")
    kernel: PointKernel | None = Field(None, description="Kernel; unset: the job's.")
    lengthscale: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Lengthscale in units of the standardised columns; unset: the job's."
    )
    ridge: float | None = Field(None, gt=0, le=1e6, description="Ridge; unset: the job's.")


class SklearnModelSection(Section):
    """A regressor or classifier with scikit-learn's interface, from any package that is installed here."""

    kind: Literal["scikit-learn"] = Field(description="Chooses this kind of model.")
    class_name: str = Field(
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$", description="Class, e.g. sklearn.ensemble.RandomForestRegressor."
    )
    parameters: dict[str, bool | int | float | str | None] = Field({}, description="Arguments of the class.")
    weights: Literal["use", "ignore"] = Field(
        "use", description="Whether rows are weighted as method.alpha says; ignore: for models that take no weights."
    )


class NetworkModelSection(Section):
    """A neural network, trained by Adam on squared errors; in each round on the consensus, then on own rows (FedMD)."""

    kind: Literal["mlp", "cnn", "torch"] = Field(
        description="mlp: fully connected; cnn: LeNet-5 on images; torch: the class named by class_name."
    )
    hidden: Annotated[list[Annotated[int, Field(ge=1, le=65536)]], Only(kind="mlp")] = Field(
        [64, 64, 64], description="Units of hidden layers."
    )
    image_shape: Annotated[list[Annotated[int, Field(ge=1, le=4096)]] | None, Only(kind="cnn")] = Field(
        None, description="[height, width] or [channels, height, width] of the columns, in row-major order."
    )
    class_name: Annotated[str | None, Only(kind="torch")] = Field(
        None,
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$",
        description="A torch.nn.Module that is made with the numbers of columns and outputs, then parameters.",
    )
    parameters: Annotated[dict[str, bool | int | float | str | None], Only(kind="torch")] = Field(
        {}, description="Arguments of the class."
    )
    pretrain_epochs: int = Field(200, ge=1, le=1_000_000, description="Passes over own rows before round 1.")
    digest_epochs: int = Field(2, ge=0, le=10_000, description="Passes over the public points in each round.")
    revisit_epochs: int = Field(2, ge=0, le=10_000, description="Passes over own rows in each round, after these.")
    batch_size: int = Field(32, ge=1, description="Rows per step.")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="Learning rate of Adam.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind == "cnn" and (self.image_shape is None or len(self.image_shape) not in (2, 3)):
            raise ValueError("kind cnn needs image_shape = [height, width] or [channels, height, width]")
        if self.kind == "torch" and self.class_name is None:
            raise ValueError("kind torch needs class_name, e.g. mypackage.MyNetwork")
        return self


ModelSection = Annotated[KernelModelSection | SklearnModelSection | NetworkModelSection, Field(discriminator="kind")]


class SiteNetworkSection(Section):
    """A network that jobs may name and train; a job never brings code."""

    source: str = Field(
        pattern=r"^(torch:[A-Za-z_]\w*(\.[A-Za-z_]\w*)+|file:[^:]+\.py:[A-Za-z_]\w*)$",
        description="torch:package.Module, a torch.nn.Module or a function that makes one; file:nets.py:Module, one of "
        "a file beside the client file. It is made with the numbers of columns and outputs, then parameters.",
    )
    parameters: dict[str, bool | int | float | str | list[bool | int | float | str] | None] = Field(
        {}, description="Arguments of the module."
    )
    weights: Path | None = Field(
        None,
        description="Where training starts, a safetensors file of all its parameters and buffers; unset: drawn by the "
        "job's seed.",
    )

    def placed(self, base: Path) -> SiteNetworkSection:
        """With its files looked for below a folder."""
        changes: dict[str, object] = {"weights": base / self.weights} if self.weights else {}
        if self.source.startswith("file:"):
            path, _, name = self.source.removeprefix("file:").rpartition(":")
            changes["source"] = f"file:{base / path}:{name}"
        return self.model_copy(update=changes)


IMAGES = Only(source=("torch:", "timm:"))
"""Backbones that may read images."""


class BackboneSection(Section):
    """A frozen feature extractor that jobs may name; nothing else can be loaded. It runs here, and never learns."""

    source: str = Field(
        pattern=r"^(torch:[A-Za-z_]\w*(\.[A-Za-z_]\w*)+|timm:[\w./-]+|sentence-transformers:[\w./-]+)$",
        description="torch:package.Module, a torch.nn.Module or a function that makes one; timm:NAME (kernfed[timm]); "
        "sentence-transformers:NAME or :FOLDER (kernfed[sentences]).",
    )
    weights: Annotated[Path | None, Only(source=("torch:", "timm:"))] = Field(
        None,
        description="Weights, a safetensors file. torch, unset: drawn by the seed. timm, unset: the pretrained ones, "
        "from its cache or a network.",
    )
    parameters: Annotated[dict[str, bool | int | float | str | None], Only(source="torch:")] = Field(
        {}, description="Arguments of the module."
    )
    seed: Annotated[int, Only(source="torch:", weights=None)] = Field(
        0, ge=0, lt=2**63, description="Seed of weights that are drawn."
    )
    batch_size: int = Field(64, ge=1, le=65536, description="Rows at a time.")
    image_size: Annotated[int | None, IMAGES] = Field(
        None,
        ge=8,
        le=4096,
        description="Images are scaled to this height and width (bicubic); unset: left as they are.",
    )
    channels: Annotated[Literal[1, 3], IMAGES] = Field(
        3, description="Images: 3 repeats grey ones, 1 averages colours."
    )
    mean: Annotated[list[float], IMAGES] = Field(
        [0.485, 0.456, 0.406], description="Images: mean per channel, of pixels in [0, 1]."
    )
    deviation: Annotated[list[Annotated[float, Field(gt=0)]], IMAGES] = Field(
        [0.229, 0.224, 0.225], description="Images: deviation per channel; mean is subtracted, then this divides."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name in ("mean", "deviation"):
            if len(getattr(self, name)) not in (1, self.channels):
                raise ValueError(f"{name} has {len(getattr(self, name))} numbers for {self.channels} channels")
        return self

    def value_in_effect(self, key: str) -> object:
        """Of a source, what it begins with."""
        return f"{self.source.partition(':')[0]}:" if key == "source" else super().value_in_effect(key)
