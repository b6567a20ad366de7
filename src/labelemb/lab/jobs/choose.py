"""`choose`: searches a method on a dev set, then tests it with fresh seeds.

The folder of a choice:

search/      the study, and a run for each trial
fresh/       a comparison: what the search chose, plain, label smoothing 0.1 and, if the choice learns, the best method
             that learns nothing, with seeds that the search never used
choice.toml  the recipe with the method to take
choice.json  trials, tests and the choice, for programs
table.md     the same to read
trials.png   the best dev score of each trial
"""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from labelemb.lab.comparison.make import make_pool
from labelemb.lab.comparison.plan import Comparison
from labelemb.lab.comparison.protocol import WorkerSetup
from labelemb.lab.comparison.ray import Cluster
from labelemb.lab.comparison.seeds import check_seeds
from labelemb.lab.comparison.summary import Summary
from labelemb.lab.comparison.tables import fitted, markdown, render, wrapped
from labelemb.lab.comparison.tables import show as show_summary
from labelemb.lab.data import Dataset, load_data
from labelemb.lab.jobs.compare import check_feasible, check_folder, run_comparison
from labelemb.lab.jobs.progress import SearchProgress
from labelemb.lab.jobs.workers import watch
from labelemb.lab.methods.method import Method, parse_method
from labelemb.lab.methods.python_code import python_lines
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.runs.folder import RunFolder, find_runs, keep_recipe
from labelemb.lab.runs.messages import RunOptions
from labelemb.lab.search.advice import Advice, advise
from labelemb.lab.search.pages import plot_trials, trial_table
from labelemb.lab.search.queue import TrialQueue
from labelemb.lab.search.space import BASELINE, SMOOTHING, Space
from labelemb.lab.search.study import Study, Trial
from labelemb.lab.tasks import make_task
from labelemb.support.errors import UserError
from labelemb.support.files import write_json, write_text
from labelemb.support.folders import MadeFolder

TRIALS = 24
"""Trials of a search that is given neither a number nor a budget."""
FRESH_SEEDS = 5
MOST_TESTED = 4
"""Methods of the final test at most: the choice, plain, label smoothing 0.1, and the best that learns nothing."""
TESTED = "Fresh seeds, on the test set:"
DEV_SHARE = 0.1
"""Of the training examples, for a search on data without a dev set."""


@dataclass(frozen=True)
class Choice:
    """What came of a search."""

    method: str
    """The method to take."""
    reason: str
    """Why, in one or two sentences."""
    searched: str
    """The method with the best dev score in the search."""
    simpler: str | None
    """The best of those that learn nothing, tested beside the others; None if it is one of them."""
    trials: list[Trial]
    summary: Summary | None
    """Test scores over fresh seeds, with the paired tests; None if the budget left no time for them."""
    code: tuple[str, ...]
    """Lines of Python that train with the method."""
    out: Path

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "reason": self.reason,
            "searched": self.searched,
            "simpler": self.simpler,
            "code": list(self.code),
            "trials": [asdict(trial) for trial in self.trials],
            "fresh": None if self.summary is None else self.summary.to_json(),
        }


@dataclass(frozen=True)
class Search:
    """What to search, and within which limits."""

    recipe: Recipe
    data: Path | None
    out: Path
    trials: int | None
    budget: float
    """Seconds for everything."""
    seed: int
    fresh_seeds: int
    jobs: int | None
    """How many trainings at once; None for one on each processor core, or for all that the cluster has room for."""
    options: RunOptions
    begun: float
    """The time of `time.monotonic` at which the budget began."""
    cluster: Cluster | None = None
    """Where they are trained; None is this machine."""

    @property
    def deadline(self) -> float:
        return self.begun + self.budget


