"""`python -m kernfed_server` and the console script `kernfed-coordinator`."""

from __future__ import annotations

import os

from kernfed.cli.later import add_later
from kernfed.cli.output import common_options, new_app, run_app

app = new_app("Run a federation's coordinator.")
app.callback()(common_options)
add_later(
    app,
    "run",
    "kernfed_server.commands.run:run",
    "Serve clients and operators until stopped; jobs under way go on at the next start.",
)
add_later(
    app,
    "init",
    "kernfed_server.commands.init:init",
    "Make a new federation, once: its CA, and the identities of the coordinator and of one operator.",
)
add_later(
    app,
    "health",
    "kernfed_server.commands.health:health",
    "Ask the coordinator on this machine whether it serves: exit status 0 if it does; for probes.",
)
add_later(
    app,
    "gc",
    "kernfed_server.commands.gc:gc",
    "Remove what nothing refers to from the data folder; the coordinator may run meanwhile.",
)
add_later(
    app,
    "new-database",
    "kernfed_server.commands.new_database:new_database",
    "Begin with no jobs although this federation had a database: it was lost for good.",
)
add_later(
    app,
    "actions",
    "kernfed_server.commands.actions:actions",
    "Say what operators did: who submitted and cancelled which job, and when.",
)


def main() -> None:
    """Run a command; an error is one clear message on stderr and an exit code, never a traceback."""
    # Failed handshakes are told by grpc alone, at its default level, which the other commands lower;
    # `handshake_failures_logged` turns its words into log lines.
    os.environ.setdefault("GRPC_VERBOSITY", "")
    run_app(app)


if __name__ == "__main__":
    main()
