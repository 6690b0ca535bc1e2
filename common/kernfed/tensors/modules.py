"""Modules of one's own as networks: parameters and buffers in one vector, their gradients, and the rows behind these.

A module is called as a function of its parts. Buffers of floats are among these; a call in training hands out what they
have become. Whole numbers and buffers that a module does not save stay as the module was made with them.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from kernfed.errors import ConfigError
from kernfed.federation.messages.data import LearningTask
from kernfed.maths.few.behind import wanted
from kernfed.models.network_spec import NORM_RATE, NetworkPart, NetworkSpec, PartRole
from kernfed.tensors.rows_behind import RowsBehind, stand, sure_rows

Parts = dict[str, Tensor]
_NUMBERS = 1 << 22
"""Numbers of derivatives by row that are held at a time."""

_DRAWING = threading.RLock()
"""Held while modules draw: torch has one generator for all threads of a process."""


def parts_of(module: nn.Module) -> tuple[NetworkPart, ...]:
    """Name the parameters of a module that learn, then its buffers of floats, in its own order."""
    norms = {
        f"{name}.{part}" if name else part
        for name, inner in module.named_modules()
        if isinstance(inner, _BatchNorm)
        for part, _ in inner.named_parameters(recurse=False)
    }
    learns = [(name, t) for name, t in module.named_parameters() if t.requires_grad]
    saved = module.state_dict().keys()
    buffers = [(name, t) for name, t in module.named_buffers() if t.is_floating_point() and name in saved]
    return (
        *(NetworkPart(n, tuple(t.shape), PartRole.NORM if n in norms else PartRole.WEIGHT) for n, t in learns),
        *(NetworkPart(n, tuple(t.shape), PartRole.BUFFER) for n, t in buffers),
    )


def to_vector(module: nn.Module, parts: tuple[NetworkPart, ...]) -> Tensor:
    """The numbers of a module's parts, float64 (P,)."""
    found = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return torch.cat([found[part.name].detach().double().reshape(-1).cpu() for part in parts])


