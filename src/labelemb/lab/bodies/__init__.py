"""Bodies: networks from a batch of inputs to the hidden state h. Each knows its `out_features`."""

from labelemb.lab.bodies.feature_body import FeatureBody
from labelemb.lab.bodies.make import make_body, start_from
from labelemb.lab.bodies.pretrained import kept_architecture

__all__ = ["FeatureBody", "kept_architecture", "make_body", "start_from"]
