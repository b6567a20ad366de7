"""summary.json, table.md and curves.png of results/NAME, written anew from the runs in results/runs/NAME.

python results/refresh.py              # all that are there
python results/refresh.py mnist-mlp
"""

import sys
from pathlib import Path

from labelemb.lab.comparison.summary import read_results
from labelemb.lab.jobs.compare import write_tables
from labelemb.support.files import make_folder

HERE = Path(__file__).parent


def kept() -> list[str]:
    """The comparisons whose tables are kept."""
    return sorted(file.parent.name for file in HERE.glob("*/summary.json"))


def refresh(name: str) -> None:
    results = read_results(HERE / "runs" / name)
    if not results.finished:
        raise SystemExit(f"there are no finished runs in {HERE / 'runs' / name}; kept are {', '.join(kept())}")
    make_folder(HERE / name)
    write_tables(results, HERE / name)


if __name__ == "__main__":
    for name in sys.argv[1:] or kept():
        refresh(name)
