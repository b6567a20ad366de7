"""Bodies: shapes, sizes and initial weights."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from labelemb.lab.bodies import make_body, start_from
from labelemb.lab.bodies.resnet import STAGES, ResNet
from labelemb.lab.data import Dataset, TextInputs, load_data
from labelemb.lab.recipes.recipe import Recipe, load_recipe, recipe_names
from labelemb.support.errors import UserError
from tests.helpers.tiny_data import small_sizes
from tests.helpers.tiny_pretrained import recipe_overrides

FEATURES = {
    "cifar10-resnet8": 2048,
    "cifar10-few": 500,
    "cifar10-small": 256,
    "cifar100-few": 500,
    "cifar100-pretrained": 512,
    "cifar100-small": 500,
    "cifar100-resnet18": 1024,
    "digits": 256,
    "image-folder": 512,
    "mnist-cnn": 1024,
    "mnist-mlp": 500,
    "text-csv": 256,
    "text-minilm": 12,
    "text-vectors": 8,
    "en-vi-news-small": 256,
    "iwslt15-en-vi": 512,
    "lcsts": 500,
    "multi30k-en-de-small": 256,
    "numbers-en-vi": 128,
    "zh-titles-small": 256,
}
TinyData = Callable[[str], Path | None]


def body_of(recipe: Recipe, dataset: Dataset) -> nn.Module:
    return make_body(recipe.body, dataset.inputs, len(dataset.label_names))


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_builds_its_body_and_maps_a_batch_to_hidden_states(
    name: str, tiny_data: TinyData, tmp_path: Path
) -> None:
    recipe = load_recipe(name, [*small_sizes(name), *recipe_overrides(name, tmp_path)])
    dataset = load_data(recipe, tiny_data(name), seed=1)
    body = body_of(recipe, dataset)
    inputs, targets = dataset.train.batch(torch.tensor([0, 3, 1]))
    if dataset.augment is not None:
        inputs = dataset.augment(inputs, torch.Generator().manual_seed(0))
    hidden = body(*inputs)
    assert hidden.shape == (*targets.shape, FEATURES[name])
    assert body.out_features == FEATURES[name]
    hidden.sum().backward()
    assert all(parameter.grad is not None for parameter in body.parameters())


def convolutions(counts: list[int], blocks: int) -> int:
    """Parameters of a residual network, counted by hand: 3x3 and 1x1 convolutions, two numbers per normed channel."""
    total = 3 * counts[0] * 9 + 2 * counts[0]
    before = counts[0]
    for count in counts:
        for block in range(blocks):
            total += before * count * 9 + count * count * 9 + 4 * count
            if block == 0 and before != count:
                total += before * count + 2 * count
            before = count
    return total


@pytest.mark.parametrize(("kind", "width"), [("resnet8", 1.0), ("resnet8", 0.125), ("resnet18", 1.0)])
def test_residual_networks_have_the_parameters_of_their_stages(kind: str, width: float) -> None:
    stages, blocks = STAGES[kind]
    body = ResNet(3, (32, 32), stages, blocks, width)
    expected = convolutions([round(count * width) for count in stages], blocks)
    assert sum(parameter.numel() for parameter in body.parameters()) == expected
    layers = sum(isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3) for layer in body.modules())
    assert layers + 1 == int(kind.removeprefix("resnet"))  # the output layer is the head's


def test_the_mnist_networks_start_with_truncated_normal_weights_and_zero_biases(tiny_data: TinyData) -> None:
    recipe = load_recipe("mnist-cnn")
    body = body_of(recipe, load_data(recipe, tiny_data("mnist-cnn"), seed=1))
    layers = [layer for layer in body.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    assert len(layers) == 3
    for layer in layers:
        assert layer.weight.abs().max() <= 0.2
        assert layer.weight.std().item() == pytest.approx(0.088, rel=0.1)  # a normal cut at two deviations is narrower
        assert layer.bias is not None
        assert not layer.bias.any()


@pytest.mark.parametrize("name", ["mnist-cnn", "cifar10-small"])
def test_convolutions_compute_with_the_channels_side_by_side(name: str, tiny_data: TinyData) -> None:
    recipe = load_recipe(name)
    dataset = load_data(recipe, tiny_data(name), seed=1)
    torch.manual_seed(0)
    body = body_of(recipe, dataset)
    (images,), _ = dataset.train.batch(torch.arange(8))

    outputs = []
    for layer in body.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda _layer, _inputs, output: outputs.append(output))
    hidden = body(images)
    assert len(outputs) >= 2
    assert all(output.is_contiguous(memory_format=torch.channels_last) for output in outputs)
    torch.testing.assert_close(body.to(memory_format=torch.contiguous_format)(images), hidden)


def test_initial_weights_come_from_the_global_generator(tiny_data: TinyData) -> None:
    recipe = load_recipe("digits")
    dataset = load_data(recipe, None, seed=1)

    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.nn.utils.parameters_to_vector(body_of(recipe, dataset).parameters())

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


@pytest.mark.parametrize("name", ["mnist-mlp", "mnist-cnn", "cifar10-small", "text-csv"])
def test_dropout_acts_in_training_and_not_in_evaluation(name: str, tiny_data: TinyData) -> None:
    recipe = load_recipe(name, ["body.dropout=0.5"])
    dataset = load_data(recipe, tiny_data(name), seed=1)
    body = body_of(recipe, dataset)
    inputs, _ = dataset.train.batch(torch.arange(4))
    assert not torch.equal(body(*inputs), body(*inputs))
    body.eval()
    assert torch.equal(body(*inputs), body(*inputs))


def test_a_text_without_known_words_has_a_finite_hidden_state(tiny_data: TinyData) -> None:
    recipe = load_recipe("text-csv")
    dataset = load_data(recipe, tiny_data("text-csv"), seed=1)
    body = body_of(recipe, dataset).eval()
    assert isinstance(dataset.inputs, TextInputs)
    inputs, _ = dataset.inputs.encode(["zzz", "", "weather"]).batch(torch.arange(3))
    hidden = body(*inputs)
    assert hidden.isfinite().all()
    assert torch.equal(hidden[0], hidden[1])
    assert not torch.equal(hidden[0], hidden[2])


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("text-csv", "body.kind=mlp", "body.kind = mlp reads images"),
        ("digits", "body.kind=embedding_bag", "body.kind = embedding_bag reads texts"),
        ("digits", "body.kind=resnet18", "images of 8 x 8 pixels are too small for body.kind = resnet18"),
    ],
)
def test_a_body_that_does_not_fit_the_data_is_refused(
    name: str, override: str, message: str, tiny_data: TinyData
) -> None:
    recipe = load_recipe(name, [override])
    dataset = load_data(recipe, tiny_data(name), seed=1)
    with pytest.raises(UserError, match=message):
        body_of(recipe, dataset)


def test_a_body_takes_over_the_weights_of_a_finished_run(tiny_data: TinyData) -> None:
    recipe = load_recipe("digits")
    dataset = load_data(recipe, None, seed=1)
    trained, fresh = body_of(recipe, dataset), body_of(recipe, dataset)
    tensors = {f"body.{name}": value for name, value in trained.state_dict().items()}
    start_from(fresh, tensors | {"head.predictor.weight": torch.zeros(10, 256)}, "runs/digits")
    vectors = [nn.utils.parameters_to_vector(body.parameters()) for body in (trained, fresh)]
    assert torch.equal(*vectors)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("body.hidden=[256, 128]", "its body has another shape, layers.3.weight is 256 x 256 there and 128 x 256 here"),
        ("body.hidden=[256]", "its body is another network, only that run has layers.3.bias"),
        ("body.kind=cnn", "its body is another network, only this recipe has convolutions.0.bias"),
    ],
)
def test_a_start_of_another_shape_is_refused_in_one_line(override: str, message: str) -> None:
    recipe = load_recipe("digits")
    dataset = load_data(recipe, None, seed=1)
    tensors = {f"body.{name}": value for name, value in body_of(recipe, dataset).state_dict().items()}
    with pytest.raises(UserError) as caught:
        start_from(body_of(load_recipe("digits", [override]), dataset), tensors, "runs/digits")
    assert str(caught.value) == f"body.start = runs/digits: {message}"
