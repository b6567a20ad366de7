"""Training with labels that were learned before: what is trained, with which labels, and that nothing else fits."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from labelemb import CompressedEmbedding, DenseEmbedding, FixedEmbedding, LabelEmbeddingHead, LabelSpace, Objective
from labelemb.lab.data import load_data
from labelemb.lab.methods.method import parse_method
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.checkpoint.file import CURRENT
from labelemb.lab.runs.engine import make_fabric
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.runs.labels import LabelSource
from labelemb.lab.runs.loop import train_run
from labelemb.lab.runs.messages import RunOptions
from labelemb.lab.runs.state import Run
from labelemb.lab.trained.model import TrainedModel
from labelemb.support.errors import UserError
from labelemb.support.interrupts import Interrupted
from tests.helpers.quick_runs import (
    METHODS_OF_DATA_ALONE,
    StopAt,
    assert_same_run,
    every_update_saved,
    quick_recipe,
    quick_run,
)
from tests.helpers.text_models import TEXT_METHOD, color_recipe, color_run, write_colors
from tests.helpers.tiny_data import text_rows, write_csv

DIGITS = [str(digit) for digit in range(10)]


def random_space(names: list[str] = DIGITS, seed: int = 0) -> LabelSpace:
    """Rows that differ much from one another and from their columns, so that a mix-up shows."""
    logits = 2 * torch.randn(len(names), len(names), generator=torch.Generator().manual_seed(seed))
    return LabelSpace.from_matrix(logits + 3 * torch.eye(len(names)), names, kind="logit")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("labels") / "digits.safetensors"
    random_space().save(path)
    return path


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of label embedding."""
    out = tmp_path_factory.mktemp("learned")
    quick_run(out)
    return out


def make_run(folder: Path, method: str, labels: Path | None, *overrides: str) -> Run:
    recipe = quick_recipe(*overrides)
    data = load_data(recipe, None, 0)
    reused = None if labels is None else LabelSource(labels).matched(data.label_names)
    run = Run(make_fabric(recipe.train), recipe, parse_method(method), 0, data, RunFolder(folder), RunOptions(), reused)
    run.model.train()
    return run


def head_of(run: Run) -> LabelEmbeddingHead:
    assert isinstance(run.classifier.head, LabelEmbeddingHead)
    return run.classifier.head


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("method", "hard", "soft"),
    [
        ("reused-labels@paper", 1.0, 1.0),
        ("reused-labels", 0.5, 0.5),
        ("reused-labels@hard_weight=0.2+soft_weight=0.7", 0.2, 0.7),
    ],
)
def test_a_step_is_cross_entropy_with_the_label_and_with_its_row(
    tmp_path: Path, file: Path, method: str, hard: float, soft: float
) -> None:
    """H(y, z1') + H(e', z1') of Appendix B, and its gradient, in numpy and float64."""
    run = make_run(tmp_path, method, file, "train.precision=64")
    inputs, targets = run.data.train.batch(torch.arange(40))
    loss, statistics = run.model(inputs, targets, num_items=len(targets), progress=0.0)
    run.fabric.backward(loss)
    predictor, labels = head_of(run).predictor, targets.numpy()
    with torch.no_grad():
        hidden = run.classifier.body(*(part.double() for part in inputs)).numpy()
    weight, bias = predictor.weight.detach().numpy(), predictor.bias.detach().numpy()
    assert hidden.dtype == weight.dtype == np.float64
    p = softmax(hidden @ weight.T + bias)
    q = softmax(load_file(file)["logits"].double().numpy())[labels]
    onehot = np.eye(10)[labels]
    by_hand = hard * -np.log(p[onehot == 1]) - soft * (q * np.log(p)).sum(1)
    assert loss.item() == pytest.approx(by_hand.mean(), rel=1e-7)  # the rows of a label space are float32
    gradient = ((hard + soft) * p - hard * onehot - soft * q).mean(0)
    np.testing.assert_allclose(predictor.bias.grad.numpy(), gradient, rtol=1e-5, atol=1e-9)
    assert statistics[3:6].tolist() == [0, 0, 0], "no observer, no cap, nothing to embed"


