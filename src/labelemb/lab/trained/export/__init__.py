"""Trained models as files that need no labelemb."""
