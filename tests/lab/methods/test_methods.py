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
from labelemb.heads import registry
from labelemb.heads.defaults import DEFAULT
from labelemb.lab.methods.controls import CONTROLS, FlatTargetHead, SingleOutputHead
from labelemb.lab.methods.method import METHOD_NAMES, parse_method, parse_methods
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.randomness import stream
from labelemb.support.errors import UserError


def make(text: str, *overrides: str) -> Any:
    with stream(0, "head"):
        return parse_method(text).make_head(
            load_recipe("digits", overrides), 8, 5, rows_per_epoch=100, space=LabelSpace.from_matrix(torch.eye(5))
        )


def objective(text: str) -> Objective:
    return parse_method(text).objective


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
        ("label-embedding@authors_vision", "label-embedding@authors-vision"),
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


def test_without_options_label_embedding_is_the_librarys_default_whatever_the_recipe() -> None:
    for recipe in ("digits", "mnist-mlp", "numbers-en-vi"):
        head = parse_method("label-embedding").make_head(load_recipe(recipe), 8, 5, rows_per_epoch=100)
        assert isinstance(head, LabelEmbeddingHead)
        default = LabelEmbeddingHead(8, 5)
        assert head.objective == default.objective
        assert type(head.embedding) is type(default.embedding)


def test_a_preset_is_an_objective_with_single_settings_changed() -> None:
    assert objective("label-embedding@alpha=0.5") == DEFAULT.objective.replace(alpha=0.5)
    assert objective("label-embedding@halves") == Objective()
    assert objective("label-embedding@paper") == Objective.paper()
    assert objective("label-embedding@paper+tau=1") == Objective.paper(tau=1.0)
    assert objective("label-embedding@authors-vision") == Objective.authors_vision()
    assert objective("label-embedding@authors-text+soft_start=0.38") == Objective.authors_text(soft_start=0.38)
    assert objective("label-embedding@authors-text+soft_start=7") == Objective.authors_text(soft_start=7)


@pytest.mark.parametrize("preset", ["halves", "paper", "authors-vision", "authors-text"])
def test_a_preset_of_the_paper_implies_the_learned_embedding_with_the_recipes_rank(preset: str) -> None:
    assert isinstance(make(f"label-embedding@{preset}").embedding, DenseEmbedding)
    assert make(f"label-embedding@{preset}", "head.rank=2").embedding.rank == 2
    assert make(f"label-embedding@{preset}+rank=3", "head.rank=2").embedding.rank == 3
    assert isinstance(make(f"label-embedding@{preset}+embedding=dense", "head.rank=2").embedding, DenseEmbedding)


def test_an_embedding_and_its_prior_are_options() -> None:
    head = make("label-embedding@embedding=running+prior_rows=5")
    assert isinstance(head.embedding, RunningEmbedding)
    assert (head.embedding.prior_rows, head.embedding.rows_per_epoch) == (5, 100)
    assert make("label-embedding@embedding=compressed", "head.rank=2").embedding.rank == 2
    assert isinstance(make("label-embedding@embedding=dense").embedding, DenseEmbedding)


def test_presets_observe_all_rows_and_the_default_some_of_many_labels() -> None:
    observed = {
        text: parse_method(text).make_head(load_recipe("digits"), 2, 5000, 100).observe_rows
        for text in ("label-embedding", "label-embedding@rising-floor", "label-embedding@rising-floor+observe_rows=9")
    }
    assert list(observed.values()) == [256, None, 9]


def test_rising_label_smoothing_learns_nothing_and_has_the_floor() -> None:
    head = make("label-smoothing@rising")
    assert isinstance(head, PlainHead)
    assert (head.label_smoothing, head.mass_floor) == (0.9, 0.9)
    assert make("label-smoothing@rising+0.5").label_smoothing == 0.5


def test_the_controls_are_registered_beside_the_methods() -> None:
    assert {*CONTROLS.values()} <= {*registry.names()}
    assert {*METHOD_NAMES} - {"reused-labels"} <= {*registry.names()}


def test_ablations_switch_one_part_off() -> None:
    assert objective("label-embedding@paper+no-cap") == Objective.paper(cap_weight=0.0)
    assert objective("label-embedding@paper+no-gate") == Objective.paper(correct_only=False)
    start = make("label-embedding@embedding=dense+no-identity").embedding
    assert isinstance(start, DenseEmbedding)
    assert not start.weight.any()


def test_the_rising_floor_brings_a_running_embedding_without_a_prior_and_the_clean_observer() -> None:
    head = make("label-embedding@rising-floor")
    assert isinstance(head.embedding, RunningEmbedding)
    assert (head.embedding.rows_per_epoch, head.embedding.prior_rows) == (100, 0)
    assert parse_method("label-embedding@rising-floor").clean_observer
    assert not parse_method("label-embedding@paper").clean_observer
    assert parse_method("label-embedding@clean-observer").clean_observer
    assert not parse_method("reused-labels@rising-floor").clean_observer


