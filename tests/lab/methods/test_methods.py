"""Methods: from a text to a head with the right settings, and errors that name the option."""

from typing import Any

import pytest
import torch

from labelemb import (
    ConfidencePenaltyHead,
    DenseEmbedding,
    Head,
    LabelEmbeddingHead,
    LabelSpace,
    Objective,
    OnlineSmoothingHead,
    PlainHead,
    RunningEmbedding,
    TeacherFreeHead,
)
from labelemb.lab.methods.controls import FlatTargetHead, SingleOutputHead
from labelemb.lab.methods.method import METHOD_NAMES, parse_method, parse_methods
from labelemb.lab.recipes.recipe import Recipe, load_recipe
from labelemb.lab.runs.randomness import stream
from labelemb.support.errors import UserError


def make(text: str, *overrides: str) -> Any:
    with stream(0, "head"):
        return parse_method(text).make_head(
            load_recipe("digits", overrides), 8, 5, rows_per_epoch=100, space=LabelSpace.from_matrix(torch.eye(5))
        )


def objective(text: str, *overrides: str) -> Objective:
    return parse_method(text).objective(load_recipe("digits", overrides))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("plain", PlainHead),
        ("label-embedding", LabelEmbeddingHead),
        ("label-smoothing", PlainHead),
        ("online-smoothing", OnlineSmoothingHead),
        ("confidence-penalty", ConfidencePenaltyHead),
        ("teacher-free", TeacherFreeHead),
        ("label-embedding@single-output", SingleOutputHead),
        ("label-embedding@flat", FlatTargetHead),
    ],
)
def test_a_name_makes_its_head(text: str, kind: type[Head]) -> None:
    assert type(make(text)) is kind


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (" plain ", "plain"),
        ("label-smoothing@0.20", "label-smoothing@0.2"),
        ("label-smoothing@smoothing=0.2", "label-smoothing@0.2"),
        ("label-embedding@authors-vision", "label-embedding@authors_vision"),
        ("label-embedding@tau=1+paper", "label-embedding@paper+tau=1"),
        ("label-embedding@alpha=0.8+tau=1.50", "label-embedding@tau=1.5+alpha=0.8"),
        ("online-smoothing@0.8+floor", "online-smoothing@floor+0.8"),
        ("label-embedding@two_sided_cap=True", "label-embedding@two_sided_cap=true"),
        ("label-embedding@tau=1e20", "label-embedding@tau=1e20"),
        ("label-embedding@tau=1000000", "label-embedding@tau=1000000"),
        ("label-smoothing@0.1234567", "label-smoothing@0.1234567"),
    ],
)
def test_one_method_has_one_canonical_name(text: str, name: str) -> None:
    assert parse_method(text).name == name
    assert parse_method(name) == parse_method(text)
    assert parse_method(name) == parse_method(text)


def test_the_recipes_objective_is_used_unless_the_method_names_another() -> None:
    overrides = ("head.objective=authors_vision", "head.overrides.tau=3.0")
    assert objective("label-embedding", *overrides) == Objective.authors_vision(tau=3.0)
    assert objective("label-embedding@alpha=0.5", *overrides) == Objective.authors_vision(tau=3.0, alpha=0.5)
    assert objective("label-embedding@paper", *overrides) == Objective.paper()
    assert objective("label-embedding@paper+tau=1", *overrides) == Objective.paper(tau=1.0)


def test_ablations_switch_one_part_off() -> None:
    assert objective("label-embedding@no-cap") == Objective(cap_weight=0.0)
    assert objective("label-embedding@no-gate") == Objective(correct_only=False)
    start = make("label-embedding@no-identity").embedding
    assert isinstance(start, DenseEmbedding)
    assert not start.weight.any()


def test_recommended_brings_the_running_embedding_and_the_clean_observer() -> None:
    head = make("label-embedding@recommended")
    assert isinstance(head.embedding, RunningEmbedding)
    assert head.embedding.rows_per_epoch == 100
    recipe = load_recipe("digits")
    assert parse_method("label-embedding@recommended").clean_observer(recipe)
    assert not parse_method("label-embedding@paper").clean_observer(recipe)
    assert not parse_method("plain").clean_observer(load_recipe("digits", ["head.objective=recommended"]))


