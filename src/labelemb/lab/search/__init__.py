"""Searches for the best method and strength on a dev set, with Optuna's samplers, pruner and journal."""
