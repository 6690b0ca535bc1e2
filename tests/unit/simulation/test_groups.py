"""Rows of a group of the site stay together wherever a method deals rows by a draw."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.arrays import Array
from kernfed.maths import folds
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing.commands import run_command
from kernfed_testing.hostile.adversary import rows
from kernfed_testing.methods.variants import METHODS, SITES, job_of

VISITS = 3
DEALING = {
    "head": {"keep_apart"},
    "distill": set(),
    "personalise": set(),
    "personalise fedavg": {"deal", "sums_of_deviations"},
    "reweight": {"deal"},
}
"""Variants, with the functions that deal rows there; the others leave rows out in closed form."""


def client_files(folder: Path) -> list[Path]:
    """Three sites of patients with three visits each."""
    found = []
    for seed, name in enumerate(SITES):
        site = folder / name
        site.mkdir()
        table = rows(90, seed, patient=[f"p{i // VISITS}" for i in range(90)])
        lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
        (site / "rows.csv").write_text("\n".join(lines))
        path = site / f"{name}.toml"
        path.write_text(
            '[datasets.default]\ngroup = "patient"\ntrain.path = "rows.csv"\n[policy]\nmin_rows = 1\n',
        )
        found.append(path)
    return found


@pytest.mark.parametrize("variant", [name for name in DEALING if name in METHODS])
def test_no_draw_divides_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    """Whatever is dealt at a client are whole patients, of three rows each; and the test rows are."""
    seen: list[str] = []

    def spy(name: str) -> Any:
        real = getattr(folds, name)

        def called(first: Array, unit: Array, *rest: Any) -> Any:
            sizes = np.bincount(unit)
            assert set(sizes[sizes > 0] % VISITS) == {0}, name
            seen.append(name)
            return real(first, unit, *rest)

        return called

    for name in ("deal", "keep_apart", "sums_of_deviations"):
        real, called = getattr(folds, name), spy(name)
        for module in list(sys.modules.values()):
            if getattr(module, name, None) is real and module is not folds:
                monkeypatch.setattr(module, name, called)
    job, files = job_of(METHODS[variant], tmp_path)
    jobs = from_client_files(client_files(tmp_path), tmp_path / "state")
    done = simulate(job, jobs, files=files)
    assert done.error is None
    for local in jobs.values():
        group, tested = local.data.train.group, local.data.test.group
        assert group is not None
        assert tested is not None
        assert not set(group.tolist()) & set(tested.tolist())
        units = local.together(local.x_train)
        assert set(np.bincount(units)) == {VISITS}
        assert len(set(zip(units.tolist(), group.tolist(), strict=True))) == len(set(group.tolist()))
    assert DEALING[variant] <= set(seen)


async def test_a_simulation_on_one_file_has_groups(tmp_path: Path) -> None:
    """`--group` names the column; without a value in a row it is refused with its line."""
    [path, *_] = client_files(tmp_path)
    job = tmp_path / "job.toml"
    job.write_text(
        'name = "job"\n[method]\nname = "local"\n[data]\ntask = "regression"\ntarget = "y"\nfeatures = ["x0", "x1"]\n'
    )
    data = path.with_name("rows.csv")
    arguments = [str(job), "--data", str(data), "--partition", "iid", "--clients", "2", "--group", "patient", "--json"]
    done = await run_command("kernfed-simulate", *arguments)
    assert done.returncode == 0, done.stderr
    data.write_text(data.read_text().replace("p1\n", "\n", 1))
    refused = await run_command("kernfed-simulate", *arguments)
    assert refused.returncode != 0
    assert "column 'patient', the group, line 5: no value" in " ".join(refused.stderr.split())