@pytest.mark.parametrize(("labels", "prior"), [(5, 5), (30_000, 100)])
def test_fading_brings_a_running_embedding_with_a_prior_of_a_row_for_each_label_or_100_of_many(
    labels: int, prior: int
) -> None:
    head = parse_method("label-embedding@fading").make_head(load_recipe("digits"), 2, labels, 100, total_steps=10)
    assert head.objective == Objective(soft_weight=0.9, mass_floor=0.9)
    assert isinstance(head.embedding, RunningEmbedding)
    assert (head.embedding.prior_rows, head.total_steps) == (prior, 10)
    assert make("label-embedding@fading+prior_rows=2").embedding.prior_rows == 2
    assert make("label-embedding@fading+embedding=dense").objective.mass_floor == 0.9


def test_a_method_that_is_added_to_the_registry_can_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))  # gone again after the test
    name = "plain-without-bias"
    registry.register(name, lambda d, m, *, rows_per_epoch, total_steps: PlainHead(d, m, bias=False))
    assert make(name).predictor.bias is None
    assert parse_method(name).name == name
    with pytest.raises(UserError, match="method 'plain-without-bias' takes no options"):
        parse_method(f"{name}@0.1")


def test_numbers_reach_the_heads() -> None:
    assert make("label-smoothing").label_smoothing == 0.1
    assert make("label-smoothing@0.2").label_smoothing == 0.2
    assert make("confidence-penalty@0.3").penalty == 0.3
    assert make("label-embedding@rank=3").embedding.rank == 3
    assert make("label-embedding@paper", "head.rank=2").embedding.bias is None
    with_bias = make("label-embedding@paper", "head.rank=2", "head.embedding_bias=true").embedding
    assert (with_bias.rank, with_bias.bias.shape) == (2, (5,))
    mixing = make("online-smoothing@0.8").mixing
    assert (mixing.hard_weight, mixing.soft_weight, mixing.mass_floor) == (pytest.approx(0.2), 0.8, 0.0)


def test_online_smoothing_with_the_floor_has_the_rising_floor() -> None:
    mixing, rising = make("online-smoothing@floor").mixing, Objective.rising_floor()
    assert (mixing.soft_weight, mixing.mass_floor) == (rising.soft_weight, rising.mass_floor)


def test_the_embeddings_learning_rate_comes_from_the_method_or_the_recipe() -> None:
    recipe = load_recipe("digits", ["train.embedding_lr=0.02"])
    assert parse_method("label-embedding@halves").embedding_lr(load_recipe("digits")) is None
    assert parse_method("label-embedding").embedding_lr(load_recipe("digits")) == DEFAULT.embedding_lr == 0.05
    assert parse_method("label-embedding@tau=1").embedding_lr(load_recipe("digits")) == 0.05
    assert parse_method("label-embedding@embedding_lr=0").embedding_lr(recipe) is None
    assert parse_method("label-embedding").embedding_lr(recipe) == 0.02
    assert parse_method("label-embedding@embedding_lr=0.05").embedding_lr(recipe) == 0.05


@pytest.mark.parametrize("overrides", [(), ("head.init_std=0.01",)], ids=["torch's weights", "truncated normal"])
def test_all_methods_start_from_the_same_predictor(overrides: tuple[str, ...]) -> None:
    names = (*METHOD_NAMES, "label-embedding@rank=2", "label-embedding@rising-floor")
    weights = [make(name, *overrides).predictor.weight for name in names]
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
        ("label-embedding@paper+rising-floor", "names two presets, paper and rising-floor"),
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
        ("label-embedding@rising-floor+no-identity", "no-identity is about a dense embedding"),
        ("label-embedding@embedding=dense+prior_rows=3", "prior_rows=3.0 is an option of embedding=.running"),
        ("label-embedding@embedding=sparse", "embedding is 'sparse', but must be one of running, dense, compressed"),
        ("label-embedding@rising-floor+embedding_lr=0.1", "embedding_lr would be ignored"),
        ("label-embedding@rising-floor+hard_weight=0.5", "hard_weight is 0.5, but must be None with a mass floor"),
        ("label-embedding@flat+single-output", "single-output and flat are two controls"),
        ("label-embedding@rising-floor+clean-observer", "clean-observer would change nothing: rising-floor has it"),
    ],
)
def test_settings_out_of_range_are_one_line_with_the_method(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        make(text)
    assert "\n" not in str(error.value)


def test_a_bias_of_a_dense_embedding_is_an_error() -> None:
    with pytest.raises(UserError, match="embedding_bias is about a compressed embedding: set a rank"):
        make("label-embedding@paper", "head.embedding_bias=true")


def test_no_methods_is_an_error() -> None:
    with pytest.raises(UserError, match="no method given"):
        parse_methods(" , ")


def test_the_record_of_a_method_holds_every_setting() -> None:
    described = parse_method("label-embedding@paper+tau=1").describe()
    assert described["objective"]["tau"] == 1.0
    assert described["objective"]["hard_weight"] == 1.0
