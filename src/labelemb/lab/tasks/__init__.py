"""Tasks: what a model is trained for, how it is scored, and how it predicts."""

from labelemb.lab.tasks.registry import make_task, read_result, task_of_facts, task_of_result

__all__ = ["make_task", "read_result", "task_of_facts", "task_of_result"]
