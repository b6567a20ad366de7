"""Adapters to training libraries. Each is imported on its own, and only then needs its library.

labelemb.integrations.transformers  Hugging Face Transformers: `attach_to_pretrained`, `LabelEmbeddingCallback`
labelemb.integrations.lightning     PyTorch Lightning: `LabelEmbeddingCallback`
"""
