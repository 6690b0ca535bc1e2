"""The operator's commands: `kernfed`. One line per command group; each is in its own module."""

from __future__ import annotations

from kernfed.cli import client, doctor, job, pki, predict, report
from kernfed.cli.output import common_options, new_app, run_app

app = new_app("Federated learning with kernels: certificates, jobs, clients and models of one federation.")
app.callback()(common_options)
app.add_typer(pki.app, name="pki")
app.add_typer(job.app, name="job")
app.add_typer(client.app, name="client")
app.command("predict")(predict.predict)
app.command("report")(report.report)
app.command("doctor")(doctor.doctor)


def main() -> None:
    """Run a command and exit."""
    run_app(app)
