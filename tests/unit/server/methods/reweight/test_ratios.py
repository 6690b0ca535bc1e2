"""Reweighted jobs that train on pixels and fit density ratios on frozen features, on clients in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernfed.errors import ConfigError, DataError, JobError
from kernfed.jobs.client_models import BackboneSection
from kernfed.jobs.job_file import JobFile
from kernfed.methods.reweight.label_shift import label_ratios, priors
from kernfed.methods.reweight.messages import ShareSampleRequest
from kernfed.methods.reweight.ratio_spec import PLAIN_COLUMNS, RatioFeatures, RatioInput
from kernfed.models.network_model import NetworkModel
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.reweight import steps
from kernfed_simulation.federation import Rows
from kernfed_testing.backbones import Stripes, shapes
from kernfed_testing.in_process import bench, make_job, regression_rows
from kernfed_testing.methods.personalise import notes, run
from kernfed_testing.methods.reweight import PAPER, finding, sharing, weights

pytestmark = pytest.mark.slow

CLASSES = ("columns", "rows")
NAMES = ("ant", "bee", "cat")
STRIPES = {"source": "torch:kernfed_testing.backbones.Stripes", "channels": 1, "mean": [0.5], "deviation": [0.5]}
IMAGE = "image = [1, 12, 12]\n"
BACKBONE = f'features = "backbone"\nbackbone = "stripes"\n{IMAGE}'
CONVOLUTIONS = f'features = "convolutions"\n{IMAGE}'


def pictures() -> dict[str, Rows]:
    """Bright rows or columns; each client trains mostly on one of them, and is tested mostly on the other."""
    x, labels = shapes(900, 0)
    y, pixels = (labels == "rows").astype(np.int64), x.reshape(900, 144).astype(np.float64)
    rest = [list(np.flatnonzero(y == k)) for k in range(2)]

    def take(many: int, size: int) -> Any:
        chosen = [rest[k].pop() for k in (many, 1 - many) for _ in range(size if k == many else size // 4)]
        return pixels[chosen], y[chosen]

    return {name: Rows(*take(i % 2, 120), *take(1 - i % 2, 60)) for i, name in enumerate(NAMES)}


def job(ratios: str, **settings: Any) -> JobFile:
    """A small network on 144 pixels."""
    settings = {"trainer": "adam", "rounds": 3, "compare": False, "step_size": 0.01, **settings}
    tables = f'[method.ratios]\n{ratios}\n[method.network]\nkind = "mlp"\nwidths = [4]\n'
    return make_job("reweight", task="classification", num_columns=144, frequencies=None, cohort=tables, **settings)


def clients(state: Path, **sections: dict[str, Any]) -> dict[str, LocalJob]:
    """Clients that share; with the backbone `stripes`, or another one as given."""
    jobs: dict[str, LocalJob] = sharing(pictures(), state, CLASSES)
    for name, local in jobs.items():
        backbones = {"stripes": BackboneSection.model_validate(sections.get(name, STRIPES))}
        local.file = local.file.model_copy(update={"backbones": backbones})
    return jobs


def error(jobs: dict[str, LocalJob], variant: str) -> float:
    """Mean distance of weights from the exact ones under label shift, over that of weights of 1."""
    rows = pictures()
    train, test = (
        priors([np.bincount(y, minlength=2) for y in ys])
        for ys in zip(*((rows[c].y_train, rows[c].y_test) for c in NAMES), strict=True)
    )
    off, far = 0.0, 0.0
    for i, name in enumerate(NAMES):
        mine = test[i : i + 1] if variant == "own" else test
        want = label_ratios(mine, train[i])[rows[name].y_train] / len(mine)
        off += float(np.abs(weights(jobs, variant)[name] - want).mean())
        far += float(np.abs(1 - want).mean())
    return off / far


@pytest.mark.parametrize("scope", ["all", "own"])
def test_ratios_on_features_are_nearer_to_the_truth(tmp_path: Path, scope: str) -> None:
    """By a tenth at least where the backbone tells classes apart; features are shared, and pixels are trained on."""
    jobs = clients(tmp_path / "features")
    done = run(job(BACKBONE + PAPER, scope=scope), jobs)
    assert isinstance(done.left, NetworkModel)
    assert done.left.network.num_columns == 144
    plain = clients(tmp_path / "pixels")
    run(job(PAPER, scope=scope), plain)
    assert error(jobs, scope) < 0.9 * error(plain, scope)
    told = {c["shared"] for c in finding(done)["clients"]}
    assert told == ({"75 unlabelled points, each as 2 features"} if scope == "all" else {"nothing"})
    if scope == "all":
        assert "225 unlabelled points of 3 clients were pooled, each as 2 features" in notes(done)


def test_without_a_point_to_share_the_job_says_so(tmp_path: Path) -> None:
    """Clients without test rows give none: the error says whose are lacking, and what to give."""
    rows = {name: Rows(r.x_train, r.y_train, r.x_test[:0], r.y_test[:0]) for name, r in pictures().items()}
    with pytest.raises(DataError, match=r"nobody gives unlabelled points .*, of ant, bee, cat: .* give"):
        run(job(PAPER), sharing(rows, tmp_path, CLASSES))


def test_what_is_shared_is_what_the_map_makes_of_test_rows(tmp_path: Path) -> None:
    """A sample has the features' columns; with a projection fewer; the policy's cap holds."""
    jobs = clients(tmp_path)
    run(job(CONVOLUTIONS, rounds=1), jobs)
    local = jobs["ant"]
    policy = local.file.policy.model_copy(update={"max_sample_points": 9})
    local.file = local.file.model_copy(update={"policy": policy})
    for features, num_columns in (
        (PLAIN_COLUMNS, 144),
        (RatioFeatures(RatioInput.COLUMNS, "", (), 255.0, 5, 1), 5),
        (RatioFeatures(RatioInput.CONVOLUTIONS, "", (1, 12, 12), 255.0, 0, 1), 288),
        (RatioFeatures(RatioInput.BACKBONE, "stripes", (1, 12, 12), 255.0, 0, 1), 2),
        (RatioFeatures(RatioInput.BACKBONE, "stripes", (1, 12, 12), 255.0, 1, 1), 1),
    ):
        found = steps.share_sample(local, ShareSampleRequest(num_points=50, seed=1, features=features)).points
        assert found.shape == (9, num_columns)


def test_features_pass_through_the_backbone_once(tmp_path: Path) -> None:
    """A second job takes them from the disk, where they are kept by content; the ratios are the same bits."""
    found = []
    for i in range(2):
        jobs = clients(tmp_path)
        before = Stripes.calls
        run(job(BACKBONE, rounds=1), jobs)
        found.append(weights(jobs, "mixture"))
        assert (Stripes.calls > before) == (i == 0)
    for name in NAMES:
        assert np.array_equal(found[0][name], found[1][name])


def test_a_client_without_the_backbone_refuses(tmp_path: Path) -> None:
    """It says which are allowed, and which key to correct; nothing was sent."""
    jobs = clients(tmp_path)
    jobs["bee"].file = jobs["bee"].file.model_copy(update={"backbones": {}})
    with pytest.raises(JobError) as caught:
        run(job(BACKBONE), jobs)
    assert "bee: " in str(caught.value)
    assert "backbone 'stripes' is not allowed here (allowed: none)" in str(caught.value)
    assert "correct method.ratios.backbone in the job" in str(caught.value)


def test_backbones_that_differ_are_refused(tmp_path: Path) -> None:
    """Points of one client would mean nothing to another one."""
    jobs = clients(tmp_path, bee={**STRIPES, "mean": [0.4]})
    with pytest.raises(JobError, match=r"backbones 'stripes' differ .*\[backbones.stripes\]"):
        run(job(BACKBONE), jobs)


def test_the_backbone_of_most_stays_where_a_quorum_is_enough(tmp_path: Path) -> None:
    """One client of three with another backbone is left out by name, and the others go on."""
    jobs = clients(tmp_path, bee={**STRIPES, "mean": [0.4]})
    asked = job(BACKBONE, rounds=1)
    done = run(asked.model_copy(update={"cohort": asked.cohort.model_copy(update={"preflight": "quorum"})}), jobs)
    assert "bee is left out of this job: INVALID_REPLY: the clients' backbones 'stripes' differ" in notes(done)


@pytest.mark.parametrize(
    ("ratios", "text"),
    [
        ('features = "convolutions"\nimage = [1, 12, 13]', r"is \[1, 12, 13\], 156 pixels, but a row has 144 columns"),
        (f"{CONVOLUTIONS}pixel_max = 1.0", "columns are not pixels from 0 to 1; set method.ratios.pixel_max"),
        ("num_features = 144", "num_features is 144, but there are only 144"),
        ('features = "backbone"\nbackbone = "stripes"', "backbone 'stripes' cannot take these rows"),
    ],
)
def test_rows_that_do_not_fit_the_map_are_refused(tmp_path: Path, ratios: str, text: str) -> None:
    """Before anything is shared, with the key to correct."""
    with pytest.raises(JobError, match=text):
        run(job(ratios), clients(tmp_path))


@pytest.mark.parametrize(
    ("ratios", "text"),
    [
        ('source = "labels"\nnum_features = 3', 'num_features: belongs to source = "matching"'),
        ('features = "backbone"', "needs backbone, the name of an extractor"),
        ('backbone = "stripes"', 'backbone: belongs to source = "matching", features = "backbone"'),
        ('model = "cnn"\nimage = [1, 12, 12]\nnum_features = 4', "takes images, not their features or components"),
        ('model = "cnn"\nimage = [1, 12, 12]\nnum_components = 4', "takes images, not their features or components"),
        ('features = "convolutions"', r"image must be \[channels, height, width\]"),
        ('features = "convolutions"\nimage = [1, 6, 24]', "a side of fewer than 7 pixels"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(ratios: str, text: str) -> None:
    """With what to do."""
    with pytest.raises(ConfigError, match=text):
        job(ratios)


def test_a_job_on_a_backbone_needs_no_second_map(tmp_path: Path) -> None:
    """The columns are features already."""
    with pytest.raises(JobError, match=r"those of data\.backbone 'stripes' already"):
        run(job(BACKBONE, data='backbone = "stripes"'), clients(tmp_path))


@pytest.mark.parametrize("round_num", [1, 3], ids=["after-preparation", "after-a-round"])
def test_clients_that_lost_their_ratios_find_them_again(tmp_path: Path, round_num: int) -> None:
    """Coordinator and all clients begin anew: the rows are weighed again before anything is computed on them."""
    rows = regression_rows({"ant": 40, "bee": 50, "cat": 60}, shift=2.0)
    job = make_job("reweight", compare=False, rounds=4, tolerance=1e-14)
    undisturbed = bench(rows, tmp_path / "calm").run(job)
    killed = bench(rows, tmp_path / "killed").run(job, stop_before=round_num)
    resumed = bench(rows, tmp_path / "forgot").run(job, resumed=killed.journal.last)
    assert resumed.weights.tobytes() == undisturbed.weights.tobytes()
    assert "ant, bee, cat: the density ratios were lost, and are found again" in resumed.notes
