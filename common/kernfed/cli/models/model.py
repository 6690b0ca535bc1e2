"""`kernfed model`: a model for programs that do not have kernfed, and for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernfed.cli.output import new_app, print_note
from kernfed.models.network_model import load_predictor
from kernfed.models.onnx_file import MOST_APART, export_onnx
from kernfed.report.card import write_card

app = new_app("Hand a job's model on: to programs that do not have kernfed, and to people.")


@app.command()
def export(
    model: Annotated[Path, typer.Option(help="Folder with model.safetensors and model.json.")],
    onnx: Annotated[Path, typer.Option(help="ONNX file to write. It takes raw rows: it fills gaps, and scales.")],
) -> None:
    """Write a model as an ONNX file, and compare what it computes with the model on rows that are made up."""
    predictor = load_predictor(model)
    if note := predictor.job.get("note"):
        typer.echo(f"{model}: {note}", err=True)
    written = export_onnx(predictor, onnx)
    typer.echo(f"{onnx}: {written.num_bytes:,} bytes")
    typer.echo(f"inputs: {', '.join(written.inputs)}")
    typer.echo(f"outputs: {', '.join(written.outputs)}")
    if written.apart is None:
        print_note(
            "onnxruntime is not installed (pip install 'kernfed[onnx]'): the file was not compared with the model"
        )
    else:
        print_note(
            f"onnxruntime computes the model's scores, {written.apart:.1g} of their size apart at most "
            f"(up to {MOST_APART:g} is taken)"
        )


@app.command()
def card(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with a job's files, its model among them.")],
) -> None:
    """Write the model's card: what it takes and predicts, who stands behind it, how good it is, and its limits."""
    for path in write_card(folder):
        typer.echo(str(path))
