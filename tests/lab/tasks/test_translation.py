"""Translation runs: the same loop, selection by BLEU, scores that can be read back, and comparisons of them."""

import json
from importlib import resources
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from labelemb import LabelSpace
from labelemb.lab.comparison.tables import render
from labelemb.lab.data import SequenceExamples, load_data
from labelemb.lab.jobs.compare import write_summary
from labelemb.lab.methods.method import parse_method
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.runs.loop import train_run
from labelemb.lab.tasks.scores.texts import score_texts
from labelemb.lab.tasks.task import with_prefix
from labelemb.lab.tasks.translation import TextScores, Translation, TranslationResult
from labelemb.lab.trained.model import TrainedModel
from labelemb.support.errors import UserError
from labelemb.support.interrupts import Interrupted
from tests.helpers.quick_runs import METHODS_OF_DATA_ALONE, StopAt, assert_same_run, every_update_saved, read_records
from tests.helpers.text_models import color_run, write_colors
from tests.helpers.tiny_data import color_pairs, write_pairs


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_colors(tmp_path_factory.mktemp("colors"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """Twenty phrases learned by heart."""
    out = tmp_path_factory.mktemp("run")
    color_run(out, data, "train.epochs=30")
    return out


def test_a_run_overfits_twenty_phrases(run: Path) -> None:
    result = RunFolder(run).require_result()
    assert isinstance(result, TranslationResult)
    assert (result.test_bleu, result.test_exact, result.test_length_ratio) == (pytest.approx(100), 100, 1)
    assert (result.test_rouge1, result.test_chrf) == (pytest.approx(100), pytest.approx(100))
    assert result.bleu_signature.startswith("nrefs:1|case:mixed|eff:no|tok:none")


@pytest.mark.parametrize("method", METHODS_OF_DATA_ALONE)
def test_every_method_trains(tmp_path: Path, data: Path, method: str) -> None:
    color_run(tmp_path, data, "train.epochs=3", method=method)
    first, *_, last = read_records(tmp_path)
    assert last["test_nll"] < first["test_nll"]


def test_the_reported_model_is_the_one_with_the_best_greedy_bleu_and_of_ties_the_latest(
    tmp_path: Path, data: Path
) -> None:
    result = color_run(tmp_path, data, "train.epochs=8", "train.lr=0.005", method="plain")
    records = read_records(tmp_path)
    best = max(record["dev_bleu_greedy"] for record in records)
    chosen = [record for record in records if record["dev_bleu_greedy"] == best][-1]
    assert (result.best_step, result.dev_bleu_greedy) == (chosen["step"], best)
    assert result.test_bleu_greedy == chosen["test_bleu_greedy"]
    assert result.test_nll == pytest.approx(chosen["test_nll"], rel=1e-5)


def test_rouge_selects_where_the_recipe_says_so(tmp_path: Path, data: Path) -> None:
    result = color_run(tmp_path, data, "decode.metric=rouge1")
    assert result.main_score == "rouge1"
    assert result.dev_rouge1_greedy == max(record["dev_rouge1_greedy"] for record in read_records(tmp_path))


def test_the_kept_model_gives_the_reported_scores(tmp_path: Path, data: Path) -> None:
    result = color_run(tmp_path, data, "train.epochs=4")
    kept = ("temperature", "bleu_signature", "reliability")
    again = with_prefix(TrainedModel(tmp_path).evaluate(data)["test"], "test_", unprefixed=kept)
    assert again == {name: getattr(result, name) for name in again}
    assert result.test_perplexity_scaled <= 1.05 * result.test_perplexity


def test_bleu_is_of_the_search_that_translate_does_and_raw_of_that_without_a_temperature(
    tmp_path: Path, data: Path
) -> None:
    result = color_run(tmp_path, data, "train.epochs=4")
    model = TrainedModel(tmp_path)
    test = load_data(model.recipe, data, 0).test
    assert isinstance(test, SequenceExamples)
    lines = [" ".join(words) for words in test.source_words]
    raw = model.search_options(temperature=1.0)
    assert model.temperature != 1
    for options, expected in ((None, result.test_bleu), (raw, result.test_bleu_raw)):
        texts = [best.text for best, *_ in model.translate(lines, options)]
        assert score_texts(texts, test.references).bleu == pytest.approx(expected)


def test_a_stopped_run_ends_as_one_that_was_not(tmp_path: Path, data: Path) -> None:
    changes = ("body.dropout=0.2", "body.layers=2", "train.evaluations_per_epoch=2")
    color_run(tmp_path / "whole", data, *changes)
    stop = StopAt(5)
    with pytest.raises(Interrupted):
        color_run(tmp_path / "stopped", data, *changes, options=every_update_saved(), report=stop.hear, stop=stop)
    color_run(tmp_path / "stopped", data, *changes)
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_a_run_does_not_go_on_with_another_vocabulary(tmp_path: Path) -> None:
    data = write_colors(tmp_path / "data")
    stop = StopAt(3)
    with pytest.raises(Interrupted):
        color_run(tmp_path / "run", data, options=every_update_saved(), report=stop.hear, stop=stop)
    write_pairs(data, ["all"], ("en", "de"), [*color_pairs(), ("the dog", "der hund")])
    with pytest.raises(UserError, match="holds a run of other data, or of this data before it changed"):
        color_run(tmp_path / "run", data)
    other_words = [(source, target.replace("katze", "zebra")) for source, target in color_pairs()]
    write_pairs(data, ["all"], ("en", "de"), other_words)
    with pytest.raises(UserError, match="holds a run of other data, or of this data before it changed"):
        color_run(tmp_path / "run", data)


def test_splitting_a_batch_to_save_memory_changes_nothing(tmp_path: Path, data: Path) -> None:
    color_run(tmp_path / "whole", data)
    color_run(tmp_path / "parts", data, "train.accumulate=3")
    for one, other in zip(*(read_records(tmp_path / name) for name in ("whole", "parts")), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)


def test_a_token_budget_makes_the_batches(tmp_path: Path, data: Path) -> None:
    result = color_run(tmp_path, data, "train.batch_tokens=20", "train.epochs=1")
    # ten targets of 4 labels in batches of five; ten of 5 labels, which share a bucket with 6, in batches of three
    assert result.steps == 2 + 4


def test_tied_and_shared_vectors_are_trained_kept_and_read_back(tmp_path: Path, data: Path) -> None:
    changes = ["body.tie_output=true", "body.share_vectors=true", "data.shared_vocabulary=true"]
    result = color_run(tmp_path, data, *changes, "body.embedding_size=32", "train.epochs=4")
    tensors = load_file(tmp_path / "model.safetensors")
    assert torch.equal(tensors["head.predictor.weight"], tensors["body.target_vectors.weight"])
    assert torch.equal(tensors["body.source_vectors.weight"], tensors["body.target_vectors.weight"])
    biases = len(tensors["head.predictor.bias"])  # all else that predicts is the body's
    assert result.parameters.predicting == result.parameters.body + biases
    assert TrainedModel(tmp_path).evaluate(data)["test"].nll == result.test_nll
    with pytest.raises(UserError, match=r"body\.embedding_size is 16, body\.hidden_size 32"):
        color_run(tmp_path / "sizes", data, *changes)
    with pytest.raises(UserError, match=r"set data\.shared_vocabulary = true"):
        color_run(tmp_path / "words", data, "body.share_vectors=true")


def test_the_soft_term_starts_after_its_share_of_the_training(tmp_path: Path, data: Path) -> None:
    result = color_run(tmp_path, data, "train.epochs=10", "train.evaluations_per_epoch=4")
    assert result.method_settings["objective"]["soft_start"] == 0.38
    soft = {record["step"]: record["terms"]["soft"] for record in read_records(tmp_path)}
    assert all((value > 0) == (step > 16) for step, value in soft.items())
    assert result.note == ""


def test_a_run_in_which_the_soft_term_never_starts_says_so(tmp_path: Path, data: Path) -> None:
    heard: list[str] = []
    result = color_run(tmp_path, data, method="label-embedding@authors-text", warn=heard.append)
    assert heard == [result.note]
    assert "the soft term never starts: it waits for update 20,000, and the training has 8" in result.note


def test_the_label_space_has_the_words_and_leaves_the_symbols_out(run: Path) -> None:
    space = LabelSpace.load(run / "labels.safetensors")
    assert set(space.specials) == {"<unk>", "<s>", "</s>"}
    neighbors = {neighbor.name for neighbor in space.nearest("rote", k=20)}
    assert neighbors
    assert not neighbors & set(space.specials)


def test_a_comparison_shows_bleu_in_place_of_errors(tmp_path: Path, data: Path) -> None:
    for method in ("plain", "label-embedding"):
        for seed in (0, 1):
            color_run(tmp_path / method / f"seed-{seed}", data, "train.epochs=6", method=method, seed=seed)
    summary = write_summary(tmp_path)
    assert summary is not None
    results = [json.loads((tmp_path / "plain" / f"seed-{seed}" / "result.json").read_text()) for seed in (0, 1)]
    methods = summary.to_json()["methods"]
    assert methods["plain"]["test_bleu"]["values"] == [result["test_bleu"] for result in results]
    assert methods["plain"]["epochs_to_plain"]["n"] >= 1
    difference = methods["label-embedding"]["against_plain"]["mean"]
    means = [methods[method]["test_bleu"]["mean"] for method in ("label-embedding", "plain")]
    assert difference == pytest.approx(means[0] - means[1])
    table = render(summary)
    header = table.splitlines()[0]
    for column in ("test BLEU", "raw", "penalty 1", "greedy", "length", "chrF"):
        assert column in header
    assert "test error" not in table
    assert f"signature of BLEU: {results[0]['bleu_signature']}" in table
    assert {"summary.json", "table.md", "curves.png", "heatmap.png"} <= {file.name for file in tmp_path.iterdir()}


def test_the_numbers_can_be_translated_after_a_short_training(tmp_path: Path) -> None:
    changes = ["train.epochs=1", "data.max_pairs=2500", "data.test_size=60", "data.dev_size=60", "decode.beam=2"]
    recipe = load_recipe("numbers-en-vi", [*changes, "train.batch_size=32", "train.schedule=constant"])
    result = train_run(recipe, parse_method("plain"), 0, None, tmp_path)
    assert result.test_bleu > 50


def test_the_raw_columns_are_scores_of_beam_search_with_logits_as_they_are() -> None:
    assert all(name.endswith("_raw") for name in Translation.raw_columns.values())
    assert set(Translation.raw_columns.values()) <= set(TextScores.__dataclass_fields__)


@pytest.mark.parametrize(("recipe", "field"), [("iwslt15-en-vi", "test_bleu_raw"), ("lcsts", "test_rouge1_raw")])
def test_the_papers_recipes_say_which_score_the_paper_reports(recipe: str, field: str) -> None:
    text = (resources.files("labelemb.lab.recipes") / "shipped" / f"{recipe}.toml").read_text(encoding="utf-8")
    assert f"The paper reports beam search with unchanged logits: the column raw ({field}" in text
