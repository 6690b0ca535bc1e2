"""FedNewton in a simulation beside scikit-learn on the pooled rows: seconds and peak memory of both, in one run.

`kernfed-simulate` deals the rows out to clients and trains three models: the global one, each client's own with its own
scales, and the pooled reference. scikit-learn (`RBFSampler` and `Ridge`) trains one model of the pooled rows. The work
that is equal to it is the global model alone: a simulation whose clients hold no test rows out has nothing to compare.
The bare program makes only what one model of these features cannot do without, in blocks of rows: the map, half of the
Gram matrix in float64, one Cholesky factor. So nothing that trains one such model is faster, and two models take two
such Gram matrices. Each is a process of its own with one thread, start and reading of the file included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

COLUMNS, RIDGE, TEST, BLOCK = 20, 1e-3, 0.1, 4096


def write_inputs(folder: Path, num_rows: int, num_features: int) -> None:
    """Rows and the job file."""
    draw = np.random.default_rng(5)
    x = draw.standard_normal((num_rows, COLUMNS))
    y = np.sin(x @ draw.standard_normal((COLUMNS, 3)) / 4).sum(1) + x[:, 0] * x[:, 1] / 2
    np.savez(folder / "rows.npz", x=x, y=y + 0.3 * draw.standard_normal(num_rows))
    job = (
        f'name = "pooled"\n[method]\nname = "newton"\nridge = {RIDGE}\n[data]\ntask = "regression"\ntarget = "y"\n'
        f'features = ["x[0:{COLUMNS}]"]\ntest_fraction = {TEST}\n[features]\nnum_frequencies = {num_features}\n'
    )
    (folder / "job.toml").write_text(job)
    (folder / "alone.toml").write_text(job.replace(f"test_fraction = {TEST}", "test_fraction = 0"))


def global_alone(folder: Path, num_clients: int) -> None:
    """The federation's global model of the same training rows, and no other; prints its error on held-out rows."""
    from kernfed.jobs.client_file import PartitionFile
    from kernfed.jobs.job_file import load_job
    from kernfed_simulation.federation import from_data_file
    from kernfed_simulation.partition import parse_partitioning
    from kernfed_simulation.run import simulate

    with np.load(folder / "rows.npz") as rows:
        x, y = rows["x"], rows["y"]
    n = int(len(y) * (1 - TEST))
    np.savez(folder / "train.npz", x=x[:n], y=y[:n])
    job, _ = load_job(folder / "alone.toml")
    clients = from_data_file(
        PartitionFile(path=folder / "train.npz"), parse_partitioning("iid"), num_clients, job, folder / "state"
    )
    model = simulate(job, clients).model
    assert model is not None
    error = float(np.square(model.predict(x[n:]) - y[n:]).mean())
    print(json.dumps({"pooled": {"global": {"mse": error}}}))


def pooled(folder: Path, num_features: int) -> None:
    """The model of all rows by scikit-learn; prints its error on held-out rows."""
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.linear_model import Ridge

    with np.load(folder / "rows.npz") as rows:
        x, y = rows["x"], rows["y"]
    n = int(len(y) * (1 - TEST))
    sampler = RBFSampler(gamma=1 / (2 * 6.2**2), n_components=num_features, random_state=0).fit(x[:n])
    model = Ridge(alpha=RIDGE * n, solver="cholesky").fit(sampler.transform(x[:n]), y[:n])
    error = float(np.square(model.predict(sampler.transform(x[n:])) - y[n:]).mean())
    print(json.dumps({"pooled": {"global": {"mse": error}}}))


def bare(folder: Path, num_features: int) -> None:
    """The same model by the products that it cannot do without; prints its error on held-out rows."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.linalg.blas import dsyrk

    with np.load(folder / "rows.npz") as rows:
        x, y = rows["x"], rows["y"]
    n, draw = int(len(y) * (1 - TEST)), np.random.default_rng(0)
    omega = draw.standard_normal((COLUMNS, num_features)) / 6.2
    phase = draw.uniform(0.0, 2.0 * np.pi, num_features)

    def mapped(part: slice) -> npt.NDArray[np.float64]:
        z: npt.NDArray[np.float64] = x[part] @ omega
        z += phase
        np.cos(z, out=z)
        z *= np.sqrt(2.0 / num_features)
        return z

    gram, moment, target = np.zeros((num_features, num_features), order="F"), np.zeros(num_features), y[:n].mean()
    total = np.zeros(num_features)
    for start in range(0, n, BLOCK):
        part = slice(start, min(start + BLOCK, n))
        z = mapped(part)
        gram = dsyrk(1.0, z.T, beta=1.0, c=gram, overwrite_c=1)
        moment += (y[part] - target) @ z
        total += z.sum(axis=0)
    mean = total / n
    gram -= n * np.outer(mean, mean)
    gram[np.diag_indices(num_features)] += RIDGE * n
    weights = cho_solve(cho_factor(gram, overwrite_a=True), moment)
    error = float(np.square((mapped(slice(n, None)) - mean) @ weights + target - y[n:]).mean())
    print(json.dumps({"pooled": {"global": {"mse": error}}}))


def measured(command: list[str]) -> dict[str, float]:
    """Wall and CPU seconds, peak memory in GiB, and the error that the command prints."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"}) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.read())
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} ended with {process.returncode}")
    return {
        "wall": time.perf_counter() - began,
        "cpu": used.ru_utime + used.ru_stime,
        "memory": used.ru_maxrss / 2**20,
        "mse": told["pooled"]["global"]["mse"],
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", nargs="?", default="all")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=10)
    args = parser.parse_args()
    if args.role == "pooled":
        pooled(args.folder, args.features)
        return
    if args.role == "global":
        global_alone(args.folder, args.clients)
        return
    if args.role == "bare":
        bare(args.folder, args.features)
        return
    with tempfile.TemporaryDirectory(prefix="kernfed-bench-") as name:
        folder = Path(name)
        write_inputs(folder, args.rows, args.features)
        simulate = [str(Path(sys.executable).with_name("kernfed-simulate")), str(folder / "job.toml"), "--json"]
        simulate += ["--data", str(folder / "rows.npz"), "--partition", "iid", "--clients", str(args.clients)]
        ours = measured(simulate)
        sizes = ["--folder", name, "--features", str(args.features), "--clients", str(args.clients)]
        alone, plain, least = (
            measured([sys.executable, __file__, role, *sizes]) for role in ("global", "pooled", "bare")
        )
    print(f"\n{args.rows} rows, {args.features} features, {args.clients} clients, one thread, whole processes")
    print(f"{'':<24} {'wall s':>8} {'CPU s':>8} {'peak GiB':>9} {'test mse':>9}")
    all_models = f"kernfed, {args.clients + 2} models"
    named = ((all_models, ours), ("kernfed, global model", alone), ("scikit-learn", plain), ("bare", least))
    for label, found in named:
        print(f"{label:<24} {found['wall']:>8.1f} {found['cpu']:>8.1f} {found['memory']:>9.2f} {found['mse']:>9.4f}")
    for label, found in named:
        wall, cpu, memory = (found[key] / plain[key] for key in ("wall", "cpu", "memory"))
        print(f"{'ratio, ' + label:<30} {wall:>8.2f} {cpu:>8.2f} {memory:>9.2f}")


if __name__ == "__main__":
    main()
