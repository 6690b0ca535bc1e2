"""`kernfed job sweep` over real sockets: each run is a job, validation rows rank, and test rows measure the best."""

from __future__ import annotations

import json
from pathlib import Path

from kernfed.federation.events import EventKind
from kernfed_testing.commands import run_command
from kernfed_testing.federation import Federation


async def test_a_sweep_is_jobs_and_a_choice_without_test_rows(tmp_path: Path) -> None:
    """Keys of file and command are swept; the best by validation rows runs, on the rows of a job without a sweep."""
    async with Federation(tmp_path / "fed", ["a", "b"]) as fed:
        job = tmp_path / "job.toml"
        alone_text = fed.job("dkrr", ridge=0.1)
        job.write_text(f"{alone_text}\n[sweep.keys]\nfeatures.num_frequencies = [5, 20]\n")
        options = ["--identity", str(fed.identities.operator), "--coordinator", f"localhost:{fed.ports.federation}"]
        done = await run_command("kernfed", "job", "sweep", str(job), "--sweep", "ridge=0.1,1000", "--json", *options)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["metric"], told["measured"]) == ("mse", "on validation rows")
        assert len(told["trials"]) == 4
        top = min(told["trials"], key=lambda trial: trial["mse"])
        assert told["chosen"]["settings"] == top["settings"]
        assert top["settings"]["ridge"] == 0.1
        listed = await run_command("kernfed", "job", "list", "--json", *options)
        jobs = [found["job_id"] for found in json.loads(listed.stdout)]
        assert len(jobs) == 5
        frequencies = top["settings"]["features.num_frequencies"]
        alone = await fed.run(alone_text.replace("num_frequencies = 20", f"num_frequencies = {frequencies}"))
        (closed,) = alone.of(EventKind.ROUND_CLOSED)
        assert closed.metrics is not None
        assert closed.metrics.pooled["global"]["mse"] == told["chosen"]["scores"]["mse"]
        shown = await run_command("kernfed", "job", "show", jobs[-1], *options)
        assert "last metrics, on validation rows" in shown.stdout
        assert "metrics are of validation rows" in shown.stdout
        refused = await run_command("kernfed", "job", "submit", str(job), *options)
        assert refused.returncode != 0
        assert "kernfed job sweep" in refused.stderr
        wrong = await run_command("kernfed", "job", "sweep", str(job), "--sweep", "nonsense=1", *options)
        assert wrong.returncode != 0
        assert "method.nonsense: unknown key" in wrong.stderr
