"""What each client did in each round, and what operators did."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add two tables; the table that held the version before Alembic did goes."""
    op.create_table(
        "outcomes",
        sa.Column("job_id", sa.String(128), sa.ForeignKey("jobs.job_id"), primary_key=True),
        sa.Column("round_num", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("client", sa.String(64), primary_key=True),
        sa.Column("answered", sa.Integer, nullable=False),
        sa.Column("failed", sa.Integer, nullable=False),
        sa.Column("missed", sa.Integer, nullable=False),
        sa.Column("last_failure", sa.Text, nullable=False),
    )
    op.create_table(
        "operator_actions",
        sa.Column("ordinal", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("operator", sa.String(64), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("job_id", sa.String(128), nullable=False),
    )
    op.create_index("ix_operator_actions_job_id", "operator_actions", ["job_id"])
    op.execute("DROP TABLE IF EXISTS schema_version")
