"""The subcommands recipes and data: list recipes and data sets."""

import argparse
import json
import textwrap
import tomllib

from labelemb.lab.cli.arguments import Verbs, a_path, add_json, add_verb
from labelemb.lab.recipes.recipe import load_recipe, recipe_names, recipe_text
from labelemb.support.errors import UserError
from labelemb.support.files import write_text
from labelemb.support.interrupts import importing
from labelemb.support.wording import did_you_mean

RECIPES_EXAMPLES = """\
  labelemb recipes
  labelemb recipes show mnist-mlp
  labelemb recipes copy image-folder my.toml     then edit it, and: labelemb compare my.toml
"""
DATA_EXAMPLES = """\
  labelemb data                    data sets found, and where they are searched
  labelemb data where mnist
  labelemb data fetch mnist        download it; run again to resume
"""

WIDTH = 80
"""Columns of a terminal."""
UNCHANGED = argparse.SUPPRESS
"""The default of an option that may stand before an action and behind it: the action keeps what was said before it."""


def add_verbs(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    recipes = add_verb(verbs, "recipes", "list the recipes, show one, or copy one to edit", RECIPES_EXAMPLES)
    recipes.set_defaults(run=_list_recipes, json=False)
    add_json(recipes)
    actions = recipes.add_subparsers(metavar="ACTION")
    listing = actions.add_parser("list", help="names of all recipes")
    add_json(listing, UNCHANGED)
    listing.set_defaults(run=_list_recipes)
    show = actions.add_parser("show", help="print a recipe")
    show.add_argument("name", metavar="NAME")
    add_json(show, UNCHANGED)
    show.set_defaults(run=_show_recipe)
    copy = actions.add_parser("copy", help="copy a recipe to a file")
    copy.add_argument("name", metavar="NAME")
    copy.add_argument("file", metavar="FILE", type=a_path)
    copy.set_defaults(run=_copy_recipe)

    data = add_verb(verbs, "data", "list the published data sets, locate one, or download one", DATA_EXAMPLES)
    data.set_defaults(run=_list_data, json=False, data=None)
    actions = data.add_subparsers(metavar="ACTION")
    listing = actions.add_parser("list", help="list published data sets and where they are")
    where = actions.add_parser("where", help="print the folder of a data set")
    where.add_argument("name", metavar="NAME")
    for parser in (data, listing, where):
        add_json(parser, UNCHANGED)
        parser.add_argument(
            "--data", type=a_path, default=UNCHANGED, metavar="PATH", help="search here instead of in the usual places"
        )
    listing.set_defaults(run=_list_data)
    where.set_defaults(run=_where_data)
    fetch = actions.add_parser("fetch", help="download a data set")
    fetch.add_argument("name", metavar="NAME")
    fetch.add_argument(
        "--to", type=a_path, metavar="DIR", help="target folder (default: $LABELEMB_DATA, or the user's cache)"
    )
    fetch.set_defaults(run=_fetch_data)


def _list_recipes(options: argparse.Namespace) -> int:
    recipes = {name: _first_comment(recipe_text(name)) for name in recipe_names()}
    if options.json:
        print(json.dumps([{"name": name, "about": about} for name, about in recipes.items()]))
        return 0
    width = max(map(len, recipes))
    for name, about in recipes.items():
        print(textwrap.fill(f"{name:<{width}}  {about}", WIDTH, subsequent_indent=" " * (width + 2)))
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
    text = recipe_text(options.name)
    print(json.dumps(tomllib.loads(text)) if options.json else text.removesuffix("\n"))
    return 0


def _copy_recipe(options: argparse.Namespace) -> int:
    if options.json:
        raise UserError("--json is for `labelemb recipes list` and `show`, not for `copy`: leave it out")
    text = recipe_text(options.name)
    if options.file.suffix != ".toml":
        raise UserError(f"{options.file} does not end in .toml: the file of a recipe needs this suffix")
    if options.file.exists():
        raise UserError(f"{options.file} already exists: choose another name, or delete it")
    write_text(options.file, text)
    load_recipe(str(options.file))
    print(f"wrote {options.file}; edit it, then: labelemb compare {options.file}")
    return 0


def _list_data(options: argparse.Namespace) -> int:
    with importing():
        from labelemb.lab.data import describe_data, fetchable_names
        from labelemb.lab.data.describe import find_published

    if not options.json:
        print(describe_data(options.data))
        return 0
    folders = {name: find_published(name, options.data) for name in fetchable_names()}
    print(json.dumps({name: str(folder) if folder else None for name, folder in folders.items()}))
    return 0


def _where_data(options: argparse.Namespace) -> int:
    with importing():
        from labelemb.lab.data import fetchable_names
        from labelemb.lab.data.describe import find_published

    known = fetchable_names()
    if options.name not in known:
        raise UserError(
            f"unknown data set {options.name!r}{did_you_mean(options.name, known)} (known are {', '.join(known)})"
        )
    folder = find_published(options.name, options.data)
    if folder is None:
        raise UserError(f"{options.name} was not found: `labelemb data` shows where it is searched")
    print(json.dumps({options.name: str(folder)}) if options.json else folder)
    return 0


def _fetch_data(options: argparse.Namespace) -> int:
    if options.json:
        raise UserError("--json is for `labelemb data list` and `where`, not for `fetch`: leave it out")
    if options.data is not None:
        raise UserError("--data is for `labelemb data list` and `where`; `fetch` has --to for the folder to write")
    with importing():
        from labelemb.lab.data import fetch

    print(fetch(options.name, options.to))
    return 0
