"""What an audit finds in the 10,000 test images of CIFAR-10 as published: ten of them as a picture, and people's votes.

`LabelEmbeddingClassifier` predicts out of fold from the features of a frozen EfficientNet-Lite0 (extra `efficientnet`),
and `labelemb.audit` ranks the images. `--votes` is mturk/cifar10_mturk.json of github.com/cleanlab/label-errors: how
many of five people saw the given label in an image that cleanlab had flagged. Fewer than three count as an error.

    python -m benchmarks.audit_cifar10 --data cifar-10-batches-bin --out DIR --picture ten.png --votes FILE
"""

import argparse
import json
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from torch import Tensor
from torch.nn import functional as F

from labelemb import Objective, audit
from labelemb.findings import Audit, ExampleFinding
from labelemb.integrations.sklearn import LabelEmbeddingClassifier
from labelemb.lab import load_recipe
from labelemb.lab.bodies.efficientnet import MEAN, STD, EfficientNetLite
from labelemb.lab.data import AuditedData, read_audited

SIZE = 96
BATCH = 64
COLUMNS = 5
ENOUGH_VOTES = 3
"""Of five, where a given label counts as right."""


@torch.inference_mode()
def features_of(images: Tensor, kept: Path) -> np.ndarray:
    """(rows, 1280) of images as bytes (rows, 3, height, width); kept in a file, from which they are read again."""
    if kept.exists():
        return np.load(kept)
    network = EfficientNetLite((SIZE, SIZE), weights=True).eval()
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (MEAN, STD))
    found = []
    for batch in images.split(BATCH):
        found.append(network(F.interpolate((batch / 255 - mean) / std, (SIZE, SIZE), mode="bilinear")))
    features = torch.cat(found).numpy()
    np.save(kept, features)
    return features


def out_of_fold(features: np.ndarray, labels: np.ndarray, folds: int) -> np.ndarray:
    scaled = ((features - features.mean(axis=0)) / (features.std(axis=0) + 1e-6)).astype(np.float32)
    model = LabelEmbeddingClassifier(  # without a hidden layer: with one of 512, more predictions out of fold are wrong
        (),
        embedding="dense",
        objective=Objective(),
        alpha=0.01,
        batch_size=128,
        learning_rate_init=0.0005,
        max_iter=8,
        random_state=0,
    )
    splits = StratifiedKFold(folds, shuffle=True, random_state=0)
    return cross_val_predict(model, scaled, labels, cv=splits, method="predict_proba")


def draw(examples: list[ExampleFinding], images: Tensor, file: Path) -> None:
    """The images with their given and suggested label."""
    lines = -(-len(examples) // COLUMNS)
    figure, axes = plt.subplots(lines, COLUMNS, figsize=(1.7 * COLUMNS, 2.1 * lines), dpi=75)
    for axis, example in zip(axes.flat, examples, strict=True):
        axis.imshow(images[example.index].permute(1, 2, 0), interpolation="nearest")
        axis.set_title(f"{example.given_label}\n→ {example.suggested_label}", fontsize=9)
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(file)


def confirm(found: Audit, votes: Path, first: int) -> str:
    """How many labels that people call wrong are among the flagged and the first examples."""
    wrong = {entry["id"] for entry in json.loads(votes.read_text()) if entry["mturk"]["given"] < ENOUGH_VOTES}
    hits = np.isin(found.examples.order, list(wrong))
    flagged = found.examples.num_issues
    precision = average_precision_score(hits, -np.arange(len(hits)))
    return (
        f"{len(wrong)} labels are wrong by people's votes: {hits[:first].sum()} of them among the first {first} "
        f"examples, {hits[:flagged].sum()} among the {flagged} flagged, {hits[: 2 * flagged].sum()} among the first "
        f"{2 * flagged}; average precision {precision:.3f}"
    )


def test_part(read: AuditedData) -> tuple[Tensor, np.ndarray]:
    """Images and labels of the test part."""
    assert read.images is not None
    return torch.from_numpy(read.images[read.judged]), read.targets[read.judged]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="where features, audit.csv and audit.json are kept")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--votes", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    read = read_audited(load_recipe("cifar10-small"), options.data, options.folds, ("test",))
    images, labels = test_part(read)
    start = time.process_time()
    features = features_of(images, options.out / "features.npy")
    middle = time.process_time()
    probabilities = out_of_fold(features, labels, options.folds)
    print(f"seconds of processor time: {middle - start:.0f} features, {time.process_time() - middle:.0f} folds")
    found = audit(probabilities, labels, read.label_names)
    print(found)
    found.to_csv(options.out / "audit.csv")
    found.to_json(options.out / "audit.json")
    if options.picture:
        draw(found.examples[:10], images, options.picture)
    if options.votes:
        print(f"\n{confirm(found, options.votes, 10)}")


if __name__ == "__main__":
    main()
