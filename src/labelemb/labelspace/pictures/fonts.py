"""Finds installed fonts that have the characters of the names in a picture."""

from __future__ import annotations

import logging
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple

from labelemb.support.optional import import_optional

CJK_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans SC", "Noto Sans JP", "Noto Sans KR"),
    *("Source Han Sans SC", "Source Han Sans", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback"),
    *("Microsoft YaHei", "SimHei", "Yu Gothic", "Meiryo", "MS Gothic", "Malgun Gothic"),
    *("PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Arial Unicode MS"),
)
"""Fonts with Chinese, Japanese and Korean glyphs on Linux, Windows and macOS."""


class NameFonts(NamedTuple):
    """The families to draw names with, the first that has a letter draws it; and how many names lack letters."""

    families: list[str]
    incomplete: int
    east_asian: bool = False
    """Whether Chinese, Japanese or Korean letters are among the missing ones."""

    @property
    def note(self) -> str:
        """A word where letters are missing; empty otherwise."""
        if not self.incomplete:
            return ""
        names = "1 name has" if self.incomplete == 1 else f"{self.incomplete} names have"
        advice = ": install one, such as Noto Sans CJK" if self.east_asian else ""
        return f"{names} letters that no installed font shows{advice}"


@contextmanager
def quiet_fonts() -> Iterator[None]:
    """Without matplotlib's lines about single letters and weights that fonts lack: the picture itself says so."""
    log = logging.getLogger("matplotlib.font_manager")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            yield
    finally:
        log.setLevel(level)


def name_fonts(names: Iterable[str], candidates: Sequence[str] = CJK_FONTS) -> NameFonts:
    """The usual font, and further ones where names need them."""
    letters = [{ord(letter) for letter in name if not letter.isspace()} for name in names]
    needed = set().union(*letters)
    with quiet_fonts():
        families, missing = _choose(needed, candidates)
        if missing and _add_new_fonts():
            families, missing = _choose(needed, candidates)
    return NameFonts(families, sum(bool(name & missing) for name in letters), any(map(_is_east_asian, missing)))


def _choose(needed: set[int], candidates: Sequence[str]) -> tuple[list[str], set[int]]:
    """The families that have the letters, and the letters that none of them has."""
    usual = _font(None)
    families, missing = [usual.family_name], _lacking(usual, needed)
    for family in candidates:
        if not missing:
            break
        font = _font(family)
        rest = missing if font is None else _lacking(font, missing)
        if rest != missing:
            families.append(family)
            missing = rest
    return families, missing


def _is_east_asian(letter: int) -> bool:
    """Whether a letter is Chinese, Japanese or Korean; emoji are as wide, but symbols."""
    return unicodedata.east_asian_width(chr(letter)) in "WF" and unicodedata.category(chr(letter)).startswith("L")


@cache
def _add_new_fonts() -> bool:
    """Tell matplotlib, once, the fonts that were installed after it wrote its list; whether there are any."""
    manager = import_optional("matplotlib.font_manager", "a picture", "plot")
    known = {font.fname for font in manager.fontManager.ttflist}
    new = [file for file in manager.findSystemFonts() if file not in known]
    for file in new:
        with suppress(Exception):  # a font that cannot be read raises anything
            manager.fontManager.addfont(file)
    _font.cache_clear()
    return bool(new)


def _lacking(font: Any, letters: set[int]) -> set[int]:
    return {letter for letter in letters if not font.get_char_index(letter)}


@cache
def _font(family: str | None) -> Any:
    """The font of a family, None if it is not installed; matplotlib's usual one without a name."""
    manager = import_optional("matplotlib.font_manager", "a picture", "plot")
    try:
        return manager.get_font(manager.findfont(manager.FontProperties(family), fallback_to_default=family is None))
    except ValueError:
        return None
