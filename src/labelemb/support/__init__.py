"""What every other folder uses and that knows nothing of labels."""
