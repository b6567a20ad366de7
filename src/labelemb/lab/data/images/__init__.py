"""Readers of images."""
