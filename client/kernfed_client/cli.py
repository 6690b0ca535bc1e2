"""The site administrator's commands: `kernfed-client`."""

from __future__ import annotations

import typer

from kernfed.cli.later import add_later
from kernfed.cli.output import common_options, run_app

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Run kernfed beside the data of one institution.",
)
app.callback()(common_options)
add_later(
    app,
    "enrol",
    "kernfed_client.commands.identity:enrol",
    "Make a key here and trade the operator's token for a certificate.",
)
add_later(
    app,
    "csr",
    "kernfed_client.commands.identity:csr",
    "Make a key here and a request.csr, to be signed offline with `kernfed pki sign`.",
)
add_later(
    app,
    "install-cert",
    "kernfed_client.commands.identity:install_cert",
    "Put a certificate that was signed offline beside its key.",
)
add_later(
    app,
    "renew",
    "kernfed_client.commands.identity:renew",
    "Renew the certificate now; the daemon does it by itself at two thirds of its life.",
)
add_later(
    app,
    "doctor",
    "kernfed_client.commands.doctor:doctor",
    "Tell this machine's platform, and check the way to the coordinator: identity, DNS, TCP, TLS, mutual TLS, role.",
)
add_later(
    app,
    "run",
    "kernfed_client.commands.run:run",
    "Connect to the coordinator and work for it until stopped; reconnects by itself.",
)
add_later(
    app,
    "new-state",
    "kernfed_client.commands.new_state:new_state",
    "Take the state folder as it is, where it was lost: what this site told of its rows before is then not known.",
)
add_later(
    app,
    "peers",
    "kernfed_client.commands.peers:peers",
    "Print the fingerprint of this site's key, and those of the sites that it accepted for secure sums.",
)
add_later(
    app,
    "health",
    "kernfed_client.commands.health:health",
    "Say whether the daemon on this machine runs and has a session: exit status 0 if so; for probes.",
)
add_later(
    app,
    "features",
    "kernfed_client.commands.features:features",
    "Write a partition's frozen features: to predict from, or for jobs without the backbone; they stay here.",
)
add_later(
    app,
    "check-data",
    "kernfed_client.commands.check_data:check_data",
    "Check whether the local data fit a job, without any network; what is printed stays here.",
)
add_later(
    app,
    "jobs",
    "kernfed_client.commands.jobs:app",
    "List the jobs that ran, run or ask to run here, and decide on them; `show` says what one would send.",
)
add_later(
    app,
    "predict",
    "kernfed_client.commands.predict:predict",
    "Predict the rows of a file with this client's own model of a job; nothing leaves this machine.",
)
add_later(
    app,
    "audit",
    "kernfed_client.commands.audit:audit",
    "Say what left this site, by job and kind of information, in bytes and numbers; needs no network.",
)


def main() -> None:
    """Run a command; an error is one clear message on stderr and an exit code, never a traceback."""
    run_app(app)
