"""Handwritten digits by PyTorch Lightning: a module with a label embedding head, and what it learned about digits."""

import pytorch_lightning as pl
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from labelemb import LabelEmbeddingHead, LabelSpace, Objective, parameter_groups
from labelemb.integrations.lightning import LabelEmbeddingCallback

Batch = tuple[Tensor, Tensor]


class Digits(pl.LightningModule):
    """Two layers and a head. Beside the head's one line it is any Lightning classifier."""

    def __init__(self, objective: Objective, rows_per_epoch: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.head = LabelEmbeddingHead(256, 10, embedding="running", objective=objective, rows_per_epoch=rows_per_epoch)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        images, labels = batch
        return self.head(self.body(images), labels).loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        images, labels = batch
        self.log("error", 100 * (self(images).argmax(-1) != labels).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameter_groups(self, lr=1e-3))


def main(epochs: int = 20, folder: str = "runs/lightning-digits") -> float:
    """Train, save and read again; gives the validation error in percent."""
    pl.seed_everything(0)
    digits = load_digits()
    data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))
    training, validation = random_split(data, [600, len(data) - 600])
    module = Digits(Objective.rising_floor(), rows_per_epoch=len(training))
    trainer = pl.Trainer(
        max_epochs=epochs,
        default_root_dir=folder,
        accelerator="cpu",
        logger=pl.loggers.CSVLogger(folder),
        log_every_n_steps=5,
        callbacks=[LabelEmbeddingCallback(names=[str(name) for name in digits.target_names])],
    )
    trainer.fit(module, DataLoader(training, batch_size=50, shuffle=True), DataLoader(validation, batch_size=1197))
    print(f"validation error: {trainer.callback_metrics['error']:.2f} %")
    space = LabelSpace.load(f"{trainer.log_dir}/label_space.safetensors")
    for digit in space.names:
        print(f"  {digit}: " + ", ".join(f"{other} {share:.3f}" for other, share in space.nearest(digit, k=3)))
    return float(trainer.callback_metrics["error"])


if __name__ == "__main__":
    main()
