"""The client's half of ensemble distillation: keep the public set, fit, predict, measure, keep the model.

Which model that is, is decided here: by the client's own file, or else it is the job's kernel ridge regression.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernfed import files, rng
from kernfed.arrays import Flags, Floats
from kernfed.errors import InvalidTensorError, JobStateMissingError, WireError
from kernfed.features.kernels import BLOCK, check_kernel
from kernfed.federation.messages.evaluation import Evaluation
from kernfed.methods.distill import public_set
from kernfed.methods.distill.blend import Gain
from kernfed.methods.distill.messages import (
    DistillationStarted,
    DistillRequest,
    KeepDistilledRequest,
    KeepPublicSetRequest,
    LeftOutErrorsRequest,
    LookUpPublicSetRequest,
    MeasureDistilledRequest,
    OwnModelKept,
    PublicPredictions,
    PublicSetKept,
    PublicSetKnown,
    StartDistillationRequest,
    TargetMoments,
    TargetMomentsRequest,
)
from kernfed_client.data.guards.told import told
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.distill.blended import Blended
from kernfed_client.methods.distill.bring_your_own import make_learner
from kernfed_client.methods.distill.learner import Compared, Fitted, Learner, Lesson
from kernfed_client.methods.distill.tuning import leave_out
from kernfed_client.models.own_model import keep, private_model
from kernfed_client.steps.evaluation import encode_targets, evaluated

_STATE = "distillation"
_DIGEST = re.compile(r"[0-9a-f]{64}")


class _State:
    """A job's model at this client, and the shape of what it is asked for."""

    def __init__(self, learner: Learner, lesson: Lesson, request: StartDistillationRequest) -> None:
        self.learner = learner
        self.shape = len(lesson.public), lesson.y.shape[1]
        self.near = lesson.near
        self.request = request
        self._compared: tuple[int, Floats, Compared | None] | None = None

    def compared(self, trained_round: int, targets: Floats) -> Compared | None:
        """See `Learner.compared`; the last answer is kept."""
        last = self._compared
        if last is None or last[0] != trained_round or not np.array_equal(last[1], targets):
            self._compared = last = trained_round, targets, self.learner.compared(trained_round, targets)
        return last[2]


def look_up(job: LocalJob, request: LookUpPublicSetRequest) -> PublicSetKnown:
    """Whether the public set lies here, whole."""
    return PublicSetKnown(known=_read(job, request.sha256) is not None)


def keep_public(job: LocalJob, request: KeepPublicSetRequest) -> PublicSetKept:
    """Check the set against its digest and keep it below the state folder, where later jobs find it.

    Raises:
        WireError: The bytes are not those that the digest names.
    """
    path = _path(job, request.sha256)
    content = np.ascontiguousarray(request.content, dtype=np.uint8).tobytes()
    if public_set.sha256(content) != request.sha256:
        raise WireError(f"{request.step}: the public set that arrived is not the one that its digest names")
    points = public_set.unpack(content)  # its columns are looked at when it is used: this client may know no schema yet
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    files.replace(path, content, durable=False)  # the coordinator sends it again; its digest tells damage
    return PublicSetKept(num_points=len(points))


def start(job: LocalJob, request: StartDistillationRequest) -> DistillationStarted:
    """Scale the public points, and prepare this client's model.

    Raises:
        JobStateMissingError: The public set is not here, or the rows were not scaled yet.
        ConfigError: The model that the client file names cannot be made.
        DataError: It does not fit into memory.
    """
    content = _read(job, request.sha256)
    if content is None:
        raise JobStateMissingError("this client does not hold the job's public set; prepare it again")
    points = public_set.unpack(content, len(job.schema.features))
    public = (points - job.mean) / job.deviation
    check_kernel(request.kernel, public.shape[1])
    lesson = Lesson(
        x=job.x_train,
        y=encode_targets(job, job.targets_train),
        public=public,
        unit=job.together(job.x_train),
        near=_near(job.x_train, public, request.kernel.lengthscales),
        alpha=request.alpha or job.num_rows / max(request.total_rows, job.num_rows + 1),
        seed=rng.seed(request.seed, "learner", job.client, bound=2**31 - 1),
        free=request.free_intercept,
        target_mean=_target_mean(job, request),
    )
    job.forget(_STATE)
    job.memo(_STATE, lambda: _State(make_learner(job, lesson, request), lesson, request))
    return DistillationStarted(num_rows=job.num_rows)


def describe_targets(job: LocalJob, request: TargetMomentsRequest) -> TargetMoments:
    """Mean and deviation of the training targets."""
    if request.num_outputs != job.num_outputs:
        raise InvalidTensorError(f"{request.step}: {request.num_outputs} outputs, but the data have {job.num_outputs}")
    y = encode_targets(job, job.targets_train)
    return TargetMoments(num_rows=job.num_rows, mean=y.mean(axis=0), deviation=y.std(axis=0))


