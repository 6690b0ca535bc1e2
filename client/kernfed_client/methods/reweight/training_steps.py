"""The client's half of training networks on weighted rows: gradients, local steps, and how good they are here."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kernfed import rng
from kernfed.arrays import Array, Floats
from kernfed.errors import DivergedError, InvalidTensorError
from kernfed.federation.messages.evaluation import Evaluation
from kernfed.maths.batches import batches
from kernfed.methods.reweight.messages import (
    KeepOwnNetworkRequest,
    MeasureNetworksRequest,
    NetworkKept,
    NetworkScale,
    WeightedGradient,
    WeightedGradientRequest,
    WeightedNetworks,
    WeightedUpdateRequest,
)
from kernfed.methods.reweight.own_network_messages import DescribeOwnNetworkRequest, OwnNetworkDescribed
from kernfed.models.network_spec import NetworkSpec, norm_entries, own_network_spec
from kernfed.tensors.arrays import to_array
from kernfed.tensors.modules import fingerprint_of_rest, parts_of, seeded, to_vector
from kernfed.tensors.networks import dtype_of, gradients, train
from kernfed.tensors.rows_behind import RowsBehind
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.reweight.state import LAST_ROUND, ReweightState, keep_norm, own_norm
from kernfed_client.methods.reweight.steps import weights_in_use
from kernfed_client.models.small_network import (
    OwnNetwork,
    load_own_network,
    module_of,
    refuse_few_of_network,
    training_rows,
)
from kernfed_client.steps.evaluation import evaluated


def weighted_gradient(job: LocalJob, request: WeightedGradientRequest) -> WeightedGradient:
    """Gradient of each variant's loss, all on the same batch, drawn from the seed and this client's name.

    Raises:
        DivergedError: It left the range of numbers, since the networks that came are of no use.
    """
    module = module_of(job, request.network)
    x, y, w = _rows(job, request.network, request.scale, module)
    if 0 < request.batch_size < job.num_rows:
        order = rng.stream(request.seed, "reweight", "batch", job.client)
        drawn = batches(order, job.num_rows, request.batch_size, job.block)
        rows = torch.from_numpy(next(drawn)).to(job.device)
        x, y, w = x[rows], y[rows], w[:, rows]
    parameters = _parameters(request.network, request.networks, w)
    behind = RowsBehind(job.file.policy.min_rows)
    with nullcontext() if module is None else seeded(rng.seed(request.seed, "reweight", "module", job.client)):
        found = gradients(request.network, parameters, x, y, w, behind, module)
    if not bool(torch.isfinite(found).all()):
        raise DivergedError("the gradient of the networks left the range of numbers")
    return WeightedGradient(num_rows=job.num_rows, gradients=to_array(found), kept_back=behind.share)


def weighted_update(job: LocalJob, request: WeightedUpdateRequest) -> WeightedNetworks:
    """Local steps on each variant's loss, all on the same batches."""
    module = module_of(job, request.network)
    x, y, w = _rows(job, request.network, request.scale, module)
    networks = np.array(request.networks, dtype=np.float64)
    norm = norm_entries(request.network)[0] if request.own_norm else None
    if norm is not None:
        networks[:, norm] = own_norm(job, request.round_num, networks[:, norm])
    behind = RowsBehind(job.file.policy.min_rows)
    trained = train(
        request.network,
        _parameters(request.network, networks, w),
        x,
        y,
        learning_rate=request.learning_rate,
        num_steps=request.num_steps,
        batch_size=request.batch_size,
        weight_decay=request.weight_decay,
        seed=rng.seed(request.seed, "reweight", "batches", job.client),
        weights=w,
        block=job.block,
        behind=behind,
        proximal=request.proximal,
        module=module,
    )
    found = to_array(trained)
    if norm is not None:
        keep_norm(job, request.round_num, found[:, norm])
        found[:, norm] = request.networks[:, norm]  # what stays here must not be seen in what leaves
    return WeightedNetworks(num_rows=job.num_rows, networks=found, kept_back=behind.share)


