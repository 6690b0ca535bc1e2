"""A client's part in online jobs: live streams, targets that come late, classes, answers that are asked for again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernfed.arrays import Floats
from kernfed.errors import DivergedError, InvalidTensorError, JobStateMissingError, NumericalError, PolicyError
from kernfed.federation.messages.data import (
    ColumnRange,
    DataSchema,
    DescribeDataRequest,
    LearningTask,
    MissingRule,
    StandardiseRequest,
)
from kernfed.jobs.client_file import ClientFile
from kernfed.methods.online.dictionary import (
    Dictionary,
    draw,
    features,
    fingerprint,
    kernel_gradients,
    predictions,
)
from kernfed.methods.online.learner import Learner, Mixing
from kernfed.methods.online.losses import Loss
from kernfed.methods.online.messages import (
    DrawDictionaryRequest,
    OnlineStep,
    OnlineStepRequest,
    OpenStreamRequest,
    StreamMetrics,
    StreamMetricsRequest,
)
from kernfed.methods.online.stream_step import StreamTold
from kernfed_client.data.local_job import LocalJob
from kernfed_client.methods.online.learning import OnlineClient
from kernfed_client.steps.registry import STEPS
from kernfed_client.streams.notices import NOTICES

DICTIONARY = Dictionary((0.5, 1.0, 2.0), 4, 2, 7)
EVERY = np.arange(3, dtype=np.uint8)


class Site:
    """One client with history, and a folder that grows."""

    def __init__(
        self,
        folder: Path,
        *,
        task: LearningTask = LearningTask.REGRESSION,
        min_rows: int = 1,
        ranges: tuple[ColumnRange, ...] = (),
    ) -> None:
        self.folder, self.task, self.ranges = folder, task, ranges
        (folder / "rows").mkdir(parents=True)
        target = "no" if task is LearningTask.BINARY else "0.5"
        (folder / "history.csv").write_text(f"a,b,y\n1,1,{target}\n0,1,{'yes' if target == 'no' else '1'}\n")
        self.file = ClientFile.model_validate(
            {
                "state": folder / "state",
                "policy": {"min_rows": min_rows},
                "datasets": {
                    "d": {
                        "train": {"path": folder / "history.csv"},
                        "stream": {"source": "follow", "path": folder / "rows", "key": "id"},
                    }
                },
            }
        )
        self.path = folder / "rows" / "1.csv"
        self.path.write_text("id,a,b,y\n")
        self.restart()

    def restart(self) -> None:
        """A new process."""
        classes = ("no", "yes") if self.task is LearningTask.BINARY else ()
        self.job = LocalJob("j", "site", self.file, folder=self.folder / "job")
        schema = DataSchema(
            task=self.task,
            target="y",
            features=("a", "b"),
            classes=classes,
            missing=MissingRule.REFUSE,
            test_fraction=0.0,
            seed=1,
            ranges=self.ranges,
        )
        STEPS[DescribeDataRequest](self.job, DescribeDataRequest(dataset="d", schema=schema))
        STEPS[StandardiseRequest](
            self.job, StandardiseRequest(classes=classes, mean=np.zeros(2), deviation=np.ones(2), median_distance=False)
        )
        loss = Loss.LOGISTIC if classes else Loss.SQUARED
        opened = STEPS[OpenStreamRequest](
            self.job,
            OpenStreamRequest(norm=2.0, target_low=0.0, target_span=1.0, loss=loss, seed=1, outlier_spans=5.0),
        )
        assert opened.live  # type: ignore[attr-defined]  # the reply to opening
        draw = DrawDictionaryRequest(
            dictionary=DICTIONARY,
            mixing=Mixing.ADAPTIVE,
            weight_learning_rate=0.0,
            bin_size=2,
            exploration=1.0,
            regularisation=0.0,
        )
        drawn = STEPS[DrawDictionaryRequest](self.job, draw)
        assert drawn.fingerprint == fingerprint(DICTIONARY)  # type: ignore[attr-defined]  # the reply to drawing

    @property
    def client(self) -> OnlineClient:
        """What the job holds of it."""
        found: OnlineClient = self.job.memo("online client", lambda: pytest.fail("no stream is open"))
        return found

    def tell(self, *lines: str) -> None:
        with self.path.open("a") as file:
            file.write("".join(line + "\n" for line in lines))

    def step(
        self,
        round_num: int,
        theta: float = 0.1,
        *,
        base: int = -1,
        batch_rows: int = 1,
        parameters: Floats | None = None,
    ) -> OnlineStep:
        kernels = EVERY if base < 0 else EVERY[:0]
        parameters = np.full((len(kernels), 8), theta) if parameters is None else parameters
        request = OnlineStepRequest(
            round_num=round_num,
            base=base,
            num_features=8,
            kernels=kernels,
            theta=parameters,
            batch_rows=batch_rows,
            wait_s=0.0,
        )
        reply = STEPS[OnlineStepRequest](self.job, request)
        assert isinstance(reply, OnlineStep)
        return reply

    def metrics(self) -> StreamMetrics:
        reply = STEPS[StreamMetricsRequest](self.job, StreamMetricsRequest())
        assert isinstance(reply, StreamMetrics)
        return reply


def test_no_row_is_an_answer_of_its_own(tmp_path: Path) -> None:
    """An empty stream is told without waiting, and the same round may be asked again when a row is there."""
    site = Site(tmp_path)
    assert site.step(1).num_samples == 0
    site.tell("r1,1,0,0.4")
    reply = site.step(1, base=1)
    assert reply.num_samples == 1
    assert reply.gradient.shape == (2, 8)
    assert site.metrics().sums.num_rows == 1


def test_a_late_target_is_measured_by_the_prediction_made_before(tmp_path: Path) -> None:
    """A row is predicted when it comes; its target is set against that, though parameters have moved since."""
    site = Site(tmp_path)
    site.tell("r1,1,0,")
    first = site.step(1, theta=0.0)
    assert (first.num_samples, first.num_waiting) == (0, 1)
    site.tell("r1,,,0.4")
    second = site.step(2, theta=5.0)
    assert (second.num_samples, second.num_waiting) == (1, 0)
    assert site.metrics().sums.squared_error == pytest.approx(0.16)  # of the prediction 0 by parameters 0


def test_a_target_without_its_row_is_left_out(tmp_path: Path) -> None:
    """It is counted as skipped, and the rows around it are learned."""
    site = Site(tmp_path)
    site.tell("r9,,,0.4", "r1,1,0,0.4")
    reply = site.step(1)
    assert (reply.num_samples, reply.num_skipped) == (1, 1)


def test_targets_alone_are_told_by_kind_and_place(tmp_path: Path) -> None:
    """One that comes twice, and one without its row; the counts travel, the lines stay in the client's log."""
    site = Site(tmp_path)
    site.tell("r1,1,0,0.4", "r1,,,0.4", "r9,,,0.4", "r2,x,0,0.4", "r3,1,0,0.4")
    site.step(1)
    reply = site.step(2)
    assert (reply.num_samples, reply.num_skipped) == (1, 3)
    assert reply.told == (StreamTold(twice=1, no_key=1, text=1),)
    told = NOTICES.text([("d", tmp_path / "rows")])
    assert "1 a target that came twice (first: 1.csv, line 3)" in told
    assert "1 a target, but no row with its key waits (first: 1.csv, line 4)" in told
    site.restart()
    assert site.step(2).told == reply.told


