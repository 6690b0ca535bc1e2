"""Tables of the coordinator's store. Portable SQL: no type or default that SQLite and PostgreSQL do not share.

Times are seconds since 1970 (UTC), as a double: both databases keep them alike.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import JSON, BigInteger, Column, Double, ForeignKey, Index, Integer, MetaData, String, Table, Text

SCHEMA_VERSION: Final = 1

metadata: Final = MetaData()

schema_version = Table("schema_version", metadata, Column("version", Integer, primary_key=True))

jobs = Table(
    "jobs",
    metadata,
    Column("ordinal", Integer, primary_key=True, autoincrement=True),
    Column("job_id", String(128), nullable=False, unique=True),
    Column("name", String(64), nullable=False),
    Column("method", String(64), nullable=False),
    Column("state", String(16), nullable=False, index=True),
    Column("submitted_by", String(64), nullable=False),
    Column("submitted_at", Double, nullable=False),
    Column("started_at", Double),
    Column("finished_at", Double),
    Column("round_num", Integer, nullable=False),
    Column("num_rounds", Integer, nullable=False),
    Column("clients", JSON, nullable=False),
    Column("error_reason", String(64), nullable=False),
    Column("error_message", Text, nullable=False),
    Column("job_toml", Text, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("job_id", ForeignKey("jobs.job_id"), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("time", Double, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("round_num", Integer, nullable=False),
    Column("step", String(64), nullable=False),
    Column("client", String(64), nullable=False),
    Column("message", Text, nullable=False),
    Column("metrics", JSON(none_as_null=True)),
    Column("finding", JSON(none_as_null=True)),
    Index("events_by_kind", "job_id", "kind"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("job_id", ForeignKey("jobs.job_id"), primary_key=True),
    Column("round_num", Integer, nullable=False),
    Column("file", String(256), nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("answers", JSON, nullable=False),  # client to step to number of answers so far
)

clients = Table(
    "clients",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("last_seen_at", Double),
    Column("datasets", JSON, nullable=False),
    Column("steps", JSON, nullable=False),
    Column("device", Text, nullable=False),
    Column("software_version", String(64), nullable=False),
    Column("certificate_expires_at", Double),
    Column("peer", Text, nullable=False),
)

request_ids = Table(
    "request_ids",
    metadata,
    Column("submitted_by", String(64), primary_key=True),
    Column("request_id", String(128), primary_key=True),
    Column("job_id", ForeignKey("jobs.job_id"), nullable=False),
)