def test_nothing_is_learned_but_body_and_predictor(tmp_path: Path, file: Path) -> None:
    fixed, plain = make_run(tmp_path, "reused-labels", file), make_run(tmp_path, "plain", None)
    head = head_of(fixed)
    assert head.observer is None
    assert isinstance(head.embedding, FixedEmbedding)
    assert sum(value.numel() for value in fixed.classifier.parameters()) == sum(
        value.numel() for value in plain.classifier.parameters()
    )


@pytest.mark.parametrize("method", ["reused-labels", "reused-labels@warm-start"])
def test_it_starts_from_the_body_predictor_and_batches_of_the_other_methods(
    tmp_path: Path, file: Path, method: str
) -> None:
    reused = make_run(tmp_path, method, file)
    for name in METHODS_OF_DATA_ALONE:
        other = make_run(tmp_path, name, None)
        for one, two in zip(reused.classifier.body.parameters(), other.classifier.body.parameters(), strict=True):
            assert torch.equal(one, two)
        assert torch.equal(head_of(reused).predictor.weight, other.classifier.head.predictor.weight)
    assert torch.equal(torch.cat(reused.shuffled()), torch.cat(other.shuffled()))


@pytest.mark.parametrize("method", ["reused-labels", "reused-labels@warm-start"])
def test_labels_are_matched_by_name_whatever_their_order(tmp_path: Path, file: Path, method: str) -> None:
    LabelSpace.load(file).reorder(DIGITS[::-1]).save(tmp_path / "reversed.safetensors")
    quick_run(tmp_path / "a", method=method, labels=LabelSource(file))
    quick_run(tmp_path / "b", method=method, labels=LabelSource(tmp_path / "reversed.safetensors"))
    one, other = (load_file(tmp_path / run / "model.safetensors") for run in "ab")
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_keeps_the_labels_it_used_and_says_whose_they_are(tmp_path: Path, learned: Path) -> None:
    result = quick_run(tmp_path, method="reused-labels", labels=LabelSource(learned))
    assert result.labels_from == "digits label-embedding seed 0"
    before, kept = (LabelSpace.load(run / "labels.safetensors") for run in (learned, tmp_path))
    assert torch.equal(before.matrix(), kept.matrix())
    assert kept.names == before.names
    assert result.method_settings["objective"]["soft_weight"] == 0.5
    assert TrainedModel(tmp_path).evaluate(None)["test"].error == pytest.approx(result.test_error)


@pytest.mark.parametrize("foreign", ['{"accuracy": 0.9}', "[1, 2]"])
def test_labels_beside_another_programs_results_are_told_by_their_file(tmp_path: Path, foreign: str) -> None:
    random_space().save(tmp_path / "labels.safetensors")
    (tmp_path / "result.json").write_text(foreign)
    assert LabelSource(tmp_path).matched(DIGITS).origin == "labels.safetensors"


def test_other_runs_record_nothing_of_labels(learned: Path) -> None:
    for name in ("run.json", "result.json"):
        assert not {"labels", "labels_from"} & set(json.loads((learned / name).read_text()))


