"""The settings of a job with all defaults, as the release that took it read them."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the column; of jobs so far it is not known."""
    op.add_column("jobs", sa.Column("settings", sa.JSON))
