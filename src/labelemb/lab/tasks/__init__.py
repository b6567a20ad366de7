"""Tasks: what a model is trained for and how it is scored."""
