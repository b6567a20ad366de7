"""Exported models: small, complete, alone, and giving the run's answers."""

import dataclasses
import functools
import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from labelemb.lab.cli import main
from labelemb.lab.cli.command import build_parser
from labelemb.lab.data import TextInputs
from labelemb.lab.methods.method import parse_method
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.loop import train_run
from labelemb.lab.trained.export import job as export_module
from labelemb.lab.trained.export.formats import FORMATS, Answers, describe_model
from labelemb.lab.trained.export.job import Exported, export_run, format_of
from labelemb.lab.trained.export.portable import PortableTexts, PortableTokens, portable_model
from labelemb.lab.trained.model import TrainedModel
from labelemb.support.errors import UserError
from tests.helpers.pages import ROOT
from tests.helpers.quick_runs import quick_recipe, quick_run
from tests.helpers.text_models import color_run, write_colors
from tests.helpers.tiny_data import write_csv, write_for_recipe

pytest.importorskip("onnxruntime", reason="no onnxruntime: pip install 'labelemb[onnx]'")
pytest.importorskip("onnxscript", reason="no onnxscript: pip install 'labelemb[onnx]'")

PAGE = ROOT / "docs" / "export.md"
RUNS = {"images": "runs/digits/label-embedding/seed-0", "texts": "runs/intents/label-embedding/seed-0"}
"""As docs/export.md calls them."""
TEXTS = {"play a song of number": "music", "will it rain in": "weather", "book a table for": "food"}
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run on images and a run on texts."""
    folder = tmp_path_factory.mktemp("export")
    quick_run(folder / RUNS["images"])
    rows = [[f"{words} {number}", label] for words, label in TEXTS.items() for number in range(12)]
    data = write_csv(folder / "intents.csv", [["text", "label"], *rows])
    recipe = load_recipe("text-csv", ["train.epochs=2"])
    train_run(recipe, parse_method("label-embedding"), 0, data, folder / RUNS["texts"])
    return folder


@pytest.fixture(scope="module")
def exports(place: Path) -> Callable[[str, str], Exported]:
    """The model of a run in a format, exported once for all tests."""
    return functools.cache(lambda kind, name: export_run(place / RUNS[kind], name))


@pytest.fixture(params=[(kind, name) for kind in RUNS for name in FORMATS], ids="-".join)
def exported(
    request: pytest.FixtureRequest, place: Path, exports: Callable[[str, str], Exported]
) -> tuple[Path, Path, str]:
    """A run, its exported file, and the file's format."""
    kind, name = request.param
    return place / RUNS[kind], exports(kind, name).path, name


def texts_inside(file: Path, name: str) -> dict[str, Any]:
    if name == "torch":
        parts = {"labels.json": "", "preprocessing.json": "", "run.json": ""}
        torch.export.load(file, extra_files=parts)
    else:
        import onnxruntime

        parts = onnxruntime.InferenceSession(file).get_modelmeta().custom_metadata_map
    return {part: json.loads(text) for part, text in parts.items()}


@pytest.mark.parametrize("count", [1, 5, 300])
def test_a_batch_of_any_size_is_answered_as_the_run_answers(exported: tuple[Path, Path, str], count: int) -> None:
    run, file, name = exported
    trained = TrainedModel(run)
    model = portable_model(trained)
    inputs = model.draw(count, torch.Generator().manual_seed(count))
    found = FORMATS[name].load(file.read_bytes())(inputs)
    expected = trained.logits(model.as_examples(inputs)) / trained.temperature
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_labels_preprocessing_and_origin_are_inside(exported: tuple[Path, Path, str]) -> None:
    run, file, name = exported
    inside, trained = texts_inside(file, name), TrainedModel(run)
    assert inside["labels.json"] == trained.label_names
    assert inside["run.json"]["method"] == "label-embedding"
    if isinstance(trained.inputs, TextInputs):
        assert inside["preprocessing.json"]["vocabulary"] == trained.inputs.vocabulary
    else:
        assert inside["preprocessing.json"]["shape"] == ["batch", 1, 8, 8]


def test_no_path_of_the_machine_is_inside(exported: tuple[Path, Path, str]) -> None:
    _, file, _ = exported
    content = file.read_bytes()
    for folder in (str(Path(export_module.__file__).parent), str(Path(torch.__file__).parent), str(file.parent)):
        assert folder.encode() not in content


def test_the_torch_file_holds_nothing_pickled(exports: Callable[[str, str], Exported]) -> None:
    content = exports("images", "torch").path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            assert archive.read(name)[:1] != b"\x80", name
            if name.endswith("_config.json"):
                assert b'"use_pickle": true' not in archive.read(name)
        assert not any(archive.read(name) for name in archive.namelist() if "sample_inputs" in name)


