"""The registry makes every method's head by name."""

from __future__ import annotations

import pytest
import torch

from labelemb import Head, LabelEmbeddingHead, PlainHead
from labelemb.heads import registry

NAMES = ("plain", "label-smoothing", "label-embedding", "online-smoothing", "confidence-penalty", "teacher-free")


def test_the_methods_of_the_core_are_registered() -> None:
    assert registry.names()[: len(NAMES)] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_method_is_made_from_sizes_and_facts_about_the_training(name: str) -> None:
    head = registry.make(name, 3, 4, rows_per_epoch=20, total_steps=10)
    assert (head.in_features, head.num_labels) == (3, 4)
    head(torch.randn(5, 3), torch.tensor([0, 1, 2, 3, 0])).loss.backward()


def test_options_reach_the_head() -> None:
    head = registry.make("label-smoothing", 3, 4, label_smoothing=0.3)
    assert isinstance(head, PlainHead)
    assert head.label_smoothing == 0.3
    assert registry.make("label-smoothing", 3, 4).label_smoothing == 0.1
    with pytest.raises(TypeError, match="penalty"):
        registry.make("plain", 3, 4, penalty=1)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown method 'smoothing': known are plain, label-smoothing"):
        registry.make("smoothing", 3, 4)


def test_online_smoothing_asks_for_the_rows_of_an_epoch() -> None:
    with pytest.raises(ValueError, match="rows_per_epoch="):
        registry.make("online-smoothing", 3, 4)


def test_others_register_methods_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))

    def factory(in_features: int, num_labels: int, **options: object) -> Head:
        return PlainHead(in_features, num_labels)

    registry.register("mine", factory)
    registry.register("mine", factory)
    assert registry.names()[-1] == "mine"
    assert isinstance(registry.make("mine", 3, 4), PlainHead)
    with pytest.raises(ValueError, match="'mine' is registered already"):
        registry.register("mine", LabelEmbeddingHead)
