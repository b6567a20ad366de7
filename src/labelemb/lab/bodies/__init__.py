"""Bodies: networks from a batch of inputs to the hidden state h. Each knows its `out_features`."""

from labelemb.lab.bodies.make import make_body, start_from

__all__ = ["make_body", "start_from"]
