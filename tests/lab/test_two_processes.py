"""torchrun: two processes give the result of one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from quick_runs import quick_run, read_records

from labelemb.lab.recipe import load_recipe

# 500 examples: the last of seven updates has two rows, so that one process is left without any
OVERRIDES = ["train.epochs=3", "body.hidden=[16]", "train.lr=0.01", "train.batch_size=83", "train.clip_norm=1"]
# the running embedding learns with each part of a batch, so that only without parts it is the same
RUNS = {
    "label-embedding": ["train.accumulate=2"],
    "label-embedding@recommended": [],
    "online-smoothing": ["train.accumulate=2"],
}
# several runs in one start of the processes, which takes longer than the training
SCRIPT = """
import json, sys
from labelemb.lab.cli import main
sys.exit(max(main(arguments) for arguments in json.loads(sys.argv[1])))
"""


def arguments(method: str, out: Path) -> list[str]:
    settings = [word for override in OVERRIDES + RUNS[method] for word in ("--set", override)]
    return ["train", "digits", "--method", method, "--out", str(out / method), *settings]


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("two")
    (out / "runs.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--"]
    done = subprocess.run(
        [*command, str(out / "runs.py"), json.dumps([arguments(method, out) for method in RUNS])],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test error") == len(RUNS), "one process speaks for all"
    return out


@pytest.mark.parametrize("method", RUNS)
def test_two_processes_give_the_result_of_one(two_processes: Path, tmp_path: Path, method: str) -> None:
    result = quick_run(tmp_path, load_recipe("digits", OVERRIDES + RUNS[method]), method)
    for one, two in zip(read_records(tmp_path), read_records(two_processes / method), strict=True):
        for name in ("loss", "dev_nll", "test_nll", "train_error"):
            assert two[name] == pytest.approx(one[name], rel=1e-3), name
        assert two["terms"] == pytest.approx(one["terms"], rel=1e-3)
    again = (two_processes / method / "result.json").read_text()
    assert f'"best_step": {result["best_step"]},' in again
