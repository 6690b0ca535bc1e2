"""Checks of what clients state of their data before they take part: at the start, or when they join or come back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kernfed.errors import DataError, InvalidReplyError
from kernfed.federation.cohort import Cohort
from kernfed.federation.messages.data import DataDescription, DataSchema
from kernfed.maths.tasks import TASKS
from kernfed.wording import is_class_name
from kernfed_server.jobs.run import Run
from kernfed_server.jobs.start.scales import check_moments, moments_of

_STRETCH = 1.0731
"""Numbers times it have their borders between two digits elsewhere."""


@dataclass
class LaterDescription:
    """Checks the description of a client's data that is asked for when others have passed: it joins, or lost its state.

    One that lost its state is refused with other data than before, as one that kept it refuses the job's steps itself;
    but for jobs on streams, whose files beside the stream give ranges alone.

    Attributes:
        schema: Of the job.
        cohort: Is told of its rows.
        run: For notes.
        backbone: Fingerprint of the others' backbone.
        before: Digest of the description that each client gave before round 1.
    """

    schema: DataSchema
    cohort: Cohort
    run: Run
    backbone: str = ""
    before: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, client: str, description: DataDescription) -> None:
        """See `kernfed.federation.cohort.Check`."""
        check_description(self.schema, description)
        agree_backbone(self.schema, {client: description.backbone, "the other clients": self.backbone})
        other = client in self.before and not is_of(self.before[client], description)
        if other and not self.schema.on_stream:
            raise DataError(
                f"{client} lost what was prepared there for this job, and its data are others than before round 1, so "
                "the job cannot go on with them: put the former files back, or cancel the job and submit it anew"
            )
        self.cohort.register_rows({client: description.num_rows}, {client: description.num_test_rows})
        if other:
            self.run.note_once(
                f"{client} was prepared again, and the files beside its stream are others than before round 1. The job "
                "goes on; ranges, scales and all else that the clients agreed on stay as they are"
            )


def check_description(schema: DataSchema, description: DataDescription) -> None:
    """Refuse a description that contradicts itself, or the job.

    Raises:
        InvalidReplyError: It does.
    """
    if description.num_rows < 1:
        raise InvalidReplyError("states no training row")
    if description.backbone and not schema.backbone:
        raise InvalidReplyError("states a backbone, where the job names none")
    if not set(description.sparse_columns) <= {*schema.features, schema.target}:
        raise InvalidReplyError("states columns with few rows that differ, which the job does not use")
    outside, ranges = description.outside_rows, schema.ranges
    if len(outside) != len(ranges):
        raise InvalidReplyError(
            "does not say how many rows it left out by data.ranges; install the same release of kernfed at both ends"
        )
    if description.num_outside_rows > sum(outside) or max(outside, default=0) > description.num_outside_rows:
        raise InvalidReplyError(f"left out {description.num_outside_rows} rows, but {list(outside)} by range")
    if not all(map(is_class_name, description.classes)):
        raise InvalidReplyError("states a class whose name no client's reader lets through")
    if TASKS[schema.task].has_classes:
        counts = description.class_counts
        if len(counts) != len(description.classes) or min(counts, default=0) < 0 or sum(counts) != description.num_rows:
            raise InvalidReplyError(
                f"states {description.num_rows} training rows, but its classes add up to {sum(counts)}"
            )
    check_moments(description)


def agree_backbone(schema: DataSchema, found: Mapping[str, str]) -> str:
    """Fingerprint of the backbone: all clients must see the world through the same eyes.

    Raises:
        DataError: Their backbones differ; names each client's.
    """
    if len(set(found.values())) > 1:
        listed = "; ".join(f"{client}: {print_[:12] or 'none'}" for client, print_ in sorted(found.items()))
        raise DataError(
            f"the clients' backbones {schema.backbone!r} differ (fingerprints {listed}); give every client file the "
            f"same source, weights and transforms in [backbones.{schema.backbone}]"
        )
    return next(iter(found.values()))


def digest(description: DataDescription) -> str:
    """Digests of what a client states of its rows, to six digits: not of the last bits, which differ by machine.

    There are two with a blank between them, for a number that lies on the border between two digits is told as one or
    the other by its last bit. The borders of the second are other ones.
    """
    return " ".join(_digest(description, stretch) for stretch in (1.0, _STRETCH))


def is_of(stated: str, description: DataDescription) -> bool:
    """Whether a description is of the rows of another one, whose `digest`, also of one of before, is given."""
    return not set(stated.split()).isdisjoint(digest(description).split())


def _digest(description: DataDescription, stretch: float) -> str:
    found = moments_of(description)
    scale = np.where(found.deviation > 0, found.deviation, 1.0)
    centres = [f"{value + 0.0:.6f}" for value in np.round(stretch * (found.mean / scale), 6)]
    widths = [f"{value:.6g}" for value in stretch * found.deviation]
    counts = (description.num_rows, description.num_test_rows, description.classes, description.class_counts)
    return hashlib.sha256(repr((counts, centres, widths)).encode()).hexdigest()
