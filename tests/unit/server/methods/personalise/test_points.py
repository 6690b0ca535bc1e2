"""Jobs whose embeddings are by the kernel itself, between rows that leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from kernfed.arrays import Floats
from kernfed.errors import ConfigError
from kernfed.federation.messages.base import Kind
from kernfed.methods.personalise.embeddings import target_terms
from kernfed.methods.personalise.settings import PersonaliseSettings
from kernfed_client.methods.personalise.state import personal
from kernfed_testing.methods.personalise import NAMES, clients, concept_rows, finding, notes, personal_job, run, without

OPEN: dict[str, Any] = {"allow": list(Kind)}


def job(**more: Any) -> Any:
    wanted: dict[str, Any] = {"view": "x", "weights": "exact", "embedding_points": 100, "lengthscales": [1.5]}
    return personal_job(embedding_kernel="laplace", **{**wanted, **more})


def laplace(a: Floats, b: Floats) -> Floats:
    apart: Floats = np.sqrt(np.square(a[:, None] - b[None]).sum(axis=2))
    return np.exp(-apart / 1.5)


def test_terms_are_those_of_all_points_in_one_place(tmp_path: Path) -> None:
    """Equations (24), divided by the rows that its print leaves out, and (25), from the kernel of all pairs of rows."""
    rows = concept_rows()
    jobs = clients(rows, tmp_path, (), **dict.fromkeys(NAMES, OPEN))
    done = run(job(), jobs)
    assert "99 different rows of 6 clients, without targets, are with all clients" in notes(done)
    x = {name: rows[name].x_train for name in sorted(rows)}
    everything = np.concatenate(list(x.values()))
    z = {name: (one - everything.mean(axis=0)) / everything.std(axis=0) for name, one in x.items()}
    state = personal(jobs["ant"])
    terms = target_terms(state.embedded, np.asarray(state.needed_shared().means, np.float64))
    own, n = z["ant"], len(z["ant"])
    inside = laplace(own, own)
    pairs = inside.diagonal()[:, None] - 2 * inside + inside.diagonal()[None]
    assert terms.trace == pytest.approx(pairs.sum() / (2 * n * (n - 1)), rel=1e-5)
    for k, other in enumerate(z.values()):
        across = laplace(own, other)
        offset = across.mean(axis=1) - inside.mean(axis=1)
        q = np.square(offset).sum() / (n - 1) - n / (n - 1) * (across.mean() - inside.mean()) ** 2
        assert terms.spread[k] == pytest.approx(q, rel=1e-4, abs=1e-9)
        mmd = laplace(other, other).mean() - 2 * across.mean() + inside.mean()
        assert terms.distance[k] ** 2 == pytest.approx(mmd, rel=1e-4, abs=1e-9)
    assert finding(done)["weights"] == "exact"


def test_a_client_that_gives_no_row_is_embedded_by_the_others_points(tmp_path: Path) -> None:
    """Its policy decides; where none gives a row the job ends before round 1, with the key and the kind."""
    jobs = clients(concept_rows(), tmp_path, (), **dict.fromkeys(NAMES[1:], OPEN))
    jobs["ant"].file = jobs["ant"].file.model_copy(
        update={"policy": jobs["ant"].file.policy.model_copy(update=without(Kind.UNLABELLED_SAMPLE))}
    )
    done = run(job(embedding_points=4), jobs)
    assert "20 different rows of 5 clients" in notes(done)
    assert "ant gave none" in notes(done)
    assert personal(jobs["ant"]).embedded.shape == (14, 20)
    with pytest.raises(ConfigError, match=r"method\.embedding_points needs clients whose policy\.allow lists"):
        run(
            job(),
            clients(concept_rows(), tmp_path / "closed", (), **dict.fromkeys(NAMES, without(Kind.UNLABELLED_SAMPLE))),
        )


@pytest.mark.parametrize(
    "wrong",
    [{"view": "xy"}, {"keep_shared": True, "weights": "crossfit"}, {"density": True}, {"num_frequencies": 60}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_points_are_refused_where_they_make_no_sense(wrong: dict[str, Any]) -> None:
    """With a density, which is a sum of cosines; with targets; with clients that join later; and with noise."""
    with pytest.raises(ConfigError, match="embedding_points"):
        personal_job(**{"view": "x", "embedding_kernel": "gaussian", "embedding_points": 5, **wrong})
    noisy = {"weights": "exact", "trainer": "newton", "scale_columns": False, "noise": {"epsilon": 1.0, "delta": 1e-5}}
    with pytest.raises(ValidationError, match="by which rows leave as they are"):
        PersonaliseSettings.model_validate({"name": "personalise", "view": "x", "embedding_points": 5, **noisy})
