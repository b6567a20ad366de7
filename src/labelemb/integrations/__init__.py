"""Adapters to training libraries. Each is imported separately, and only it needs its library.

labelemb.integrations.sklearn       scikit-learn: `LabelEmbeddingClassifier`
labelemb.integrations.transformers  Hugging Face Transformers: `attach_to_pretrained`, `LabelEmbeddingCallback`
labelemb.integrations.lightning     PyTorch Lightning: `LabelEmbeddingCallback`
"""
