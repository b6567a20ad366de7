"""The published files of LCSTS: PART_I.txt (training), PART_II.txt (development), PART_III.txt (test).

Each holds documents of `<doc id=0>`, in it a line after `<summary>` and one after `<short_text>`; the latter two files
also have a `<human_label>` a document, which is not used: all pairs count.
"""

from pathlib import Path

from labelemb.lab.data.files import read_lines
from labelemb.support.errors import UserError

PARTS = {"train": "PART_I", "dev": "PART_II", "test": "PART_III"}


def find_part(folder: Path, part: str) -> Path | None:
    """The file of a part, packed or not, in the folder or in the DATA folder that the archive unpacks to."""
    names = (f"{PARTS[part]}.txt", f"{PARTS[part]}.txt.gz")
    places = (place / name for place in (folder, folder / "DATA") for name in names)
    return next((place for place in places if place.is_file()), None)


def read_part(path: Path) -> list[tuple[str, str]]:
    """(short text, summary) of every document."""
    pairs: list[tuple[str, str]] = []
    fields: dict[str, str] = {}
    inside = ""
    for number, line in enumerate(read_lines(path), 1):
        text = line.strip()
        if text.startswith("<doc") and (fields or inside):
            raise UserError(f"{path}, line {number}: a document begins before the one above it has ended (</doc>)")
        if text in ("<summary>", "<short_text>"):
            inside = text.strip("<>")
        elif text in ("</summary>", "</short_text>"):
            inside = ""
        elif text == "</doc>":
            if len(fields) < 2:
                raise UserError(f"{path}, line {number}: a document without a summary or a short_text ends here")
            pairs.append((fields["short_text"], fields["summary"]))
            fields = {}
        elif inside and text:
            fields[inside] = f"{fields[inside]} {text}" if inside in fields else text
    if fields or inside:
        raise UserError(f"{path}: the last document does not end (</doc>), the file is cut off")
    if not pairs:
        raise UserError(f"{path} holds no <doc>: it is not a file of LCSTS, or an empty one")
    return pairs