def distil(job: LocalJob, request: DistillRequest) -> PublicPredictions:
    """Fit, and predict the public points."""
    state = _state(job)
    fitted = _fit(job, request, deregularise=request.deregularise, lasting=True)
    num_far = int((~state.near).sum())
    far = num_far / job.num_rows if told(num_far, job.file.policy.min_rows) else 0.0
    return PublicPredictions(num_rows=job.num_rows, predictions=fitted.public(), far_rows=far)


def measure_distilled(job: LocalJob, request: MeasureDistilledRequest) -> Evaluation:
    """Sums of errors on this client's own test rows, of the distilled model and of that of own rows alone."""
    scores = {}
    if request.include_personal:
        scores["personal"] = _chosen(job, request, lasting=False)[0].scores(job.x_test)
    if request.include_local:
        scores["local"] = _state(job).learner.own().scores(job.x_test)
    return evaluated(job, scores)


def keep_model(job: LocalJob, request: KeepDistilledRequest) -> OwnModelKept:
    """Fit a last time, and keep the model in the client's state folder."""
    fitted, share, compared = _chosen(job, request, lasting=True)
    misfits = None if compared is None else compared.misfits(job.task, share)
    keep(job, private_model(job, *fitted.parts(), misfits=misfits))
    found = Gain(0.0, 0.0) if compared is None else compared.gain(share)
    return OwnModelKept(
        num_rows=job.num_rows,
        alone=share == 0.0,
        compared=compared is not None,
        own_share=1.0 - share,
        gain=max(found.less, 0.0),
        gain_error=found.error,
    )


def _chosen(
    job: LocalJob, request: MeasureDistilledRequest | KeepDistilledRequest, *, lasting: bool
) -> tuple[Fitted, float, Compared | None]:
    """The distilled model, or what rows that are kept apart make of it and of the model of own rows alone.

    Returns:
        The model, the weight of the distilled one in it, and what the two were compared by; None: they were not.
    """
    fitted = _fit(job, request, lasting=lasting)
    if not (request.choose or request.blend) or request.trained_round == 0:
        return fitted, 1.0, None
    state = _state(job)
    compared = state.compared(request.trained_round, request.targets)
    if compared is None:
        return fitted, 1.0, None
    share = compared.share if request.blend else float(not compared.alone_is_better)
    if share == 0.0:
        return state.learner.own(), share, compared
    return (fitted if share == 1.0 else Blended(state.learner.own(), fitted, share)), share, compared


def _fit(
    job: LocalJob,
    request: DistillRequest | MeasureDistilledRequest | KeepDistilledRequest,
    *,
    lasting: bool,
    deregularise: bool = False,
) -> Fitted:
    state, targets = _state(job), request.targets
    if targets.shape != state.shape:
        raise InvalidTensorError(f"{request.step}: targets {targets.shape}, but the public set needs {state.shape}")
    if request.trained_round == 0:
        return state.learner.own()
    return state.learner.distilled(
        request.trained_round, np.asarray(targets, dtype=np.float64), lasting=lasting, deregularise=deregularise
    )


def _near(x: Floats, public: Floats, lengthscales: Sequence[float]) -> Flags:
    """Which rows have a public point within a lengthscale of the job's kernel, (N,)."""
    scales = np.asarray(lengthscales)
    rows, points = (torch.from_numpy(np.ascontiguousarray(part / scales)) for part in (x, public))
    step = max(1, BLOCK // len(points))
    near = [torch.cdist(part, points).amin(dim=1) <= 1.0 for part in torch.split(rows, step)]
    found: Flags = torch.cat(near).numpy()
    return found


def _target_mean(job: LocalJob, request: StartDistillationRequest) -> Floats | None:
    if not request.target_mean:
        return None
    if len(request.target_mean) != job.num_outputs:
        raise InvalidTensorError(
            f"{request.step}: {len(request.target_mean)} means of targets, but the data have {job.num_outputs} outputs"
        )
    return np.asarray(request.target_mean)


def start_request(job: LocalJob) -> StartDistillationRequest:
    """What the job asks for: its kernel and ridge, whatever model this client has."""
    return _state(job).request


def _state(job: LocalJob) -> _State:
    def missing() -> _State:
        raise JobStateMissingError("this client holds no state for the job from step distill.start; prepare it again")

    return job.memo(_STATE, missing)


def _path(job: LocalJob, sha256: str) -> Path:
    if not _DIGEST.fullmatch(sha256):  # it comes from a peer, and becomes a path
        raise WireError("distill: sha256 must be 64 hexadecimal digits")
    return job.file.state / "public" / f"{sha256}.safetensors"


def _read(job: LocalJob, sha256: str) -> bytes | None:
    """The set's bytes; None where it is not here, or was damaged on the disk."""
    try:
        content = _path(job, sha256).read_bytes()
    except OSError:
        return None
    return content if public_set.sha256(content) == sha256 else None


STEPS: dict[type[Any], Any] = {
    LookUpPublicSetRequest: look_up,
    KeepPublicSetRequest: keep_public,
    StartDistillationRequest: start,
    TargetMomentsRequest: describe_targets,
    LeftOutErrorsRequest: leave_out,
    DistillRequest: distil,
    MeasureDistilledRequest: measure_distilled,
    KeepDistilledRequest: keep_model,
}
"""Steps of this module, by the request that they answer."""