def describe_own_network(job: LocalJob, request: DescribeOwnNetworkRequest) -> OwnNetworkDescribed:
    """Parts and first weights of the module that this client's file has under the job's name for it."""
    refuse_few_of_network(job)
    want = (job.x_train.shape[1], job.num_outputs, job.task)
    if (request.num_columns, request.num_outputs, request.task) != want:
        raise InvalidTensorError(
            f"a network is asked for {request.num_columns} columns, {request.num_outputs} outputs and {request.task}; "
            f"this client has {want[0]}, {want[1]} and {want[2]}"
        )
    module = load_own_network(job, request.source, request.num_columns, request.num_outputs)
    parts = parts_of(module)
    own_network_spec(request.source, request.task, request.num_columns, request.num_outputs, parts)
    start = to_array(to_vector(module, parts))
    return OwnNetworkDescribed(num_rows=job.num_rows, parts=parts, start=start, fingerprint=fingerprint_of_rest(module))


def measure_networks(job: LocalJob, request: MeasureNetworksRequest) -> Evaluation:
    """Metric sums of each network on the test rows."""
    module = module_of(job, request.network)
    networks = np.array(request.networks, dtype=np.float64)
    if request.own_norm:
        norm = norm_entries(request.network)[0]
        networks[:, norm] = own_norm(job, LAST_ROUND, networks[:, norm])
    scale = _scale(request.scale)
    found = zip(request.names, networks, strict=True)
    return evaluated(job, {name: OwnNetwork(request.network, p, *scale, module).scores(job) for name, p in found})


def keep_network(job: LocalJob, request: KeepOwnNetworkRequest) -> NetworkKept:
    """Keep the shared parameters and this client's own normalisation as one model, for `kernfed-client predict`."""
    module = module_of(job, request.network)
    norm = norm_entries(request.network)[0]
    networks = np.array(request.networks, dtype=np.float64)
    start = networks[:, norm]
    own = own_norm(job, LAST_ROUND, start)
    networks[:, norm] = own
    OwnNetwork(request.network, networks[0], *_scale(request.scale), module).keep(job)
    return NetworkKept(num_rows=job.num_rows, normalised=own is not start)


def _rows(
    job: LocalJob, spec: NetworkSpec, scale: NetworkScale, module: nn.Module | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Standardised columns, scaled targets, and weights (V, n), on this client's device."""
    mean, deviation = _scale(scale)
    dtype = dtype_of(spec, module)

    def make() -> tuple[Tensor, Tensor, Tensor]:
        weights = torch.as_tensor(weights_in_use(job), dtype=dtype, device=job.device)
        return *training_rows(job, spec, mean, deviation, module), weights

    key = ("weighted rows", dtype, mean.tobytes(), deviation.tobytes(), job.memory(ReweightState).in_use)
    return job.memo(key, make)


def _parameters(spec: NetworkSpec, networks: Array, weights: Tensor) -> Tensor:
    if networks.shape != (weights.shape[0], spec.num_parameters):
        raise InvalidTensorError(
            f"networks of shape {networks.shape}, but this client weighs its rows for {weights.shape[0]} of "
            f"{spec.num_parameters} parameters"
        )
    return torch.tensor(np.asarray(networks), dtype=weights.dtype, device=weights.device)


def _scale(scale: NetworkScale) -> tuple[Floats, Floats]:
    return np.asarray(scale.mean, np.float64), np.asarray(scale.deviation, np.float64)


STEPS: dict[type[Any], Any] = {
    DescribeOwnNetworkRequest: describe_own_network,
    WeightedGradientRequest: weighted_gradient,
    WeightedUpdateRequest: weighted_update,
    MeasureNetworksRequest: measure_networks,
    KeepOwnNetworkRequest: keep_network,
}
"""Steps of this module, by the request that they answer."""
