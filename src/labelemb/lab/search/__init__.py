"""Searches: which method and strength does best on a dev set, with Optuna's samplers, pruner and journal."""
