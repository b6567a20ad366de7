"""The data that the tests of the classifier share."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from tests.helpers.classifiers import NAMES


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray]:
    """450 rows of four classes that overlap a little: three batches a pass."""
    X, y = make_blobs(450, centers=4, n_features=5, cluster_std=2.0, random_state=0)
    return X / 5, NAMES[y]