def choose(
    recipe: Recipe,
    *,
    out: Path | str,
    data: Path | str | None = None,
    trials: int | None = None,
    budget: float | None = None,
    seed: int = 0,
    fresh_seeds: int = FRESH_SEEDS,
    jobs: int | None = None,
    options: RunOptions = RunOptions(threads=1),  # noqa: B008  frozen
    cluster: Cluster | None = None,
) -> Choice:
    """Search the method and strength with the best dev score, then test it with fresh seeds.

    A search that was stopped goes on where it was, also after `kill -9`; several processes may search in one folder.

    Args:
        recipe: data, body and training; made by `load_recipe`.
        out: the folder of the choice.
        data: the data; None looks in the usual places.
        trials: how many trials the search has at most; 24 if there is no budget either.
        budget: seconds for search and test together; when they are over, what is there is reported.
        seed: of the search and of every training in it.
        fresh_seeds: how many seeds of the final test; they follow `seed`.
        jobs: how many trainings at once; None is one for each processor core, or all that the cluster has room for.
            With 1 and no budget the same seed gives the same winner again.
        options: how to run.
        cluster: a Ray cluster whose machines share the folder; None trains in processes of this machine.
    """
    if budget is not None and not 0 < budget < math.inf:
        raise UserError(f"the budget is {budget} seconds, but must be above 0")
    for name, count in (("trials", trials), ("fresh_seeds", fresh_seeds), ("jobs", jobs)):
        if count is not None and count < 1:
            raise UserError(f"{name} is {count}, but must be 1 or more")
    check_seeds(fresh_seeds)
    check_seeds(range(seed, seed + 1 + fresh_seeds))
    search = Search(
        with_one_split(recipe, seed),
        None if data is None else Path(data),
        Path(out),
        TRIALS if trials is None and budget is None else trials,
        math.inf if budget is None else budget,
        seed,
        fresh_seeds,
        jobs,
        options,
        time.monotonic(),
        cluster,
    )
    return run_search(search)


def run_search(search: Search) -> Choice:
    """Search, test with fresh seeds, and write what was found."""
    if RunFolder(search.out).has_begun or find_runs(search.out):
        raise UserError(f"{search.out} holds runs that are not a search: choose another --out")
    recipe, data = searched_recipe(search)
    starts = [start.method for start in Space(len(data.label_names)).starts]
    check_feasible(_comparison(search, recipe, search.out / "search", starts), data)
    trials, best, simple = _search(search, recipe, data)
    methods = list(dict.fromkeys([BASELINE, SMOOTHING, best.method]))
    simpler = None if simple is None or simple.method in methods else simple.method
    summary = _test(search, methods if simpler is None else [*methods, simpler])
    main = make_task(search.recipe).main
    advice = advise(best.method, summary, main, simpler)
    code = python_lines(parse_method(advice.method), search.recipe, len(data.label_names))
    choice = Choice(advice.method, advice.reason, best.method, simpler, trials, summary, code, search.out)
    write_choice(choice, search.recipe)
    return choice


def with_one_split(recipe: Recipe, seed: int) -> Recipe:
    """The recipe with one split of its data for all seeds: a split anew would test on examples of the search."""
    if getattr(recipe.data, "split_seed", seed) >= 0:
        return recipe
    return msgspec.structs.replace(recipe, data=msgspec.structs.replace(recipe.data, split_seed=seed))


def searched_recipe(search: Search) -> tuple[Recipe, Dataset]:
    """The recipe of the search's trainings and its data: as given, with a dev set, and the best dev evaluation."""
    recipe = search.recipe
    data = load_data(recipe, search.data, search.seed)
    train = msgspec.structs.replace(recipe.train, dev=True)
    if data.dev is not None:
        return msgspec.structs.replace(recipe, train=train), data
    settings = msgspec.structs.replace(recipe.data, dev_size=DEV_SHARE)
    recipe = msgspec.structs.replace(recipe, data=settings, train=train)
    return recipe, load_data(recipe, search.data, search.seed)


def _search(search: Search, recipe: Recipe, data: Dataset) -> tuple[list[Trial], Trial, Trial | None]:
    """Train trials until there are enough or the time is over; all, the best, and the best that learns nothing."""
    folder, task = search.out / "search", make_task(recipe)
    study = _open_study(search, recipe, data)
    try:
        ended = [trial for trial in study.trials() if trial.state != "running"]
        queue = TrialQueue(study, task, folder, search.trials)
        setup = WorkerSetup(recipe.to_toml(), None if search.data is None else str(search.data), search.options)
        pool = make_pool(queue, search.jobs, setup, search.cluster, search.trials)
        progress = SearchProgress(search.trials, len(ended), pool.slots, task.main.show)
        queue.ended = progress.end
        try:
            watch(pool, progress.show, lambda: search.deadline - _reserve(search, pool.slots, queue.longest))
        finally:
            progress.close()
        best, simple = study.best(), study.best(simple=True)
        trials = study.trials()
    finally:
        study.close()
    if best is None:
        raise UserError(_nothing_finished(search, trials))
    return trials, best, simple


