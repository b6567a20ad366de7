"""Checkpoints: the file that a killed run goes on from, and what it holds."""

from labelemb.lab.runs.checkpoint.file import CorruptCheckpoint, drop_checkpoints, load_checkpoint, save_checkpoint

__all__ = ["CorruptCheckpoint", "drop_checkpoints", "load_checkpoint", "save_checkpoint"]
