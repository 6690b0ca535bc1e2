"""Tables of the coordinator's store. Portable SQL: no type or default that SQLite and PostgreSQL do not share.

Times are seconds since 1970 (UTC), as a double: both databases keep them alike. A change here needs a migration in
`kernfed_server/migrations/versions`, and its name in `SCHEMA`.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

SCHEMA: Final = "0006"
"""The newest migration."""

_NUL_SHOWN: Final = "\N{REPLACEMENT CHARACTER}"


class Words(TypeDecorator[str]):
    """Text that both databases take: PostgreSQL refuses NUL, and more characters than a column holds.

    Peers' texts get here; none of them may keep a job's events from being stored.
    """

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """The text without NUL, cut to the column's length."""
        del dialect
        return None if value is None else value.replace("\0", _NUL_SHOWN)[: getattr(self.impl, "length", None)]


class Prose(Words):
    """The same without a limit."""

    impl = Text
    cache_ok = True


metadata: Final = MetaData()

about = Table(
    "about",
    metadata,
    Column("key", Words(64), primary_key=True),
    Column("value", Prose(), nullable=False),
)
"""Whose books these are: see `kernfed_server.keeping.ownership`."""

jobs = Table(
    "jobs",
    metadata,
    Column("ordinal", Integer, primary_key=True, autoincrement=True),
    Column("job_id", Words(128), nullable=False, unique=True),
    Column("name", Words(64), nullable=False),
    Column("method", Words(64), nullable=False),
    Column("state", Words(16), nullable=False, index=True),
    Column("submitted_by", Words(64), nullable=False),
    Column("submitted_at", Double, nullable=False),
    Column("started_at", Double),
    Column("finished_at", Double),
    Column("round_num", Integer, nullable=False),
    Column("num_rounds", Integer, nullable=False),
    Column("clients", JSON, nullable=False),
    Column("error_reason", Words(64), nullable=False),
    Column("error_message", Prose(), nullable=False),
    Column("job_toml", Prose(), nullable=False),
    Column("settings", JSON(none_as_null=True)),  # with all defaults; none in rows of a release that kept none
    Column("submission_sha256", Words(64), nullable=False, server_default=""),
    Column("submission", LargeBinary),  # serialized, as its operator signed it
)

events = Table(
    "events",
    metadata,
    Column("job_id", ForeignKey("jobs.job_id"), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("time", Double, nullable=False),
    Column("kind", Words(32), nullable=False),
    Column("round_num", Integer, nullable=False),
    Column("step", Words(64), nullable=False),
    Column("client", Words(64), nullable=False),
    Column("message", Prose(), nullable=False),
    Column("reason", Words(64), nullable=False, server_default=""),
    Column("metrics", JSON(none_as_null=True)),
    Column("finding", JSON(none_as_null=True)),
    Index("events_by_kind", "job_id", "kind"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("job_id", ForeignKey("jobs.job_id"), primary_key=True),
    Column("round_num", Integer, nullable=False),
    Column("file", Words(256), nullable=False),
    Column("sha256", Words(64), nullable=False),
    Column("answers", JSON, nullable=False),  # client to step to number of answers so far
)

outcomes = Table(
    "outcomes",
    metadata,
    Column("job_id", ForeignKey("jobs.job_id"), primary_key=True),
    Column("round_num", Integer, primary_key=True, autoincrement=False),
    Column("client", Words(64), primary_key=True),
    Column("answered", Integer, nullable=False),  # steps
    Column("failed", Integer, nullable=False),
    Column("missed", Integer, nullable=False),  # not in by the deadline
    Column("last_failure", Prose(), nullable=False),
)

operator_actions = Table(
    "operator_actions",
    metadata,
    Column("ordinal", Integer, primary_key=True, autoincrement=True),
    Column("time", Double, nullable=False),
    Column("operator", Words(64), nullable=False),
    Column("action", Words(32), nullable=False),
    Column("job_id", Words(128), nullable=False, index=True),
)

clients = Table(
    "clients",
    metadata,
    Column("name", Words(64), primary_key=True),
    Column("last_seen_at", Double),
    Column("datasets", JSON, nullable=False),
    Column("steps", JSON, nullable=False),
    Column("device", Prose(), nullable=False),
    Column("software_version", Words(64), nullable=False),
    Column("certificate_expires_at", Double),
    Column("peer", Prose(), nullable=False),
)

request_ids = Table(
    "request_ids",
    metadata,
    Column("submitted_by", Words(64), primary_key=True),
    Column("request_id", Words(128), primary_key=True),
    Column("job_id", ForeignKey("jobs.job_id"), nullable=False),
)
