"""The numbers from 0 to 9,999 spelled out in English and Vietnamese: translation that needs no file."""

from labelemb.support.optional import import_optional

COUNT = 10_000


def number_pairs() -> list[tuple[str, str]]:
    """English without hyphens and commas, and Vietnamese."""
    num2words = import_optional("num2words", "data.kind = numbers", extra="text").num2words
    pairs = []
    for number in range(COUNT):
        english = num2words(number, lang="en").replace("-", " ").replace(",", "")
        pairs.append((english, num2words(number, lang="vi")))
    return pairs
