"""Logging of the services: events with fields on stderr, for people in a terminal and as JSON lines elsewhere."""

from __future__ import annotations

import logging
import sys

import structlog

from kernfed.errors import ConfigError

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("auto", "text", "json")


def configure(level: str = "info", log_format: str = "auto") -> None:
    """Set up structlog for a service; only a `__main__` or a command calls this.

    Args:
        level: debug, info, warning or error.
        log_format: `auto` is text where stderr is a terminal, else JSON lines.

    Raises:
        ConfigError: An unknown level or format.
    """
    if level not in LEVELS or log_format not in FORMATS:
        raise ConfigError(
            f"log level {level!r} with format {log_format!r} is unknown; levels are {', '.join(LEVELS)}, "
            f"formats {', '.join(FORMATS)}"
        )
    text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    last: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            sort_keys=False,
            exception_formatter=structlog.dev.plain_traceback,  # others print local variables, and these hold rows
        )
        if text
        else structlog.processors.JSONRenderer(sort_keys=False)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if text else [structlog.processors.format_exc_info]),
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