@pytest.mark.parametrize("row", ["r1,1,0,1e200", "r1,1,0,-1e308", "r1,1e308,0,0.4"])
def test_a_number_beyond_use_is_a_faulty_value(tmp_path: Path, row: str) -> None:
    """What no table may hold is counted as a fault of the row, and the stream goes past it."""
    site = Site(tmp_path)
    site.tell(row, "r2,0,1,0.7")
    reply = site.step(1)
    assert (reply.num_samples, reply.num_far, reply.num_skipped, reply.num_waiting) == (1, 0, 1, 0)


@pytest.mark.parametrize("row", ["r1,1,0,1e30", "r1,1e99,0,0.4", "r1,1,0,9999", "r1,400,1,"])
def test_an_absurd_number_is_left_out_and_counted(tmp_path: Path, row: str) -> None:
    """A row more than five spans beyond the agreed ranges teaches nothing, and the stream goes past it."""
    site = Site(tmp_path)
    site.tell(row, "r2,0,1,0.7")
    reply = site.step(1)
    assert (reply.num_samples, reply.num_far, reply.num_skipped, reply.num_waiting) == (1, 1, 0, 0)
    alone = Site(tmp_path / "alone")
    alone.tell("r2,0,1,0.7")
    assert alone.step(1).gradient.tobytes() == reply.gradient.tobytes()
    site.restart()
    assert site.client.state.left_out.far == 1


