"""Trained models, loaded from run folders."""
