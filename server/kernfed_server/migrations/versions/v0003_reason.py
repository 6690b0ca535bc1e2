"""The reason code of a client's failure in a column of its own."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column, and split the texts `REASON: message` that were kept so far."""
    op.add_column("events", sa.Column("reason", sa.String(64), nullable=False, server_default=""))
    events = sa.table("events", *map(sa.column, ("job_id", "sequence", "kind", "message", "reason")))
    db = op.get_bind()
    failed = sa.select(events.c.job_id, events.c.sequence, events.c.message).where(events.c.kind == "client-failed")
    for row in db.execute(failed).all():
        reason, colon, message = row.message.partition(": ")
        if colon and len(reason) <= 64:
            this = (events.c.job_id == row.job_id) & (events.c.sequence == row.sequence)
            db.execute(sa.update(events).where(this).values(reason=reason, message=message))
