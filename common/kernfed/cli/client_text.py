"""Clients in words, for a terminal and for the operator's page."""

from __future__ import annotations

from datetime import datetime

from kernfed.jobs.info import ClientInfo
from kernfed.wording import clean


def state_text(client: ClientInfo) -> str:
    """Whether a client is there, and what is wrong with it."""
    if client.revoked:
        return f"revoked: {clean(client.revoked_why)}" if client.revoked_why else "revoked"
    if client.connected:
        return f"connected: {clean(client.trouble)}" if client.trouble else "connected"
    return "away" if client.last_seen_at else "never seen"


def days_left_text(client: ClientInfo, now: datetime) -> str:
    """Days until its certificate ends; empty where it showed none yet."""
    if client.certificate_expires_at is None:
        return ""
    days = (client.certificate_expires_at - now).total_seconds() / 86400
    return f"{days:.0f} days left" if days >= 1 else "expires today" if days > 0 else "expired"
