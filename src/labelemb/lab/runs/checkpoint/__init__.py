"""Checkpoints: the file from which a killed run resumes, and its contents."""

from labelemb.lab.runs.checkpoint.file import CorruptCheckpoint, drop_checkpoints, load_checkpoint, save_checkpoint

__all__ = ["CorruptCheckpoint", "drop_checkpoints", "load_checkpoint", "save_checkpoint"]
