"""Cross entropy and label embedding side by side on scikit-learn's handwritten digits: a body, a loop, three heads."""

from collections.abc import Callable
from statistics import mean, stdev

import torch
from sklearn.datasets import load_digits
from torch import nn

from labelemb import Head, LabelEmbeddingHead, Objective, PlainHead, parameter_groups

SEEDS, EPOCHS, BATCH, TRAINING = 5, 20, 50, 600
METHODS: dict[str, Callable[[], Head]] = {
    "plain": lambda: PlainHead(256, 10),
    "label embedding": lambda: LabelEmbeddingHead(256, 10),
    "rising floor": lambda: LabelEmbeddingHead(
        256, 10, embedding="running", objective=Objective.rising_floor(), rows_per_epoch=TRAINING
    ),
}

digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
train, test = order[:TRAINING], order[TRAINING:]


def run(make_head: Callable[[], Head], seed: int) -> tuple[Head, float]:
    """Train one head and its body; gives the head and the test error in percent."""
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
    head = make_head()
    optimizer = torch.optim.Adam(parameter_groups(nn.ModuleList([body, head]), lr=1e-3))
    for epoch in range(EPOCHS):
        for batch in train[torch.randperm(len(train))].split(BATCH):
            optimizer.zero_grad()
            head(body(images[batch]), labels[batch], progress=epoch / (EPOCHS - 1)).loss.backward()
            optimizer.step()
    with torch.no_grad():
        wrong = head(body(images[test])).argmax(-1) != labels[test]
    return head, 100 * wrong.float().mean().item()


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"{len(train)} training and {len(test)} test digits, {EPOCHS} epochs, {SEEDS} seeds")
    print("method           test error %  spread")
    for name, make_head in METHODS.items():
        heads, errors = zip(*(run(make_head, seed) for seed in range(SEEDS)), strict=True)
        print(f"{name:<17}{mean(errors):12.2f}  {stdev(errors):6.2f}", flush=True)
    space = heads[-1].label_space()
    print("\nnearest labels of each digit (the last head's)")
    for digit in space.names:
        print(f"  {digit}: " + ", ".join(f"{other} {share:.3f}" for other, share in space.nearest(digit, k=3)))