@pytest.mark.parametrize("name", FORMATS)
def test_it_has_the_size_of_a_model_trained_with_cross_entropy(
    exports: Callable[[str, str], Exported], tmp_path: Path, name: str
) -> None:
    quick_run(tmp_path / "plain", method="plain")
    plain, ours = export_run(tmp_path / "plain", name), exports("images", name)
    assert ours.parameters == plain.parameters == plain.trained_parameters < ours.trained_parameters
    assert abs(ours.bytes - plain.bytes) < 100  # the method's name is inside


def test_convolutions_and_batch_norms_are_exported(tmp_path: Path) -> None:
    data = write_for_recipe("cifar10-small", tmp_path)
    changes = ["train.epochs=1", "body.width=0.05", "train.batch_size=50"]
    train_run(load_recipe("cifar10-small", changes), parse_method("plain"), 0, data, tmp_path / "run")
    for name in FORMATS:
        assert export_run(tmp_path / "run", name).difference < 1e-4


def test_a_model_trained_in_half_precision_is_exported_in_single(tmp_path: Path) -> None:
    quick_run(tmp_path / "run", quick_recipe("train.precision=bf16-true", "train.epochs=1"))
    assert export_run(tmp_path / "run", "torch").difference < 1e-4


def test_a_file_with_other_answers_is_not_written(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(content: bytes) -> Answers:
        answers = FORMATS["torch"].load(content)
        return lambda inputs: answers(inputs) + (0.01 if len(inputs) == 7 else 0.0)

    format_ = FORMATS["torch"]
    changed = dataclasses.replace(format_, load=wrong)
    monkeypatch.setattr(export_module, "FORMATS", {"torch": changed})
    with pytest.raises(UserError, match=r"a batch of 7 differs by 0\.01"):
        export_run(place / RUNS["images"], "torch", tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("file", "name"), [("model.onnx", "onnx"), ("MODEL.PT2", "torch"), ("model", "torch")])
def test_without_a_format_the_ending_of_the_file_says_which(place: Path, tmp_path: Path, file: str, name: str) -> None:
    assert main(["export", str(place / RUNS["images"]), "-o", str(tmp_path / file)]) == 0
    answers = FORMATS[name].load((tmp_path / file).read_bytes())
    assert len(answers(torch.zeros(3, 1, 8, 8, dtype=torch.uint8))) == 3


@pytest.mark.parametrize(("file", "name"), [("model.onnx", "torch"), ("model.pt2", "onnx")])
def test_a_format_that_is_not_that_of_the_ending_is_refused(
    place: Path, tmp_path: Path, capsys: Capture, file: str, name: str
) -> None:
    error = failure(capsys, place / RUNS["images"], "--format", name, "-o", tmp_path / file)
    assert f"--format {name} writes {FORMATS[name].suffix}" in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", ["model.safetensors", "model.pth", "model.v2"])
def test_an_ending_of_no_format_is_refused(place: Path, tmp_path: Path, capsys: Capture, file: str) -> None:
    error = failure(capsys, place / RUNS["images"], "-o", tmp_path / file)
    assert f"has the ending {Path(file).suffix}, which is no format: write .pt2 or .onnx" in error
    assert list(tmp_path.iterdir()) == []


def test_an_edited_card_is_kept_beside_a_new_model(place: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "model-card.md").write_text("my notes")
    assert main(["export", str(place / RUNS["images"]), "-o", str(tmp_path / "model.pt2")]) == 0
    captured = capsys.readouterr()
    assert f"kept {tmp_path / 'model-card.md'}, which was edited" in captured.out
    assert captured.err == ""
    assert (tmp_path / "model-card.md").read_text() == "my notes"
    assert (tmp_path / "model.pt2").is_file()


def failure(capsys: Capture, *arguments: object) -> str:
    """Runs the command, which must fail with one line on standard error."""
    assert main(["export", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize("name", FORMATS)
def test_a_translation_is_refused(tmp_path: Path, capsys: Capture, name: str) -> None:
    color_run(tmp_path / "run", write_colors(tmp_path / "colors"), "train.epochs=1")
    assert "learned translation" in failure(capsys, tmp_path / "run", "--format", name)


def test_what_is_no_finished_run_is_refused(place: Path, tmp_path: Path, capsys: Capture) -> None:
    assert "there is no run folder" in failure(capsys, tmp_path / "absent")
    assert "holds no finished run" in failure(capsys, tmp_path)
    (tmp_path / "result.json").write_bytes((place / RUNS["images"] / "result.json").read_bytes())
    assert "has a result, but no model.safetensors" in failure(capsys, tmp_path)


def test_an_output_that_cannot_be_written_is_refused(place: Path, tmp_path: Path, capsys: Capture) -> None:
    assert "there is no folder" in failure(capsys, place / RUNS["images"], "-o", tmp_path / "nowhere" / "model.pt2")
    (tmp_path / "model.pt2").mkdir()
    assert "is a folder" in failure(capsys, place / RUNS["images"], "-o", tmp_path / "model.pt2")


@pytest.mark.parametrize("module", ["onnx", "onnxscript", "onnxruntime"])
def test_without_the_extra_the_line_says_how_to_get_it(
    place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    line = failure(capsys, place / RUNS["images"], "--format", "onnx")
    assert f"needs the package {module}: pip install 'labelemb[onnx]'" in line


def test_size_cost_and_check_are_printed(place: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "model.pt2"
    assert main(["export", str(place / RUNS["images"]), "-o", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"wrote {out}: {out.stat().st_size:,} bytes"
    assert lines[1].startswith("1,210 parameters")
    assert lines[2].startswith("checked with batches of 1, 2, 7, 32")
    assert lines[3].startswith(f"wrote {tmp_path / 'model-card.md'}")
    assert "pipeline_tag: image-classification" in (tmp_path / "model-card.md").read_text()


def page_blocks(language: str, page: Path = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_card_of_a_file_says_how_to_use_it_without_the_run(
    exported: tuple[Path, Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    run, _, name = exported
    assert main(["export", str(run), "--format", name, "-o", str(tmp_path / "out.model")]) == 0
    card = tmp_path / "out-card.md"
    assert "labelemb predict" not in card.read_text()
    assert "labels.safetensors" not in card.read_text()
    model = portable_model(TrainedModel(run))
    inputs = model.draw(2, torch.Generator().manual_seed(0))
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {model.input_name: inputs if name == "torch" else inputs.numpy()}
    exec(page_blocks("python", card)[0], found)
    assert (found["probabilities"] if name == "torch" else found["logits"]).shape == (2, len(found["labels"]))


def run_without(packages: str, source: str, folder: Path) -> list[str]:
    """Runs a block where these packages cannot be imported; gives the lines it prints."""
    blocked = f"import sys\nsys.modules.update(dict.fromkeys({packages.split()}))\n"
    done = subprocess.run(
        [sys.executable, "-c", blocked + source], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def predicted(run: Path, inputs: Path) -> list[str]:
    found = TrainedModel(run).predict([inputs], k=1)
    return [f"{prediction.labels[0]} {prediction.probabilities[0]:.3f}" for prediction in found]


def write_three(file: Path) -> None:
    """A handwritten 3, larger than the images of the run."""
    digits = load_digits()
    pixels = (digits.images[list(digits.target).index(3)] * 255 / 16).astype(np.uint8)
    Image.fromarray(pixels).resize((20, 20)).save(file)


def test_the_page_works_without_labelemb(
    place: Path, exports: Callable[[str, str], Exported], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {run: kind for kind, run in RUNS.items()}
    monkeypatch.chdir(place)
    for line in page_blocks("sh")[0].splitlines():
        options = build_parser().parse_args(line.split()[1:])
        made = exports(kinds[str(options.run_folder)], format_of(options.format, options.out))
        (tmp_path / options.out).write_bytes(made.path.read_bytes())
    write_three(tmp_path / "three.png")
    (tmp_path / "texts.txt").write_text("play a song\nwill it rain tomorrow in the north\n")
    with_torch, with_onnx, of_texts = page_blocks("python")
    image = predicted(place / RUNS["images"], tmp_path / "three.png")
    assert run_without("labelemb", with_torch, tmp_path) == image
    assert run_without("labelemb torch", with_onnx, tmp_path) == image
    assert run_without("labelemb torch", of_texts, tmp_path) == predicted(place / RUNS["texts"], tmp_path / "texts.txt")


@pytest.mark.parametrize(("run", "axes"), [("images", ["batch", 1, 8, 8]), ("texts", ["batch", "length"])])
def test_the_axes_of_an_onnx_file_are_named(
    place: Path, exports: Callable[[str, str], Exported], run: str, axes: list[str | int]
) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(exports(run, "onnx").path)
    assert session.get_inputs()[0].shape == axes
    assert session.get_outputs()[0].shape[0] == "batch"


def test_the_axes_of_texts_have_one_name_whatever_the_body() -> None:
    assert PortableTexts.dimensions == PortableTokens.dimensions == ("batch", "length")


def test_names_of_files_that_are_not_utf8_can_be_exported() -> None:
    texts = describe_model(SimpleNamespace(preprocessing={}), ["cat\udcff", "狗"], {})
    texts["labels.json"].encode()
    assert json.loads(texts["labels.json"]) == ["cat\udcff", "狗"]
