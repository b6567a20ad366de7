"""The lab: recipes, data, bodies, one training loop, and comparisons of methods (needs the extra `[lab]`)."""
