"""Operators' actions: jobs that they submitted and cancelled, with names and times, as the store noted them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from kernfed_server.keeping import tables as t
from kernfed_server.keeping.schema import connected


@dataclass(frozen=True, slots=True)
class Action:
    """One action of an operator."""

    time: datetime
    operator: str
    action: str
    job_id: str


def last_actions(url: str, limit: int, job: str = "") -> list[Action]:
    """The last actions, oldest first. Blocks.

    Args:
        url: The store's database, as for `kernfed_server.keeping.schema.make_engine`.
        limit: At most this many.
        job: Only of jobs whose ids begin so.

    Raises:
        ConfigError: There is no store, or it is another release's.
        UnavailableError: The database cannot be read.
    """
    table = t.operator_actions
    query = sa.select(table).where(table.c.job_id.startswith(job, autoescape=True))
    with connected(url) as db:
        rows = db.execute(query.order_by(table.c.ordinal.desc()).limit(limit)).all()
    return [Action(datetime.fromtimestamp(r.time, UTC), r.operator, r.action, r.job_id) for r in reversed(rows)]
