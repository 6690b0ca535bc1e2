"""Which stream a data set has: as the client file says, or else its training rows in their order."""

from __future__ import annotations

from dataclasses import replace

from kernfed.errors import ConfigError
from kernfed.jobs.client_file import StreamFile
from kernfed_client.data.local_job import LocalJob
from kernfed_client.data.partitions import read_partition
from kernfed_client.streams.folder import FolderStream
from kernfed_client.streams.streams import Stream, TableStream, spool_folder


def open_stream(job: LocalJob) -> Stream:
    """Open the stream of a job's data set.

    Raises:
        DataError: It cannot be read, or does not fit the job.
        ConfigError: The daemon is not the one that rows come to.
    """
    dataset = job.dataset
    section = job.file.datasets.get(dataset)
    file = section.stream if section is not None else None
    if file is None:
        return TableStream(job.data.train, job.classes)
    if file.source == "file":
        schema = replace(job.schema, ranges=())  # rows outside are left out, and counted, as those of every stream are
        return TableStream(read_partition(file, schema, dataset, "stream"), job.classes)
    if file.source == "follow":
        _check_encoding(file, dataset)
        return FolderStream(file.path, file, job.schema, dataset, job.classes)
    folder = spool_folder(job.file.state, dataset)
    if not folder.is_dir():
        raise ConfigError(
            f"data set {dataset!r} takes its stream from {file.source}, which only a running daemon reads; start "
            "`kernfed-client run`, or use a file"
        )
    return FolderStream(folder, file, job.schema, dataset, job.classes)


def _check_encoding(file: StreamFile, dataset: str) -> None:
    """Refuse an encoding whose lines cannot be told by their last byte: a file that grows is read line by line.

    Raises:
        ConfigError: Names the key and what to write there.
    """
    try:
        told = "\n,1".encode(file.encoding) == b"\n,1"
    except (LookupError, UnicodeError):
        told = False
    if not told and "sig" not in file.encoding:
        raise ConfigError(
            f"data set {dataset!r}: a stream that is followed cannot be read as {file.encoding!r}; write it as utf-8, "
            f"and correct `encoding` of [datasets.{dataset}.stream] in the client file"
        )
