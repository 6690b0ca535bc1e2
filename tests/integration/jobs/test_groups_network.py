"""Rows of a person, over mutual TLS and by processes: no split divides a person, and too few persons are refused."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from kernfed.federation.events import JobState
from kernfed.jobs.job_file import parse_job
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.federation import Federation, make_csv

NAMES = ("a", "b")
VISITS = 4
SITE = """
[datasets.default]
group = "person"
[datasets.few]
group = "person"
[datasets.few.train]
path = "few.csv"
[policy]
min_rows = 8
min_groups = 5
"""


def visits(name: str, num_persons: int) -> str:
    """60 rows in which the visits of a person lie far from each other."""
    head, *rows = make_csv(name).splitlines()
    return "\n".join([f"{head},person", *(f"{row},p{i % num_persons}" for i, row in enumerate(rows))]) + "\n"


def in_one_process(fed: Federation, text: str, folder: Path) -> str:
    """The model's digest in one process, where no person has rows on both sides."""
    jobs = from_client_files([fed.client_folder(name) / "client.toml" for name in NAMES], folder / "state")
    done = simulate(parse_job(text), jobs, text=text, out=folder / "out")
    assert done.error is None, done.error
    for local in jobs.values():
        trained, tested = local.data.train.group, local.data.test.group
        assert trained is not None
        assert tested is not None
        sides = set(trained.tolist()), set(tested.tolist())
        assert [len(side) * VISITS for side in sides] == [len(trained), len(tested)]
        assert not sides[0] & sides[1]
        assert len(tested) > 0
    return hashlib.sha256((folder / "out" / "model.safetensors").read_bytes()).hexdigest()


async def test_persons_stay_whole_and_too_few_are_refused(tmp_path: Path) -> None:
    """The model is that of whole persons, not that of visits; 60 rows of 3 persons are refused, by name and remedy."""
    data = {name: visits(name, 60 // VISITS) for name in NAMES}
    async with Federation(tmp_path / "fed", data, settings=dict.fromkeys(NAMES, SITE), processes=True) as fed:
        text = fed.job("newton", rounds=2, data_test_fraction=0.25)
        ended = await fed.run(text)
        assert ended.info.state is JobState.SUCCEEDED, ended.info.error_message
        whole = await fed.model_sha256(ended)
        assert whole == await asyncio.to_thread(in_one_process, fed, text, tmp_path / "sim")

        (fed.client_folder("a") / "few.csv").write_text(visits("a", 12))
        (fed.client_folder("b") / "few.csv").write_text(visits("b", 3))
        refused = await fed.run(fed.job("newton", rounds=2, data_test_fraction=0.25, cohort_dataset="few"))
        assert refused.info.state is JobState.FAILED
        assert "\n  b: REFUSED_BY_POLICY: data set few: " in refused.info.error_message
        assert "fewer groups than policy.min_groups" in refused.info.error_message
        assert "add groups, or let this client's administrator lower it" in refused.info.error_message
