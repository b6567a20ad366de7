"""scikit-learn: `LabelEmbeddingClassifier`, a multilayer perceptron that trains with soft labels (extra `sklearn`)."""

from labelemb.integrations.sklearn.versions import require_scikit_learn

require_scikit_learn()

from labelemb.integrations.sklearn.classifier import LabelEmbeddingClassifier  # noqa: E402  only after the check

__all__ = ["LabelEmbeddingClassifier"]
