"""Finds pretrained networks, vectors and tokenizers, and reads their files without executing code."""
