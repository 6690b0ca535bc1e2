"""What a job's operator signed, and its digest, in columns of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns; jobs so far are not signed."""
    op.add_column("jobs", sa.Column("submission_sha256", sa.String(64), nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("submission", sa.LargeBinary))