@pytest.mark.parametrize("method", ["reused-labels", "reused-labels@rising-floor", "reused-labels@warm-start"])
def test_a_stopped_run_ends_as_one_that_was_not(tmp_path: Path, file: Path, method: str) -> None:
    recipe = quick_recipe("body.dropout=0.3", "train.schedule=cosine")
    quick_run(tmp_path / "whole", recipe, method, labels=LabelSource(file))
    stop = StopAt(13)
    with pytest.raises(Interrupted):
        quick_run(
            tmp_path / "stopped",
            recipe,
            method,
            labels=LabelSource(file),
            options=every_update_saved(),
            report=stop.hear,
            stop=stop,
        )
    quick_run(tmp_path / "stopped", recipe, method, labels=LabelSource(file))
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_a_run_goes_on_with_its_own_labels_only(tmp_path: Path, file: Path) -> None:
    stop = StopAt(5)
    arguments: dict[str, Any] = {"method": "reused-labels", "options": every_update_saved()}
    with pytest.raises(Interrupted):
        quick_run(tmp_path / "run", labels=LabelSource(file), report=stop.hear, stop=stop, **arguments)
    before = (tmp_path / "run" / CURRENT).read_bytes()
    random_space(seed=1).save(tmp_path / "other.safetensors")
    with pytest.raises(
        UserError, match=r"holds a run of other labels \(SHA-256 \w{12}\.\.\. there, \w{12}\.\.\. here\)"
    ):
        quick_run(tmp_path / "run", labels=LabelSource(tmp_path / "other.safetensors"), **arguments)
    assert (tmp_path / "run" / CURRENT).read_bytes() == before
    quick_run(tmp_path / "run", labels=LabelSource(file), **arguments)
    with pytest.raises(UserError, match="holds a run of other labels"):  # nor is a finished run taken for the other
        quick_run(tmp_path / "run", labels=LabelSource(tmp_path / "other.safetensors"), **arguments)


def test_a_copy_of_the_labels_is_the_same_labels(tmp_path: Path, file: Path) -> None:
    first = quick_run(tmp_path / "run", method="reused-labels", labels=LabelSource(file))
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(file.read_bytes())
    assert quick_run(tmp_path / "run", method="reused-labels", labels=LabelSource(copy)) == first


def test_a_subset_conditions_the_rows_on_the_labels_of_the_data(tmp_path: Path) -> None:
    everything = random_space(["music", "sports", "weather", "news"])
    everything.save(tmp_path / "four.safetensors")
    source = LabelSource(tmp_path / "four.safetensors", subset=True)
    table = write_csv(tmp_path / "texts.csv", text_rows(labels=("weather", "music")))
    recipe = load_recipe("text-csv", ["train.epochs=1", "data.dev_size=0.2"])
    train_run(recipe, parse_method("reused-labels"), 0, table, tmp_path / "run", labels=source)
    used = LabelSpace.load(tmp_path / "run" / "labels.safetensors")
    assert set(used.names) == {"weather", "music"}
    for label, other in (("music", "weather"), ("weather", "music")):
        row = everything.distribution(label)
        both = row[everything.index(label)] + row[everything.index(other)]
        assert used.similarity(label, other) == pytest.approx(float(row[everything.index(other)] / both), rel=1e-5)


def test_a_warm_start_learns_on_from_the_labels(tmp_path: Path, file: Path) -> None:
    run = make_run(tmp_path, "reused-labels@warm-start", file)
    embedding = head_of(run).embedding
    assert isinstance(embedding, DenseEmbedding)
    assert torch.equal(embedding.weight, load_file(file)["logits"])
    assert head_of(run).observer is not None
    quick_run(tmp_path / "run", method="reused-labels@warm-start", labels=LabelSource(file))
    after = LabelSpace.load(tmp_path / "run" / "labels.safetensors")
    assert 0 < (after.matrix() - LabelSpace.load(file).matrix()).abs().max() < 0.5
    assert TrainedModel(tmp_path / "run").classifier.head.observer is not None


