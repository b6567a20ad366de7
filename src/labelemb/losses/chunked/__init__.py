"""The objective in chunks of rows: gradients are computed in the forward pass, with logits of one chunk at a time.

What makes one pass enough:

- hard and soft: cross entropy with any target t is lse(z) - t . z, and its gradient on z1 with weights w_h and w_s is
  (w_h + w_s) softmax(z1) - w_h onehot(y) - w_s q_y, with q_y the soft target of the row's label: no second softmax.
- observer and cap depend on one number a row, p = softmax(z2)_y, and their gradient is (1 - c g'(p) p) (softmax(z2) -
  onehot(y)) with g the cap and c its weight. The hidden state is stopped, so the observer costs two matrix products.
- embedding: summed by label it is n_y lse(e_y) - T_y . e_y, with T_y the sum of z2'' over the rows of y, so all work on
  the embedding is (distinct labels, labels).
- the derivatives are written by hand because that is faster: on two cores, 800 rows of 22,439 labels in two chunks take
  1.34 times as long with `torch.func.grad_and_value` of a chunk, and 1.20 times with that function compiled by
  inductor, whose softmax alone takes 2.6 times as long as torch's own.
- a row's weight is a factor of its whole gradient, so it is folded into the narrower side of the products.
"""

from labelemb.losses.chunked.loss import ChunkOptions, chunked_loss

__all__ = ["ChunkOptions", "chunked_loss"]
