"""The parts of the scikit-learn classifier against plain torch, and what happens without scikit-learn."""

from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import scipy.sparse
import sklearn
import torch

from labelemb import OnlineSmoothingHead
from labelemb.integrations import sklearn as integration
from labelemb.integrations.sklearn.examples import Examples, Rows, SparseBatch
from labelemb.integrations.sklearn.network import Design, FirstLayer, make_network
from labelemb.integrations.sklearn.training import planned_passes

DESIGN = Design(num_features=6, hidden_layer_sizes=(5, 4), num_labels=3, activation="tanh", method="label-embedding")


def sparse_rows() -> scipy.sparse.csr_array:
    """Ten rows of six features, one of them empty, one with a feature listed twice."""
    random = np.random.default_rng(0)
    dense = random.normal(size=(10, 6)) * (random.random((10, 6)) < 0.4)
    dense[3] = 0
    matrix = scipy.sparse.csr_array(dense)
    twice = scipy.sparse.csr_array(([1.5, 0.5], [2, 2], [0, 2]), shape=(1, 6))
    return scipy.sparse.vstack([matrix, twice], format="csr")


def test_a_sparse_batch_gives_the_first_layer_what_the_dense_one_gives() -> None:
    matrix, index = sparse_rows(), np.array([10, 3, 0, 0, 7])
    sparse = Rows(matrix).batch(index, torch.float64)
    dense = Rows(matrix.toarray()).batch(index, torch.float64)
    assert isinstance(sparse, SparseBatch)
    torch.testing.assert_close(sparse.dense(), dense)
    layer = FirstLayer(6, 4).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    gradients = []
    for batch in (sparse, dense):
        layer.zero_grad()
        hidden = layer(batch)
        (hidden**2).sum().backward()
        gradients.append([hidden.detach(), *(parameter.grad for parameter in layer.parameters())])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_a_batch_without_any_entry_is_zeros() -> None:
    empty = Rows(scipy.sparse.csr_array((4, 6))).batch(np.array([0, 1]), torch.float32)
    layer = FirstLayer(6, 4)
    torch.nn.init.ones_(layer.bias)
    torch.testing.assert_close(layer(empty), torch.ones(2, 4))


def test_initial_weights_depend_on_the_seed_alone_and_leave_torchs_generator_alone() -> None:
    before = torch.get_rng_state()
    states = [
        make_network(DESIGN, rows_per_epoch=10, seed=seed, dtype=torch.float32).state_dict() for seed in (1, 1, 2)
    ]
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)
    assert not torch.equal(states[0]["body.first.weight"], states[2]["body.first.weight"])


def test_methods_that_average_over_an_epoch_take_100_rows_a_label_where_nobody_says_it() -> None:
    for change in ({"method": "online-smoothing"}, {"embedding": "running"}):
        head = make_network(replace(DESIGN, **change), rows_per_epoch=None, seed=0, dtype=torch.float32).head
        averaging = head if isinstance(head, OnlineSmoothingHead) else head.embedding
        assert averaging.rows_per_epoch == 300


@pytest.mark.parametrize(
    ("rows", "batch_size", "max_iter", "passes"),
    [
        (15_000, "auto", None, 27),
        (1_000_000, "auto", None, 20),
        (50, "auto", None, 200),
        (50, 1, None, 40),
        (50, 9, 3, 3),
    ],
)
def test_passes_are_planned_by_the_number_of_updates(
    rows: int, batch_size: int | Literal["auto"], max_iter: int | None, passes: int
) -> None:
    nothing = np.zeros(rows)
    examples = Examples(Rows(nothing), nothing, None, np.arange(rows))
    assert planned_passes(examples, batch_size, max_iter) == passes


def test_without_scikit_learn_the_core_works_and_the_classifier_says_what_to_install() -> None:
    program = """
import sys
sys.modules["sklearn"] = None
import labelemb
try:
    import labelemb.integrations.sklearn
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert (
        done.stdout.strip()
        == "labelemb.integrations.sklearn needs the package scikit-learn: pip install 'labelemb[sklearn]'"
    )


@pytest.mark.parametrize("version", ["1.5.2", "2.0.dev0"])
def test_an_untested_scikit_learn_is_a_warning_that_names_the_range(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sklearn, "__version__", version)
    with pytest.warns(UserWarning, match=rf"scikit-learn {version} .* tested with 1\.\d to 1\.9 only"):
        importlib.reload(integration)


def test_the_installed_scikit_learn_is_tested(recwarn: pytest.WarningsRecorder) -> None:
    importlib.reload(integration)
    assert not recwarn.list