def test_a_warm_start_from_factors_stays_compressed(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    A, B = torch.randn(10, 3, generator=generator), torch.randn(3, 10, generator=generator)
    LabelSpace.from_factors(A, B, names=DIGITS).save(tmp_path / "factors.safetensors")
    embedding = head_of(make_run(tmp_path, "reused-labels@warm-start", tmp_path / "factors.safetensors")).embedding
    assert isinstance(embedding, CompressedEmbedding)
    assert torch.equal(embedding.A, A)


def test_a_warm_start_takes_every_option_and_fixed_labels_only_those_with_an_effect(tmp_path: Path, file: Path) -> None:
    recipe = quick_recipe()
    method = parse_method("reused-labels@paper+tau=1+embedding_lr=0.05").warm_started()
    assert method.name == "reused-labels@paper+warm-start+tau=1+embedding_lr=0.05"
    assert method.objective == Objective.paper(tau=1.0)
    assert method.embedding_lr(recipe) == 0.05
    make_run(tmp_path, method.name, file)
    with pytest.raises(UserError, match="reused-labels@tau=1: tau is about learning labels, and these are fixed"):
        make_run(tmp_path, "reused-labels@tau=1", file)


def test_a_soft_term_that_waits_does_not_wait_where_labels_are_there(tmp_path: Path, file: Path) -> None:
    fixed = make_run(tmp_path, "reused-labels@authors-text", file)
    assert fixed.notes == []
    inputs, targets = fixed.data.train.batch(torch.arange(8))
    _, statistics = fixed.model(inputs, targets, num_items=8, progress=0.0)
    assert statistics[2] > 0
    assert "never starts" in make_run(tmp_path, "reused-labels@authors-text+warm-start", file).notes[0]


def write_similarities(path: Path, changed: dict[tuple[int, int], float] | None = None) -> np.ndarray:
    """A table in which digits resemble their neighbours; rows do not sum to 1."""
    places = np.arange(10)
    matrix = np.maximum(0.0, 4.0 - 1.5 * np.abs(places[:, None] - places))
    for (row, column), value in (changed or {}).items():
        matrix[row, column] = value
    rows = [["", *DIGITS], *([name, *map(str, row)] for name, row in zip(DIGITS, matrix, strict=True))]
    write_csv(path, rows)
    return matrix


def test_a_table_of_similarities_is_divided_by_the_sums_of_its_rows(tmp_path: Path) -> None:
    matrix = write_similarities(tmp_path / "expert.csv")
    result = quick_run(tmp_path / "run", method="reused-labels", labels=LabelSource(tmp_path / "expert.csv"))
    assert result.labels_from == "expert.csv"
    used = LabelSpace.load(tmp_path / "run" / "labels.safetensors").matrix().numpy()
    np.testing.assert_allclose(used, matrix / matrix.sum(1, keepdims=True), atol=1e-6)


def test_a_label_that_is_not_the_largest_of_its_row_is_a_warning(tmp_path: Path) -> None:
    write_similarities(tmp_path / "expert.csv", {(3, 4): 5.0})
    heard: list[str] = []
    LabelSource(tmp_path / "expert.csv").matched(DIGITS, heard.append)
    assert len(heard) == 1
    assert "another label is more similar than itself to '3'" in heard[0]
    LabelSource(tmp_path / "expert.csv", quiet=True).matched(DIGITS, heard.append)
    assert len(heard) == 1


def test_labels_that_were_never_observed_right_are_a_warning(tmp_path: Path) -> None:
    counts = [0, 0, *[5] * 8]
    LabelSpace.from_matrix(torch.eye(10), DIGITS, kind="logit", counts=counts).save(tmp_path / "rare.safetensors")
    heard: list[str] = []
    LabelSource(tmp_path / "rare.safetensors").matched(DIGITS, heard.append)
    assert len(heard) == 1
    assert "2 of 10 labels were never observed right" in heard[0]
    assert "'0', '1'" in heard[0]


def test_the_words_of_a_translation_are_reused_like_any_labels(tmp_path: Path) -> None:
    data = write_colors(tmp_path / "data")
    color_run(tmp_path / "learned", data)
    source = LabelSource(tmp_path / "learned")
    for method in ("reused-labels", "reused-labels@warm-start"):
        result = color_run(tmp_path / method, data, method=method, labels=source)
        assert result.labels_from == f"multi30k-en-de-small {TEXT_METHOD} seed 0"
        model = TrainedModel(tmp_path / method)
        storage = LabelSpace.load(tmp_path / method / "labels.safetensors").form.storage
        assert (storage, model.recipe.head.rank) == ("factors", color_recipe().head.rank)