@pytest.mark.parametrize("row", ["r1,7,0,0.4", "r1,1,0,4.5", "r1,-7,1,"])
def test_a_row_outside_of_the_jobs_ranges_is_left_out_and_counted(tmp_path: Path, row: str) -> None:
    """Beside the agreed ranges `data.ranges` hold for each row of a stream, also one whose target comes later."""
    limits = (ColumnRange(column="a", low=-5.0, high=5.0), ColumnRange(column="y", low=0.0, high=4.0))
    site = Site(tmp_path, ranges=limits)
    site.tell(row, "r2,0,1,0.7")
    reply = site.step(1)
    assert (reply.num_samples, reply.num_far, reply.num_skipped, reply.num_waiting) == (1, 1, 0, 0)
    loose = Site(tmp_path / "loose")
    loose.tell(row, "r2,0,1,0.7")
    assert loose.step(1).num_far == 0


def test_a_second_row_with_a_waiting_key_is_counted(tmp_path: Path) -> None:
    """Its target could not be told from that of the first, which goes on waiting."""
    site = Site(tmp_path)
    site.tell("r1,1,0,", "r1,0,1,", "r1,,,0.4")
    reply = site.step(1)
    assert (reply.num_samples, reply.num_repeated, reply.num_skipped, reply.num_waiting) == (1, 1, 0, 0)


