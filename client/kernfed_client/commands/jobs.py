"""`kernfed-client jobs`: the site's say over jobs, beside a daemon that runs or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import JsonOption, print_found, print_json
from kernfed.wording import clean
from kernfed_client.approval import listing
from kernfed_client.approval.book import Word

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    help="List the jobs that ran, run or ask to run here, and decide on them; `show` says what one would send.",
)

ConfigOption = Annotated[Path, typer.Option(help="Client file, as for `run`.")]
JobArgument = Annotated[str, typer.Argument(help="Its id, the beginning of it, or its name.", metavar="JOB")]
WhyOption = Annotated[str, typer.Option(help="A reason for the audit log, one line; it stays here.")]
CONFIG = Path("client.toml")


@app.callback()
def jobs(context: typer.Context, config: ConfigOption = CONFIG, as_json: JsonOption = False) -> None:
    """List the jobs that ran, run or ask to run here, and decide on them; `show` says what one would send."""
    if context.invoked_subcommand is None:
        print_found(lambda: listing.jobs(config), listing.list_json, listing.list_table, as_json=as_json)


@app.command()
def show(job: JobArgument, config: ConfigOption = CONFIG, as_json: JsonOption = False) -> None:
    """Say what a job would send, by step and kind, and who learns it; and what was decided on it."""
    print_found(lambda: listing.show(config, job), listing.show_json, listing.show_table, as_json=as_json)


@app.command()
def approve(
    job: JobArgument,
    remember: Annotated[
        bool,
        typer.Option("--remember", help='With policy.approve = "known": let jobs of the same plan run at once.'),
    ] = False,
    why: WhyOption = "",
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Let a job run here; the coordinator asks it again by itself."""
    _decide(config, job, Word.APPROVE, why, as_json=as_json, remember=remember)


@app.command()
def refuse(
    job: JobArgument,
    why: Annotated[str, typer.Option(help="The reason, one line; the job's operator reads it.")],
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Refuse a job: nothing of it leaves any more, its operator reads why, and its plan is forgotten."""
    _decide(config, job, Word.REFUSE, why, as_json=as_json)


@app.command()
def pause(job: JobArgument, why: WhyOption = "", config: ConfigOption = CONFIG, as_json: JsonOption = False) -> None:
    """Answer nothing more of a job for now; a step under way is answered still."""
    _decide(config, job, Word.PAUSE, why, as_json=as_json)


@app.command()
def resume(job: JobArgument, why: WhyOption = "", config: ConfigOption = CONFIG, as_json: JsonOption = False) -> None:
    """Let a paused job go on where it was."""
    _decide(config, job, Word.RESUME, why, as_json=as_json)


def _decide(config: Path, job: str, word: Word, why: str, *, as_json: bool, remember: bool = False) -> None:
    found = listing.decide(config, job, word, why, remember=remember)
    if as_json:
        print_json(listing.list_json([found])[0])
    else:
        noted = "it is in the audit log, and holds, as soon as the daemon runs"
        typer.echo(f"{clean(found.job)}: {found.state.value}; {noted}")
