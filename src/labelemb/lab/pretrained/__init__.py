"""Where pretrained networks, vectors and tokenizers are, and their files read without executing code."""
