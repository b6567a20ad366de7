"""Fonts of a picture that have the letters of its names, as far as they are installed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

    @property
    def note(self) -> str:
        """A word where letters are missing; empty otherwise."""
        if not self.incomplete:
            return ""
        names = "1 name has" if self.incomplete == 1 else f"{self.incomplete} names have"
        return f"{names} letters that no installed font shows: install one, such as Noto Sans CJK"


def name_fonts(names: Iterable[str], candidates: Sequence[str] = CJK_FONTS) -> NameFonts:
    """The usual font, and further ones where names need them."""
    usual = _font(None)
    letters = [{ord(letter) for letter in name if not letter.isspace()} for name in names]
    missing = _lacking(usual, set().union(*letters))
    families = [usual.family_name]
    for family in candidates:
        if not missing:
            break
        font = _font(family)
        rest = missing if font is None else _lacking(font, missing)
        if rest != missing:
            families.append(family)
            missing = rest
    return NameFonts(families, sum(bool(name & missing) for name in letters))


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
