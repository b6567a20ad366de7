"""scikit-learn: `LabelEmbeddingClassifier`, a multilayer perceptron that trains with soft labels (extra `sklearn`)."""

from labelemb.support.optional import require_version

OLDEST, NEWEST = (1, 6), (1, 9)
require_version("sklearn", extra="sklearn", oldest=OLDEST, newest=NEWEST, distribution="scikit-learn")

from labelemb.integrations.sklearn.classifier import LabelEmbeddingClassifier  # noqa: E402  only after the check

__all__ = ["LabelEmbeddingClassifier"]
