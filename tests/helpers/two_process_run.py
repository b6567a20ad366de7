"""Train a tiny language model by the Trainer in as many processes as started it; the first saves what came out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from labelemb import Objective
from labelemb.integrations.transformers import attach_to_pretrained
from tests.helpers import tiny_models
from tests.helpers.small_runs import arguments, counting_rows, trainer_of


def run(folder: Path) -> None:
    torch.manual_seed(0)
    objective = Objective.rising_floor()
    model = attach_to_pretrained(tiny_models.gpt2(), embedding="running", objective=objective, rows_per_epoch=100)
    processes = {"ddp_backend": "gloo"} if torch.distributed.is_torchelastic_launched() else {}
    size = 4 if processes else 8
    args = arguments(folder, max_steps=3, optim="sgd", per_device_train_batch_size=size, logging_steps=1, **processes)
    trainer = trainer_of(model, counting_rows(), args)
    trainer.train()
    if args.process_index == 0:
        save_file({name: tensor.clone() for name, tensor in model.state_dict().items()}, folder / "state.safetensors")
        (folder / "log.json").write_text(json.dumps(trainer.state.log_history), encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(Path(sys.argv[1]))
