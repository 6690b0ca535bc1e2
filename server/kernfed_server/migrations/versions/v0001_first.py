"""Jobs, their events and checkpoints, clients, request ids: the tables of the first stores."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "jobs",
        sa.Column("ordinal", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("job_id", sa.String(128), nullable=False, unique=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("method", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("submitted_by", sa.String(64), nullable=False),
        sa.Column("submitted_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("finished_at", sa.Double),
        sa.Column("round_num", sa.Integer, nullable=False),
        sa.Column("num_rounds", sa.Integer, nullable=False),
        sa.Column("clients", sa.JSON, nullable=False),
        sa.Column("error_reason", sa.String(64), nullable=False),
        sa.Column("error_message", sa.Text, nullable=False),
        sa.Column("job_toml", sa.Text, nullable=False),
    )
    op.create_index("ix_jobs_state", "jobs", ["state"])
    op.create_table(
        "events",
        sa.Column("job_id", sa.String(128), sa.ForeignKey("jobs.job_id"), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("round_num", sa.Integer, nullable=False),
        sa.Column("step", sa.String(64), nullable=False),
        sa.Column("client", sa.String(64), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("metrics", sa.JSON),
        sa.Column("finding", sa.JSON),
    )
    op.create_index("events_by_kind", "events", ["job_id", "kind"])
    op.create_table(
        "checkpoints",
        sa.Column("job_id", sa.String(128), sa.ForeignKey("jobs.job_id"), primary_key=True),
        sa.Column("round_num", sa.Integer, nullable=False),
        sa.Column("file", sa.String(256), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("answers", sa.JSON, nullable=False),
    )
    op.create_table(
        "clients",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("last_seen_at", sa.Double),
        sa.Column("datasets", sa.JSON, nullable=False),
        sa.Column("steps", sa.JSON, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("software_version", sa.String(64), nullable=False),
        sa.Column("certificate_expires_at", sa.Double),
        sa.Column("peer", sa.Text, nullable=False),
    )
    op.create_table(
        "request_ids",
        sa.Column("submitted_by", sa.String(64), primary_key=True),
        sa.Column("request_id", sa.String(128), primary_key=True),
        sa.Column("job_id", sa.String(128), sa.ForeignKey("jobs.job_id"), nullable=False),
    )
