"""scikit-learn's own specification of an estimator.

Three checks skip themselves, where pandas is not installed or SCIPY_ARRAY_API is not set; none is left out here. Fewer
passes than by default keep the time down.
"""

from __future__ import annotations

from collections.abc import Callable

from sklearn.utils.estimator_checks import parametrize_with_checks

from labelemb.integrations.sklearn import LabelEmbeddingClassifier


@parametrize_with_checks([LabelEmbeddingClassifier(max_iter=40)])
def test_the_classifier_is_an_estimator(
    estimator: LabelEmbeddingClassifier, check: Callable[[LabelEmbeddingClassifier], None]
) -> None:
    check(estimator)
