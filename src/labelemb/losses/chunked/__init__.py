"""The loss in chunks of rows, with bounded memory."""
