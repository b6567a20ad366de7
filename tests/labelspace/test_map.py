"""Maps and tables of neighbours: the same as the label space says, for every way to store it."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from labelemb import LabelSpace
from labelemb.lab.cli import main
from labelemb.labelspace import map as label_map_module
from labelemb.labelspace.map import label_map
from labelemb.labelspace.neighbors import neighbor_table
from tests.helpers.report_folders import similar_labels


def dense() -> LabelSpace:
    return LabelSpace.from_matrix(torch.randn(30, 30, generator=torch.Generator().manual_seed(0)), kind="logit")


def factors() -> LabelSpace:
    generator = torch.Generator().manual_seed(1)
    A, B = torch.randn(30, 3, generator=generator), torch.randn(3, 30, generator=generator)
    return LabelSpace.from_factors(A, B, specials=["3", "7"])


def top_k() -> LabelSpace:
    indices = (torch.arange(30)[:, None] + torch.arange(4)) % 30
    return LabelSpace.from_top_k(indices, torch.tensor([0.6, 0.1, 0.1, 0.0]).repeat(30, 1))


def tied() -> LabelSpace:
    """Rows of few different values, so that many labels are equally near."""
    logits = torch.randint(3, (30, 30), generator=torch.Generator().manual_seed(2)).float()
    return LabelSpace.from_matrix(logits, kind="logit", specials=["3"])


def nearly_tied() -> LabelSpace:
    """Logits so low that their probabilities are all 0, and differ in rank alone."""
    logits = -200.0 - torch.arange(30).float().repeat(30, 1)
    return LabelSpace.from_matrix(logits.fill_diagonal_(0.0), kind="logit")


def tied_factors() -> LabelSpace:
    generator = torch.Generator().manual_seed(3)
    A, B = (torch.randint(-1, 2, shape, generator=generator).float() for shape in ((30, 2), (2, 30)))
    return LabelSpace.from_factors(A, B)


def tied_top_k() -> LabelSpace:
    indices = (torch.arange(30)[:, None] + torch.arange(8)) % 30
    return LabelSpace.from_top_k(indices.flip(1), torch.full((30, 8), 0.1))


@pytest.mark.parametrize("make", [dense, factors, top_k, tied, nearly_tied, tied_factors, tied_top_k])
def test_the_table_is_nearest_for_every_label(make: Callable[[], LabelSpace]) -> None:
    space = make()
    table = neighbor_table(space, 5)
    for label in range(space.num_labels):
        expected = space.nearest(label, k=5)
        found = [space.names[index] for index in table.indices[label] if index >= 0]
        assert found == [neighbor.name for neighbor in expected]
        values = table.similarities[label][: len(found)]
        assert values == pytest.approx([neighbor.similarity for neighbor in expected], rel=1e-5)
        assert table.own[label] == pytest.approx(space.similarity(label, label), rel=1e-5)


def two_families(labels: int) -> LabelSpace:
    """Even labels resemble even ones, odd labels odd ones."""
    family = torch.arange(labels) % 2
    noise = 0.1 * torch.randn(labels, labels, generator=torch.Generator().manual_seed(0))
    return LabelSpace.from_matrix(2.0 * (family[:, None] == family[None]) + noise, kind="logit")


def apart(positions: np.ndarray) -> bool:
    """Whether a point of either family lies nearer to its own family's middle than to the other's."""
    middles = [positions[family::2].mean(axis=0) for family in (0, 1)]
    own = [np.linalg.norm(positions[family::2] - middles[family], axis=1) for family in (0, 1)]
    other = [np.linalg.norm(positions[family::2] - middles[1 - family], axis=1) for family in (0, 1)]
    return all((near < far).all() for near, far in zip(own, other, strict=True))


@pytest.mark.parametrize("most_whole_rows", [2000, 10])
def test_families_of_labels_lie_apart(monkeypatch: pytest.MonkeyPatch, most_whole_rows: int) -> None:
    monkeypatch.setattr(label_map_module, "MOST_WHOLE_ROWS", most_whole_rows)
    found = label_map(two_families(40))
    assert found.positions.shape == (40, 2)
    assert np.abs(found.positions).max() == pytest.approx(1)
    assert 0 < found.share <= 1
    assert apart(found.positions)


@pytest.mark.parametrize("most_whole_rows", [2000, 10])
def test_the_same_space_gives_the_same_map(monkeypatch: pytest.MonkeyPatch, most_whole_rows: int) -> None:
    monkeypatch.setattr(label_map_module, "MOST_WHOLE_ROWS", most_whole_rows)
    np.testing.assert_array_equal(label_map(dense()).positions, label_map(dense()).positions)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_factors_are_mapped_by_the_distances_of_their_rows(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    monkeypatch.setattr(label_map_module, "MOST_WHOLE_ROWS", 10)
    generator = torch.Generator().manual_seed(0)
    A, B = torch.randn(30, rank, generator=generator), torch.randn(rank, 30, generator=generator)
    found = label_map(LabelSpace.from_factors(A, B))
    rows = (A @ B).double().numpy()
    distances = [np.linalg.norm(x[:, None] - x[None], axis=-1) for x in (rows, found.positions)]
    if rank <= 2:  # nothing is lost in the plane
        np.testing.assert_allclose(distances[1] / distances[1].max(), distances[0] / distances[0].max(), atol=1e-5)
        assert found.share == pytest.approx(1)
    else:
        assert found.share < 1


def test_the_share_of_tiny_differences_is_that_of_large_ones() -> None:
    pattern = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    large, tiny, none = (label_map(LabelSpace.from_matrix(size * pattern, kind="logit")) for size in (1e-3, 3e-7, 0.0))
    assert tiny.share == pytest.approx(large.share, abs=0.1)
    assert none.share == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("labels", [1, 2, 3])
def test_few_labels_have_a_map(labels: int) -> None:
    positions = label_map(LabelSpace.from_matrix(torch.eye(labels), kind="logit")).positions
    assert positions.shape == (labels, 2)
    assert np.isfinite(positions).all()


@pytest.mark.parametrize("name", ["labels.png", "labels.svg"])
def test_the_verb_draws_the_map(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    similar_labels().save(tmp_path / "pets.safetensors")
    assert main(["map", str(tmp_path / "pets.safetensors"), "--out", str(tmp_path / name)]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {tmp_path / name}")
    begin = b"\x89PNG" if name.endswith("png") else b"<?xml"
    assert (tmp_path / name).read_bytes().startswith(begin)


def test_the_verb_prints_positions_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = similar_labels()
    space.save(tmp_path / "pets.safetensors")
    assert main(["map", str(tmp_path / "pets.safetensors"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed["labels"]) == list(space.names)
    np.testing.assert_allclose(list(printed["labels"].values()), label_map(space).positions, atol=1e-5)


def test_an_unknown_picture_format_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    similar_labels().save(tmp_path / "pets.safetensors")
    assert main(["map", str(tmp_path / "pets.safetensors"), "--out", str(tmp_path / "map.xyz")]) == 2
    assert "xyz" in capsys.readouterr().err


def test_a_map_that_would_take_too_long_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_map_module, "MOST_WHOLE_ROWS", 10)
    monkeypatch.setattr(label_map_module, "MOST_LABELS", 15)
    dense().save(tmp_path / "many.safetensors")
    assert main(["map", str(tmp_path / "many.safetensors")]) == 2
    assert capsys.readouterr().err == ("labelemb: a map of 30 labels takes too long (at most 15): use select() first\n")
    assert not (tmp_path / "map.png").exists()


def test_a_map_without_scipy_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_map_module, "MOST_WHOLE_ROWS", 10)
    import_module = importlib.import_module

    def without_scipy(name: str, package: str | None = None) -> ModuleType:
        if name.startswith("scipy"):
            raise ModuleNotFoundError("No module named 'scipy'", name="scipy")
        return import_module(name, package)

    monkeypatch.setattr(importlib, "import_module", without_scipy)
    dense().save(tmp_path / "many.safetensors")
    assert main(["map", str(tmp_path / "many.safetensors")]) == 2
    needs = "a map of this many labels needs the package scipy: pip install 'labelemb[plot]'"
    assert capsys.readouterr().err == f"labelemb: {needs}\n"


def test_the_heatmap_is_printed_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = similar_labels()
    space.save(tmp_path / "pets.safetensors")
    assert main(["heatmap", str(tmp_path / "pets.safetensors"), "--labels", "dog,cat", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["labels"] == ["dog", "cat"]
    np.testing.assert_allclose(printed["matrix"], space.matrix(["dog", "cat"]), atol=1e-6)
    assert [file.name for file in tmp_path.iterdir()] == ["pets.safetensors"]


@pytest.mark.parametrize("verb", ["heatmap", "map"])
def test_pictures_and_json_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    similar_labels().save(tmp_path / "pets.safetensors")
    picture = tmp_path / "picture.svg"
    assert main([verb, str(tmp_path / "pets.safetensors"), "--json", "-o", str(picture)]) == 0
    assert "labels" in json.loads(capsys.readouterr().out)
    assert picture.read_bytes().startswith(b"<?xml")
