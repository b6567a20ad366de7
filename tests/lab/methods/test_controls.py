"""The two controls: what they take away from the method, and that nothing else changes."""

from __future__ import annotations

import torch

from labelemb import Objective
from labelemb.lab.methods.controls import FlatTargetHead, SingleOutputHead
from tests.helpers.oracle import linear, objective_value, softmax

HIDDEN = 2 * torch.randn(7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LABELS = torch.tensor([0, 1, 2, 3, 1, -100, 2])


def test_a_single_output_teaches_the_embedding_itself() -> None:
    torch.manual_seed(0)
    head = SingleOutputHead(3, 4, embedding="dense", objective=Objective()).double()
    assert head.observer is None
    table = head.embedding.weight.detach().clone().requires_grad_()
    z = linear(HIDDEN, head.predictor.weight, head.predictor.bias).detach()
    expected = objective_value(z, z, table, LABELS, head.objective)
    output = head(HIDDEN, LABELS)
    for name in ("hard", "soft", "embedding"):
        torch.testing.assert_close(getattr(output.terms, name), getattr(expected, name))
    assert output.terms.observer.item() == output.terms.cap.item() == 0.0
    output.loss.backward()
    expected.embedding.backward()
    torch.testing.assert_close(head.embedding.weight.grad, table.grad)


def test_a_flat_target_keeps_the_labels_own_mass_and_nothing_of_its_similarities() -> None:
    torch.manual_seed(0)
    head = FlatTargetHead(3, 4, embedding="dense", objective=Objective()).double()
    with torch.no_grad():
        head.embedding.weight.normal_()
    z1 = linear(HIDDEN, head.predictor.weight, head.predictor.bias)
    z2 = linear(HIDDEN, head.observer.weight, head.observer.bias)
    learned = objective_value(z1, z2, head.embedding.weight, LABELS, head.objective)
    own = torch.stack([softmax(row)[y] for y, row in enumerate(head.embedding.weight)]).detach()
    flat = ((1 - own) / 3).unsqueeze(1).repeat(1, 4)
    flat[range(4), range(4)] = own
    even = objective_value(z1, z2, flat, LABELS, head.objective, learned=False)
    terms = head(HIDDEN, LABELS).terms
    torch.testing.assert_close(terms.soft, even.soft)
    assert not torch.isclose(terms.soft, learned.soft)
    torch.testing.assert_close(terms.embedding, learned.embedding)
