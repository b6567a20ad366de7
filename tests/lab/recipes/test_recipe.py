"""Recipes: shipped ones load, every key is documented, bad ones are refused in one line."""

import itertools
import re
from pathlib import Path

import pytest

from labelemb.lab.recipes.recipe import Recipe, load_recipe, recipe_names, recipe_text
from labelemb.lab.recipes.schema import settings_of
from labelemb.lab.recipes.settings import DigitsData, MlpBody
from labelemb.support.errors import UserError

EXPECTED = [
    *("cifar10-few", "cifar10-resnet8", "cifar10-small", "cifar100-few"),
    *("cifar100-pretrained", "cifar100-resnet18", "cifar100-small"),
    *("digits", "en-vi-news-small", "image-folder"),
    *("iwslt15-en-vi", "lcsts", "mnist-cnn", "mnist-mlp", "multi30k-en-de-small", "numbers-en-vi"),
    *("text-csv", "text-minilm", "text-vectors", "zh-titles-small"),
]


def error_of(*arguments: object) -> str:
    with pytest.raises(UserError) as caught:
        load_recipe(*arguments)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    return text


def write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_recipes_of_the_paper_and_the_small_ones_ship() -> None:
    assert recipe_names() == EXPECTED


@pytest.mark.parametrize("name", EXPECTED)
def test_every_key_of_a_shipped_recipe_has_a_comment_above_it(name: str) -> None:
    lines = recipe_text(name).splitlines()
    for above, line in itertools.pairwise(lines):
        if "=" in line and not line.startswith("#"):
            assert above.startswith("# "), line


@pytest.mark.parametrize("name", EXPECTED)
def test_a_written_recipe_reads_back_equal_and_comments_every_key(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name, ["head.init_std=0.5", 'name="a\\"b ü"'])
    text = recipe.to_toml()
    assert load_recipe(write(tmp_path, text)) == recipe
    lines = text.splitlines()
    assert all(above.startswith("# ") for above, line in itertools.pairwise(lines) if re.match(r"\w+ =", line))


def test_a_recipe_file_without_a_name_is_called_like_its_file(tmp_path: Path) -> None:
    assert load_recipe(write(tmp_path, "[train]\nepochs = 2\n")).name == "mine"


def test_the_settings_of_the_paper() -> None:
    mlp, cnn = load_recipe("mnist-mlp"), load_recipe("mnist-cnn")
    assert (mlp.body.hidden, mlp.head.init_std, cnn.body.hidden, cnn.head.init_std) == (
        (500, 500),
        0.01,
        (1024,),
        0.001,
    )
    for recipe in (mlp, cnn):
        assert (recipe.train.epochs, recipe.train.batch_size, recipe.train.evaluations_per_epoch) == (15, 100, 5)
        assert (recipe.body.init, recipe.body.init_std, recipe.data.dev_size) == ("truncated_normal", 0.1, 5000)
    resnet8, resnet18 = load_recipe("cifar10-resnet8"), load_recipe("cifar100-resnet18")
    for recipe in (resnet8, resnet18):
        assert (recipe.train.epochs, recipe.train.batch_size, recipe.data.augment) == (100, 128, "crop_flip")
        assert (recipe.data.mean, recipe.data.std) == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
    assert (resnet8.train.schedule, resnet18.train.schedule) == ("constant", "step")
    assert (resnet18.train.step_every, resnet18.train.step_factor) == (40, 0.2)
    for recipe in (mlp, cnn, resnet8, resnet18):
        assert (recipe.train.optimizer, recipe.train.lr) == ("adam", 0.001)
        assert recipe.methods == ("plain", "label-embedding@authors-vision")


def test_the_settings_of_the_papers_text_experiments() -> None:
    translation, summarization = load_recipe("iwslt15-en-vi"), load_recipe("lcsts")
    sizes = [(r.body.layers, r.body.embedding_size, r.body.hidden_size) for r in (translation, summarization)]
    assert sizes == [(2, 512, 512), (1, 400, 500)]
    assert (translation.data.vocabulary, summarization.data.vocabulary) == (22439, 4000)
    assert (translation.decode.beam, summarization.decode.beam) == (10, 1)
    assert (translation.train.epochs, summarization.train.epochs) == (25, 10)
    assert (translation.body.dropout, summarization.body.dropout) == (0.2, 0.0)
    assert (translation.body.query_tanh, summarization.body.query_tanh) == (False, True)
    for recipe in (translation, summarization):
        assert (recipe.train.batch_size, recipe.train.lr, recipe.train.clip_norm) == (64, 0.001, 5.0)
        assert recipe.methods == ("plain", "label-embedding@authors-text+soft_start=0.38")