def test_numbers_reach_the_heads() -> None:
    assert make("label-smoothing").label_smoothing == 0.1
    assert make("label-smoothing@0.2").label_smoothing == 0.2
    assert make("confidence-penalty@0.3").penalty == 0.3
    assert make("label-embedding@rank=3").embedding.rank == 3
    assert make("label-embedding", "head.rank=2").embedding.rank == 2
    assert make("label-embedding", "head.rank=2").embedding.bias is None
    with_bias = make("label-embedding", "head.rank=2", "head.embedding_bias=true").embedding
    assert (with_bias.rank, with_bias.bias.shape) == (2, (5,))
    mixing = make("online-smoothing@0.8").mixing
    assert (mixing.hard_weight, mixing.soft_weight, mixing.mass_floor) == (pytest.approx(0.2), 0.8, 0.0)


def test_online_smoothing_with_the_floor_has_the_recommended_floor() -> None:
    mixing, recommended = make("online-smoothing@floor").mixing, Objective.rising_floor()
    assert (mixing.soft_weight, mixing.mass_floor) == (recommended.soft_weight, recommended.mass_floor)


def test_the_embeddings_learning_rate_comes_from_the_method_or_the_recipe() -> None:
    recipe = load_recipe("digits", ["train.embedding_lr=0.02"])
    assert parse_method("label-embedding").embedding_lr(load_recipe("digits")) is None
    assert parse_method("label-embedding").embedding_lr(recipe) == 0.02
    assert parse_method("label-embedding@embedding_lr=0.05").embedding_lr(recipe) == 0.05


@pytest.mark.parametrize("overrides", [(), ("head.init_std=0.01",)], ids=["torch's weights", "truncated normal"])
def test_all_methods_start_from_the_same_predictor(overrides: tuple[str, ...]) -> None:
    weights = [make(name, *overrides).predictor.weight for name in METHOD_NAMES]
    assert all(torch.equal(weights[0], other) for other in weights[1:])


def test_output_layers_start_within_two_standard_deviations() -> None:
    head = make("label-embedding", "head.init_std=0.01")
    for layer in (head.predictor, head.observer):
        assert 0 < layer.weight.abs().max() <= 0.02
        assert not layer.bias.any()


def test_methods_are_listed_once_in_their_order() -> None:
    assert [method.name for method in parse_methods("plain, label-smoothing@0.10,plain,label-smoothing@0.1")] == [
        "plain",
        "label-smoothing@0.1",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label-embeding", "unknown method 'label-embeding'; did you mean 'label-embedding'"),
        ("xyz", "unknown method 'xyz': known are plain, label-embedding"),
        ("", "unknown method ''"),
        ("plain@0.1", "method 'plain' takes no options, but '0.1' was given"),
        ("label-embedding@taw=1", "unknown option 'taw=1' .* did you mean 'tau'"),
        ("label-embedding@", "unknown option ''"),
        ("label-embedding@tau", "option 'tau' of method 'label-embedding' needs a value: tau="),
        ("label-embedding@tau=warm", "option 'tau' .* must be a number, not 'warm'"),
        ("label-embedding@embedding_lr=nan", "option 'embedding_lr' .* must be a number, not 'nan'"),
        ("label-embedding@embedding_lr=-1", "option 'embedding_lr' .* is -1, must be at least 0"),
        ("label-embedding@rank=²", "option 'rank' .* must be a whole number, not '²'"),
        (f"label-embedding@rank={'9' * 5000}", "option 'rank' .* must be a whole number"),
        ("label-embedding@rank=1.5", "option 'rank' .* must be a whole number, not '1.5'"),
        ("label-embedding@correct_only=maybe", "option 'correct_only' .* must be true or false"),
        ("label-embedding@paper+recommended", "names two presets, paper and recommended"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_method(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label-embedding@tau=0", "method label-embedding@tau=0: tau is 0.0, but must be above 0"),
        ("label-smoothing@2", "label_smoothing is 2.0, but must be in"),
        ("label-embedding@no-identity+rank=2", "no-identity is about a dense embedding"),
        ("label-embedding@recommended+no-identity", "no-identity is about a dense embedding"),
        ("label-embedding@flat+single-output", "single-output and flat are two controls"),
    ],
)
def test_settings_out_of_range_are_one_line_with_the_method(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        make(text)
    assert "\n" not in str(error.value)


def test_a_bias_of_a_dense_embedding_is_an_error() -> None:
    with pytest.raises(UserError, match="embedding_bias is about a compressed embedding: set a rank"):
        make("label-embedding", "head.embedding_bias=true")


def test_no_methods_is_an_error() -> None:
    with pytest.raises(UserError, match="no method given"):
        parse_methods(" , ")


def test_the_record_of_a_method_holds_every_setting() -> None:
    recipe: Recipe = load_recipe("digits")
    described = parse_method("label-embedding@paper+tau=1").describe(recipe)
    assert described["objective"]["tau"] == 1.0
    assert described["objective"]["hard_weight"] == 1.0
