"""Bodies: networks from a batch of inputs to the hidden state h. Each knows its `out_features`."""

from labelemb.lab.bodies.make import make_body

__all__ = ["make_body"]
