"""The operator's commands: `kernfed`. One line per command or group; each is in its own module."""

from __future__ import annotations

from kernfed.cli.later import add_later
from kernfed.cli.output import common_options, new_app, run_app

app = new_app("Federated learning with kernels: certificates, jobs, clients and models of one federation.")
app.callback()(common_options)
add_later(
    app,
    "pki",
    "kernfed.cli.pki:app",
    "Make and manage the federation's certificates. Run these where the PKI folder is.",
)
add_later(app, "job", "kernfed.cli.job:app", "Submit jobs, watch them, and fetch what they leave.")
add_later(app, "client", "kernfed.cli.client:app", "See the clients of the federation.")
add_later(
    app,
    "web",
    "kernfed.cli.web:web",
    "Print a link to the coordinator's page, which signs in once and for a short time.",
)
add_later(
    app,
    "predict",
    "kernfed.cli.models.predict:predict",
    "Predict the target of each row of a CSV or Parquet file.",
)
add_later(
    app,
    "model",
    "kernfed.cli.models.model:app",
    "Hand a job's model on: to programs that do not have kernfed, and to people.",
)
add_later(
    app,
    "serve",
    "kernfed.cli.models.serve:serve",
    "Serve a model over HTTP: POST /predict takes a row or many as JSON, GET /schema tells the columns.",
)
add_later(app, "report", "kernfed.cli.report:report", "Write report.html again from the artifacts in a folder.")
add_later(
    app,
    "doctor",
    "kernfed.cli.doctor:doctor",
    "Tell this machine's platform, and check the way to the coordinator: identity, DNS, TCP, TLS, mutual TLS, role.",
)


def main() -> None:
    """Run a command and exit."""
    run_app(app)