def _open_study(search: Search, recipe: Recipe, data: Dataset) -> Study:
    """The study in its folder; nothing is left of a folder in which none could be begun."""
    folder = search.out / "search"
    made = MadeFolder.make(folder)
    try:
        keep_recipe(folder / "recipe.toml", recipe)
        check_folder(_comparison(search, recipe, folder, []), data)
        return Study(
            folder,
            seed=search.seed,
            epochs=recipe.train.epochs,
            maximise=make_task(recipe).main.higher_is_better,
            space=Space(len(data.label_names)),
        )
    except BaseException:
        made.undo(worthless=("recipe.toml",))
        raise


def _reserve(search: Search, slots: int, longest: float) -> float:
    """Seconds to keep for the fresh seeds: as long as whole trainings took, at most half of the budget."""
    if search.budget == math.inf:
        return 0.0
    rounds = math.ceil(MOST_TESTED * search.fresh_seeds / slots)
    return min(search.budget / 2, 1.1 * rounds * longest) if longest else search.budget / 2


def _nothing_finished(search: Search, trials: Sequence[Trial]) -> str:
    failed = [trial for trial in trials if trial.state == "failed"]
    if failed:
        return f"no trial of the search was trained to its end; {failed[0].method} failed: {failed[0].message}"
    return (
        f"the budget of {search.budget:g} seconds was over before one training was: what was trained is kept in "
        f"{search.out}; run the command again to go on, or give it more time"
    )


def _test(search: Search, methods: Sequence[str]) -> Summary | None:
    """Train the methods with fresh seeds, as far as the budget goes."""
    if time.monotonic() >= search.deadline:
        return None
    outcome = run_comparison(_comparison(search, search.recipe, search.out / "fresh", methods))
    if outcome.failures:
        raise UserError(f"{outcome.failures[0].run} failed in the final test: {outcome.failures[0].message}")
    return outcome.summary


def _comparison(search: Search, recipe: Recipe, out: Path, methods: Sequence[str]) -> Comparison:
    parsed: list[Method] = [parse_method(method) for method in methods]
    seeds = range(search.seed + 1, search.seed + 1 + search.fresh_seeds)
    return Comparison(
        recipe,
        parsed,
        seeds,
        search.data,
        out,
        search.jobs,
        search.options,
        cluster=search.cluster,
        deadline=search.deadline,
    )


def write_choice(choice: Choice, recipe: Recipe) -> None:
    """Write choice.toml, choice.json, table.md and trials.png."""
    main = make_task(recipe).main
    methods = tuple(dict.fromkeys((BASELINE, choice.method)))
    write_text(choice.out / "choice.toml", msgspec.structs.replace(recipe, methods=methods).to_toml())
    write_json(choice.out / "choice.json", choice.to_json())
    write_text(choice.out / "table.md", describe(choice, recipe) + "\n")
    plot_trials(choice.trials, main, choice.out / "trials.png")


def describe(choice: Choice, recipe: Recipe) -> str:
    """The choice as Markdown: trials, tests with fresh seeds, what to take, and its lines of Python."""
    main = make_task(recipe).main
    parts = [markdown(*trial_table(choice.trials, main))]
    if choice.summary is not None:
        parts += [TESTED, render(choice.summary)]
    return "\n\n".join([*parts, f"**{choice.reason}**", "```python\n" + "\n".join(choice.code) + "\n```"])


def show(choice: Choice, recipe: Recipe) -> str:
    """What `describe` gives, for a terminal of 80 columns; lines of Python are left whole."""
    main = make_task(recipe).main
    parts = [fitted(*trial_table(choice.trials, main))]
    if choice.summary is not None:
        parts += [TESTED, show_summary(choice.summary)]
    return "\n\n".join([*parts, wrapped(choice.reason), "\n".join(choice.code)])


__all__ = ["Advice", "Choice", "choose", "describe", "show"]