def test_overrides_change_single_keys() -> None:
    changes = ["train.epochs=3", "train.lr=1", "data.folders=['a', 'b']", "train.dev=false", "train.optimizer=sgd"]
    recipe = load_recipe("mnist-mlp", [*changes, "train.precision=32", "methods=['plain']"])
    assert (recipe.train.epochs, recipe.train.lr, recipe.train.optimizer) == (3, 1.0, "sgd")
    assert recipe.data.folders == ("a", "b")
    assert recipe.train.dev is False
    assert recipe.train.precision == "32"
    assert recipe.methods == ("plain",)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.epoch=3", "unknown key 'train.epoch'; did you mean 'train.epochs'?"),
        ("epochs=3", "unknown key 'epochs'; did you mean 'train.epochs'?"),
        ("train.zzzzzz=3", "unknown key 'train.zzzzzz'; there are epochs, batch_size, "),
        ("trian.epochs=3", "unknown key 'trian'; did you mean 'train'?"),
        ("train.epochs=0", "train.epochs is 0, must be at least 1"),
        ("train.epochs=2.5", "train.epochs must be a whole number, not 2.5"),
        ("train.epochs=true", "train.epochs must be a whole number, not True"),
        ("train.lr=0", "train.lr is 0.0, must be above 0"),
        ("train.lr=inf", "train.lr must be finite"),
        ("train.lr=fast", "train.lr must be a number, not 'fast'"),
        ("train.momentum=1", "train.momentum is 1.0, must be below 1"),
        ("train.optimizer=adm", "allowed are adam, adamw, sgd; did you mean 'adam'?"),
        ("body.hidden=5", "body.hidden must be a list, not 5"),
        ("body.hidden=[5, 0]", "body.hidden is 0, must be at least 1"),
        ("train.dev=yes", "train.dev must be true or false, not 'yes'"),
        ("train=3", "'train' must be a table, not 3"),
        ("data.kind=3", "data.kind is 3, allowed are digits, idx, "),
        ("train.batch_size=3000000000", "train.batch_size is 3000000000, must be at most 2147483647"),
        ("methods=plain", "methods must be a list, not 'plain'"),
        ("task=translate", "allowed are classification"),
        ("train.epochs", "is not an override: write table.key=value"),
        ("name.first=3", "'name' is a value, not a table"),
    ],
)
def test_a_bad_override_is_one_line_with_what_is_allowed(override: str, message: str) -> None:
    assert message in error_of("digits", [override])


def test_an_unknown_recipe_is_answered_with_the_nearest_name() -> None:
    assert "did you mean 'mnist-mlp'?" in error_of("mnist-mpl")
    assert "unknown recipe 'zebra'" in error_of("zebra")
    assert len(error_of("a" * 400)) < 300  # no file has a name as long
    with pytest.raises(UserError, match="did you mean 'digits'"):
        recipe_text("digit")


def test_a_recipe_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert "missing.toml: No such file" in error_of(str(tmp_path / "missing.toml"))
    broken = write(tmp_path, "[train\n")
    assert f"{broken} is not a TOML file" in error_of(broken)
    foreign = tmp_path / "foreign.toml"
    foreign.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in error_of(str(foreign))
    foreign.unlink()
    foreign.symlink_to("/dev/zero")
    assert "foreign.toml: not a regular file" in error_of(str(foreign))


def test_a_byte_order_mark_before_a_recipe_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "digits.toml"
    file.write_bytes(b"\xef\xbb\xbf" + recipe_text("digits").encode())
    assert load_recipe(str(file)) == load_recipe("digits")


def test_the_fingerprint_follows_what_changes_a_result_and_nothing_else() -> None:
    recipe = load_recipe("mnist-mlp")
    same = ["name=other", "train.device=cpu", "data.folders=['x']", "methods=['plain']"]
    assert load_recipe("mnist-mlp", same).fingerprint() == recipe.fingerprint()
    other = {
        load_recipe("mnist-mlp", [change]).fingerprint()
        for change in ("train.lr=0.002", "head.rank=3", "data.max_per_label=3")
    }
    assert len(other | {recipe.fingerprint()}) == 4


def test_every_setting_has_a_line_of_documentation() -> None:
    tables = [table for setting in settings_of(Recipe) for table in setting.tables]
    assert len(tables) == 9 + 8 + 3  # data, body, and head, train, decode
    for table in (Recipe, *tables):
        assert (table.__doc__ or "").strip()
        assert [setting.name for setting in settings_of(table) if not setting.tables and not setting.help] == []


def test_a_key_of_another_kind_is_refused_with_the_kinds_that_have_it() -> None:
    message = "unknown key 'data.image_size' of data.kind = digits: image_folder has it"
    assert message in error_of("digits", ["data.image_size=64"])
    message = "unknown key 'body.layers' of body.kind = resnet8: seq2seq has it"
    assert message in error_of("cifar10-small", ["body.layers=2"])
    message = "unknown key 'data.test_size' of data.kind = idx: digits, image_folder, text_table, "
    assert message in error_of("mnist-mlp", ["data.test_size=0.1"])
    assert "unknown key 'data.ngram'" in error_of("text-csv", ["data.ngram=3"])
    assert "did you mean 'data.ngrams'?" in error_of("text-csv", ["data.ngram=3"])


def test_settings_of_texts_are_refused_where_nothing_is_generated() -> None:
    assert "'decode' is about texts to generate" in error_of("digits", ["decode.beam=3"])
    assert "'train.batch_tokens' is about texts to generate" in error_of("digits", ["train.batch_tokens=100"])
    assert "task = translation does not go with data.kind = digits" in error_of("digits", ["task=translation"])
    assert load_recipe("numbers-en-vi", ["decode.beam=3"]).fingerprint() != load_recipe("numbers-en-vi").fingerprint()


def test_an_override_of_a_kind_drops_what_the_recipe_says_for_the_kind_it_replaces() -> None:
    recipe = load_recipe("cifar10-small", ["body.kind=mlp"])  # its body.width is for a convolutional network
    assert recipe.body == MlpBody()
    message = "unknown key 'body.width' of body.kind = mlp"
    assert message in error_of("cifar10-small", ["body.kind=mlp", "body.width=0.5"])
    assert "body.kind is 'mpl', allowed are mlp, cnn, " in error_of("cifar10-small", ["body.kind=mpl"])


def test_a_table_without_a_kind_is_of_the_default_kind(tmp_path: Path) -> None:
    assert load_recipe(write(tmp_path, "[data]\ndev_size = 0.2\n")).data == DigitsData(dev_size=0.2)
