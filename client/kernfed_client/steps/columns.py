"""The client's half of the agreement on columns, before its data are described."""

from __future__ import annotations

from typing import Any

from kernfed.federation.messages.data import FindColumnsRequest, FoundColumns
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.reading.found_columns import GivenColumns, find_columns


def find(job: LocalJob, request: FindColumnsRequest) -> FoundColumns:
    """Levels and means of columns of the training partition.

    Raises:
        DataError: A cell does not fit the column's type.
    """
    given = job.memory(GivenColumns).find
    if given is not None:
        return FoundColumns(columns=given(request.dataset, request.columns))
    return FoundColumns(columns=find_columns(job.file, request.dataset, request.columns))


STEPS: dict[type[Any], Any] = {FindColumnsRequest: find}
"""Steps of this module, by the request that they answer."""
