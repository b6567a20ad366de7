"""Checks by file names whether a path is the folder of a finished run, without slow imports."""

from pathlib import Path

from labelemb.support.errors import UserError

RUN, RESULT, LABELS = "run.json", "result.json", "labels.safetensors"


def run_paths(folder: Path) -> list[Path]:
    """The folders of a comparison's runs, finished or not: METHOD/seed-N below it."""
    paths = sorted(path for path in folder.glob("*/seed-*") if path.is_dir())
    return [path for path in paths if path.name.removeprefix("seed-").isdecimal()]


def has_begun(folder: Path) -> bool:
    return (folder / RESULT).exists() or (folder / RUN).exists()


def require_finished(folder: Path) -> None:
    """Refuse what is not the folder of a finished run."""
    if not folder.is_dir():
        raise UserError(f"there is no run folder {folder}")
    if (folder / RESULT).exists():
        return
    if not has_begun(folder) and (below := run_paths(folder)):
        raise UserError(f"{folder} holds a comparison: name one of its runs, as {below[0]}")
    raise UserError(f"{folder} holds no finished run (no result.json)")


def require_labels(path: Path) -> None:
    """Refuse a folder that holds no label space and no finished run that could say why."""
    if not path.is_dir() or (path / LABELS).exists():
        return
    if not has_begun(path) and (below := [run for run in run_paths(path) if (run / LABELS).exists()]):
        raise UserError(f"{path} holds a comparison: name one of its runs, as {below[0]}")
    require_finished(path)
