"""The lab: recipes, data, bodies, one training loop, and comparisons of methods (needs the extra `[lab]`).

The public names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from labelemb.support.lazy import lazy_names

if TYPE_CHECKING:
    from labelemb.lab.jobs.audit import audit as audit
    from labelemb.lab.jobs.choose import choose as choose
    from labelemb.lab.jobs.compare import compare as compare
    from labelemb.lab.recipes.recipe import load_recipe as load_recipe
    from labelemb.lab.report.write import write_report as write_report
    from labelemb.lab.runs.loop import train_run as train_run
    from labelemb.lab.trained.model import TrainedModel as TrainedModel

HOMES = {
    "TrainedModel": "labelemb.lab.trained.model",
    "audit": "labelemb.lab.jobs.audit",
    "choose": "labelemb.lab.jobs.choose",
    "compare": "labelemb.lab.jobs.compare",
    "load_recipe": "labelemb.lab.recipes.recipe",
    "train_run": "labelemb.lab.runs.loop",
    "write_report": "labelemb.lab.report.write",
}
"""The module of each public name."""

__all__ = list(HOMES)
if not TYPE_CHECKING:  # so that type checkers know the names above and no others
    __getattr__, __dir__ = lazy_names(__name__, HOMES)
