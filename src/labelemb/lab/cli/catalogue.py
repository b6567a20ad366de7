"""Verbs that say what there is: recipes and data."""

import argparse
import json
from pathlib import Path

from labelemb.lab.cli.arguments import Verbs, add_json, add_verb
from labelemb.lab.errors import LabError
from labelemb.lab.recipe import load_recipe, recipe_names, recipe_text

RECIPES_EXAMPLES = """\
  labelemb recipes
  labelemb recipes show mnist-mlp
  labelemb recipes copy image-folder my.toml     then edit it, and: labelemb compare my.toml
"""


def add_verbs(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    recipes = add_verb(verbs, "recipes", "list the recipes, show one, or copy one to edit", RECIPES_EXAMPLES)
    recipes.set_defaults(run=_list_recipes, json=False)
    add_json(recipes)
    actions = recipes.add_subparsers(metavar="ACTION")
    listing = actions.add_parser("list", help="names of all recipes")
    add_json(listing)
    listing.set_defaults(run=_list_recipes)
    show = actions.add_parser("show", help="print a recipe")
    show.add_argument("name", metavar="NAME")
    show.set_defaults(run=_show_recipe)
    copy = actions.add_parser("copy", help="copy a recipe to a file of yours")
    copy.add_argument("name", metavar="NAME")
    copy.add_argument("file", metavar="FILE", type=Path)
    copy.set_defaults(run=_copy_recipe)


def _list_recipes(options: argparse.Namespace) -> int:
    recipes = {name: _first_comment(recipe_text(name)) for name in recipe_names()}
    if options.json:
        print(json.dumps([{"name": name, "about": about} for name, about in recipes.items()]))
        return 0
    width = max(map(len, recipes))
    for name, about in recipes.items():
        print(f"{name:<{width}}  {about}")
    return 0


def _first_comment(text: str) -> str:
    """The first sentence of the comment that a recipe begins with."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(lines).partition(". ")[0].removesuffix(".")


def _show_recipe(options: argparse.Namespace) -> int:
    print(recipe_text(options.name), end="")
    return 0


def _copy_recipe(options: argparse.Namespace) -> int:
    from labelemb.lab.files import write_text

    text = recipe_text(options.name)
    if options.file.exists():
        raise LabError(f"{options.file} is there already: choose another name, or delete it")
    write_text(options.file, text)
    load_recipe(str(options.file))
    print(f"wrote {options.file}; edit it, then: labelemb compare {options.file}")
    return 0