def fingerprint_of_rest(module: nn.Module) -> str:
    """SHA-256 of what is no part: parameters that do not learn, whole numbers, buffers that are not saved."""
    own = {part.name for part in parts_of(module)}
    digest = hashlib.sha256()
    for name, tensor in sorted([*module.named_parameters(), *module.named_buffers()], key=lambda item: item[0]):
        if name not in own:
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def module_dtype(module: nn.Module) -> torch.dtype:
    """Type that a module computes in: that of its first parameter."""
    return next(p.dtype for p in module.parameters() if p.is_floating_point())


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from a seed what modules draw, and leave the generator of others as it was; one thread at a time."""
    with _DRAWING, torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def module_outputs(module: nn.Module, spec: NetworkSpec, parameters: Tensor, x: Tensor) -> Tensor:
    """Outputs of the module with each of some parameters (N, P), as in prediction, shape (N, n, C)."""
    module.eval()
    return torch.stack([_told(module, spec, _call(module, spec, of), x) for of in parameters])


def module_gradients(
    module: nn.Module,
    spec: NetworkSpec,
    parameters: Tensor,
    x: Tensor,
    loss: Callable[[int, Tensor], Tensor],
    behind: RowsBehind | None = None,
) -> Tensor:
    """Gradients of a loss of the module's outputs, shape (N, P).

    For buffers the result holds how far they move by a step, over `NORM_RATE`: so a step of that size takes them there.

    Args:
        module: The module, in training.
        spec: Of it.
        parameters: Of N networks, (N, P).
        x: Rows, (n, d).
        loss: (which network, its outputs (n, C)) -> its loss.
        behind: A number behind which fewer rows stand is 0.
    """
    found = []
    for i, of in enumerate(parameters):
        call = _call(module, spec, of)
        before = {part.name: call[part.name].clone() for part in spec.parts if part.role is PartRole.BUFFER}
        wanted_by = {part.name: call[part.name] for part in spec.parts if part.name not in before}
        for tensor in wanted_by.values():
            tensor.requires_grad_(True)
        module.train()
        outputs = _told(module, spec, call, x)
        slopes = torch.autograd.grad(loss(i, outputs), list(wanted_by.values()), allow_unused=True)
        by = {n: torch.zeros_like(t) if s is None else s for (n, t), s in zip(wanted_by.items(), slopes, strict=True)}
        moved = {name: (tensor - call[name].detach()) / NORM_RATE for name, tensor in before.items()}
        gradient = torch.cat([{**by, **moved}[part.name].reshape(-1) for part in spec.parts])
        if behind is not None and behind.least > 1:
            enough = _enough(module, spec, of, x, outputs.detach(), behind.least)
            gradient = behind.counted(enough[None], gradient[None])[0]
        found.append(gradient)
    return torch.stack(found)


def in_words(err: Exception) -> str:
    """What code of others raised, in one line: its type, and the beginning of what it says."""
    return f"{type(err).__name__}: {' '.join(str(err).split()):.300}".removesuffix(": ")


def _told(module: nn.Module, spec: NetworkSpec, call: Parts, x: Tensor) -> Tensor:
    """Outputs of a module (n, C), whose code may raise what it likes.

    Raises:
        ConfigError: It raised, or gave something else.
    """
    turn = "training" if module.training else "prediction"
    try:
        outputs = functional_call(module, call, (x,))
    except Exception as err:  # whatever code of others raises
        raise ConfigError(
            f"network {spec.name!r} cannot take a batch of {len(x)} rows in {turn}: {in_words(err)}; correct the "
            "module, or choose another batch_size"
        ) from err
    shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
    if shape != (len(x), spec.num_outputs):
        raise ConfigError(
            f"network {spec.name!r} gives {shape} for {len(x)} rows in {turn}, want ({len(x)}, {spec.num_outputs}); "
            "correct the module"
        )
    found: Tensor = outputs
    return found


def _call(module: nn.Module, spec: NetworkSpec, of: Tensor) -> Parts:
    """Parts by name, from a vector (P,), and copies of the buffers that are not among them."""
    pieces = torch.split(of.detach().clone(), [part.size for part in spec.parts])
    own = {part.name: piece.reshape(part.shape) for part, piece in zip(spec.parts, pieces, strict=True)}
    return {**{name: tensor.clone() for name, tensor in module.named_buffers() if name not in own}, **own}


def _enough(module: nn.Module, spec: NetworkSpec, of: Tensor, x: Tensor, told: Tensor, least: int) -> Tensor:
    """Say behind which numbers enough rows stand, bool (P,), by the rule of `kernfed.tensors.rows_behind`.

    The size of a row at a number is the sum over outputs of the derivatives' absolute values there, of classes; of
    numbers each times how large a residual may be. It is of the module as in prediction, normalised by this batch.
    Behind a number of an array stand a sixteenth of the rows at least, and behind its first index as many as behind a
    bias. Buffers move as the whole batch does.
    """
    rows, of_pairs = wanted(least, len(x))
    call = _normalised_by(module, spec, of, x)
    learned = {part.name: call[part.name] for part in spec.parts if part.role is not PartRole.BUFFER}
    rest = {name: tensor for name, tensor in call.items() if name not in learned}
    residual = told.abs() + 1.0 if spec.task is LearningTask.REGRESSION else torch.ones_like(told)
    unsure = spec.task is LearningTask.REGRESSION or not bool(sure_rows(told[None])[0])
    module.eval()
    sums = {name: torch.zeros_like(tensor) for name, tensor in learned.items()}
    squares = {name: torch.zeros_like(tensor) for name, tensor in learned.items()}
    units = {name: [t.new_zeros(t.shape[:1]), t.new_zeros(t.shape[:1])] for name, t in learned.items() if t.dim() > 1}
    at_once = max(1, _NUMBERS // (spec.num_parameters * spec.num_outputs))
    with torch.no_grad():
        for part_x, part_r in zip(torch.split(x, at_once), torch.split(residual, at_once), strict=True):
            for name, slope in _by_row(module, learned, rest, part_x).items():
                shape = (*part_r.shape, *[1] * (slope.dim() - 2))
                size = (slope.abs() * part_r.reshape(shape)).sum(dim=1)
                sums[name] += size.sum(dim=0)
                squares[name] += size.square().sum(dim=0)
                if name in units:
                    norm = size.flatten(2).square().sum(dim=2).sqrt()
                    units[name][0] += norm.sum(dim=0)
                    units[name][1] += norm.square().sum(dim=0)
    found = []
    for part in spec.parts:
        if part.role is PartRole.BUFFER:
            found.append(torch.ones(part.size, dtype=torch.bool, device=x.device))
            continue
        behind = stand(sums[part.name], squares[part.name], of_pairs if part.name in units else rows)
        if part.name in units:
            total, square = units[part.name]
            unit = stand(total, square, rows)
            behind = behind & unit.reshape(-1, *[1] * (behind.dim() - 1))
        found.append(behind.reshape(-1) & unsure)
    return torch.cat(found)


def _normalised_by(module: nn.Module, spec: NetworkSpec, of: Tensor, x: Tensor) -> Parts:
    """Parts whose means and variances of batch normalisation are those of some rows."""
    call = _call(module, spec, of)
    norms = [inner for inner in module.modules() if isinstance(inner, _BatchNorm)]
    if not norms:
        return call
    rates = [inner.momentum for inner in norms]
    seen = {name: tensor.clone() for name, tensor in call.items()}
    try:
        for inner in norms:
            inner.momentum = 1.0
        module.train()
        with torch.no_grad():
            functional_call(module, seen, (x,))
    finally:
        for inner, rate in zip(norms, rates, strict=True):
            inner.momentum = rate
    places = [name for name, inner in module.named_modules() if isinstance(inner, _BatchNorm)]
    names = {f"{place}.{of}" if place else of for place in places for of in ("running_mean", "running_var")}
    return {name: seen[name] if name in names else tensor for name, tensor in call.items()}


def _by_row(module: nn.Module, learned: Parts, rest: Parts, x: Tensor) -> Parts:
    """Derivatives of each row's outputs by each part, (n, C, ...); row by row where the module knows no other way."""

    def outputs(parts: Parts, row: Tensor) -> Tensor:
        told: Tensor = functional_call(module, {**parts, **rest}, (row[None],))[0]
        return told

    try:
        found: Parts = vmap(jacrev(outputs), in_dims=(None, 0))(learned, x)
    except Exception:  # whatever code of others raises where it is not called as usual
        single = [_of_row(outputs, learned, row) for row in x]
        found = {name: torch.stack([of[name] for of in single]) for name in learned}
    return found


def _of_row(outputs: Callable[[Parts, Tensor], Tensor], learned: Parts, row: Tensor) -> Parts:
    """Derivatives of a row's outputs, (C, ...)."""
    with torch.enable_grad():
        leaves = {name: tensor.detach().clone().requires_grad_(True) for name, tensor in learned.items()}
        told = outputs(leaves, row)
        slopes = [torch.autograd.grad(one, list(leaves.values()), retain_graph=True, allow_unused=True) for one in told]
    return {
        name: torch.stack([torch.zeros_like(leaf) if s[i] is None else s[i] for s in slopes])
        for i, (name, leaf) in enumerate(leaves.items())
    }
