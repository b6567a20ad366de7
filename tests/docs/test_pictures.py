"""docs/pictures/make_pictures.py draws what the pages show, from data or from the labels of a finished run."""

import runpy
import sys
from pathlib import Path

import pytest
from PIL import Image

from labelemb import LabelSpace
from tests.helpers.pages import ROOT
from tests.helpers.tiny_data import write_mnist

PICTURES = ROOT / "docs" / "pictures"


def draw(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["make_pictures.py", *map(str, arguments)])
    runpy.run_path(str(PICTURES / "make_pictures.py"), run_name="__main__")


def test_a_training_gives_every_picture_in_light_and_dark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_mnist(tmp_path / "mnist", train=5060)  # the recipe holds 5,000 out
    draw(monkeypatch, "--data", data, "--epochs", 1, "--out", tmp_path)
    for name in ("soft-targets", "mnist-heatmap"):
        for kind, is_bright in (("light", True), ("dark", False)):
            corner = Image.open(tmp_path / f"{name}-{kind}.png").convert("L").getpixel((0, 0))
            assert (corner > 200) is is_bright


def test_the_labels_of_a_run_give_a_heatmap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LabelSpace.from_matrix([[0.8, 0.2], [0.3, 0.7]], ["cat", "dog"]).save(tmp_path / "labels.safetensors")
    draw(monkeypatch, "--labels", tmp_path / "labels.safetensors", "--name", "pets", "--out", tmp_path)
    assert {file.name for file in tmp_path.glob("*.png")} == {"pets-light.png", "pets-dark.png"}


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.png")), ids=lambda picture: picture.name)
def test_a_kept_picture_is_small(picture: Path) -> None:
    assert picture.stat().st_size < 250_000