def test_rows_whose_step_fails_twice_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first failure is told; when the rows fail again they are counted, and the next ones are learned."""
    site = Site(tmp_path)
    site.tell("r1,1,0,0.4", "r2,0,1,0.7")

    def failing(*_: object, **__: object) -> None:
        raise OverflowError("as from a row that no rule foresaw")

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "learn", failing)
        with pytest.raises(NumericalError, match="1 rows of the stream cannot be learned"):
            site.step(1)
        reply = site.step(1)
        assert (reply.num_samples, reply.num_failed) == (0, 1)
    reply = site.step(1)
    assert (reply.num_samples, reply.num_failed) == (1, 1)


def test_parameters_that_ran_away_are_told_as_such(tmp_path: Path) -> None:
    """No row is at fault then: the stream stays where it is, and the error names the rates."""
    site = Site(tmp_path)
    site.tell("r1,1,0,0.4")
    for round_num in (1, 2, 3):
        with pytest.raises(DivergedError, match=r"method\.learning_rate"):
            site.step(round_num, theta=1e300)
    assert site.step(4).num_samples == 1


def test_rows_that_wait_survive_a_crash(tmp_path: Path) -> None:
    """What waits for its target is kept with the state, and where reading was as well."""
    site = Site(tmp_path)
    site.tell("r1,1,0,", "r2,0,1,0.7")
    assert site.step(1).num_waiting == 1
    site.restart()
    site.tell("r1,,,0.4")
    reply = site.step(2)
    assert (reply.num_samples, reply.num_waiting) == (1, 0)
    assert site.metrics().sums.num_rows == 2


def test_a_task_that_is_asked_again_gets_the_same_answer(tmp_path: Path) -> None:
    """Before and after a restart, and without another row being taken."""
    site = Site(tmp_path)
    site.tell("r1,1,0,0.4", "r2,0,1,0.7")
    first = site.step(1)
    again = site.step(1)
    site.restart()
    after = site.step(1)
    for reply in (again, after):
        assert reply.gradient.tobytes() == first.gradient.tobytes()
        assert reply.kernels.tolist() == first.kernels.tolist()
    assert site.metrics().sums.num_rows == 1


def test_parameters_that_build_on_what_is_not_there_are_asked_for(tmp_path: Path) -> None:
    """A client that holds nothing, or something older, says so and takes no row."""
    site = Site(tmp_path)
    site.tell("r1,1,0,0.4", "r2,0,1,0.7")
    lacking = site.step(5, base=4)
    assert lacking.needs_whole
    assert lacking.num_samples == 0
    assert site.step(5).num_samples == 1
    assert site.step(6, base=5).num_samples == 1


def test_a_policy_keeps_rows_until_there_are_enough(tmp_path: Path) -> None:
    """With min_rows = 3 two rows are left in the stream; with the third all three are told of at once."""
    site = Site(tmp_path, min_rows=3)
    site.tell("r1,1,0,0.4", "r2,0.3,1,0.7")
    assert site.step(1).num_samples == 0
    site.tell("r3,0.6,0.2,0.2")
    assert site.step(1, base=1).num_samples == 3


def test_two_classes_are_learned_by_log_odds(tmp_path: Path) -> None:
    """Predictions are probabilities; accuracy and log-loss are tallied."""
    site = Site(tmp_path, task=LearningTask.BINARY)
    site.tell("r1,1,0,no", "r2,0,1,yes", "r3,1,0,maybe")
    first, second = site.step(1, theta=0.0), site.step(2, theta=0.0)
    assert first.num_samples + second.num_samples == 2
    sums = site.metrics().sums
    assert sums.log_loss == pytest.approx(2 * np.log(2.0))
    assert sums.squared_error == pytest.approx(0.5)


def test_parameters_at_which_most_rows_are_certain(tmp_path: Path) -> None:
    """Gradients of steep functions on two sides of a row differ by its features; a cautious client tells neither."""
    site = Site(tmp_path, task=LearningTask.BINARY)
    site.client.least_rows = 2
    rows, y = np.array([(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.3, 0.2)]), np.array([0.0, 1.0, 0.0, 1.0])
    site.tell(*[f"r{i},{a},{b},{'yes' if y[i] else 'no'}" for i, (a, b) in enumerate(rows.tolist())])
    z = features(rows / 2.0, draw(DICTIONARY))
    above, below = (
        np.tile(1e3 * np.linalg.lstsq(z[:, 0], [3.0, -3.0, 3.0, side], rcond=None)[0], (3, 1)) for side in (1.0, -1.0)
    )
    told = [
        kernel_gradients(z, predictions(z, t), y, t, np.zeros(1, np.int64), loss=Loss.LOGISTIC)[0]
        for t in (above, below)
    ]
    np.testing.assert_allclose(4 * (told[0] - told[1]), z[3, 0], atol=1e-9)
    for steep in (above, below):
        with pytest.raises(PolicyError, match="predicts most rows of a round with certainty"):
            site.step(1, batch_rows=4, parameters=steep)
    assert site.step(1, theta=0.1, batch_rows=4).num_samples == 4


def test_requests_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Kernels that there are not, features of another number, and a job that was not opened."""
    site = Site(tmp_path)
    wrong = np.array([7], dtype=np.uint8)
    with pytest.raises(InvalidTensorError, match="kernel 7 of 3"):
        STEPS[OnlineStepRequest](
            site.job,
            OnlineStepRequest(
                round_num=1, base=0, num_features=8, kernels=wrong, theta=np.zeros((1, 8)), batch_rows=1, wait_s=0.0
            ),
        )
    with pytest.raises(InvalidTensorError, match="6 features, want 8"):
        STEPS[OnlineStepRequest](
            site.job,
            OnlineStepRequest(
                round_num=1, base=-1, num_features=6, kernels=EVERY, theta=np.zeros((3, 6)), batch_rows=1, wait_s=0.0
            ),
        )
    fresh = LocalJob("k", "site", site.file, folder=tmp_path / "other")
    with pytest.raises(JobStateMissingError):
        STEPS[OnlineStepRequest](
            fresh,
            OnlineStepRequest(
                round_num=1, base=-1, num_features=8, kernels=EVERY, theta=np.zeros((3, 8)), batch_rows=1, wait_s=0.0
            ),
        )
