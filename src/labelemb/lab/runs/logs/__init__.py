"""Logs of a run: statistics of its updates, metrics.jsonl, TensorBoard, and trackers elsewhere."""
