"""Overlap: how many texts of a task occur in a corpus that a model was fitted or trained on."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from math import ceil

import numpy as np
from numpy.typing import NDArray

NEAR_WORDS = 8
NEAR_SHARE = 0.8
_BUCKETS = 1 << 20
_ABSENT, _NEAR, _SAME, _EXACT = range(4)

Gram = tuple[str, str, str]


def count_overlap(
    corpus_texts: Iterable[str], tasks: Mapping[str, Sequence[tuple[str, ...]]]
) -> dict[str, dict[str, int]]:
    """Count the scored texts of each task that also occur in a corpus."""
    # Texts are the same if their `plain_form` is. A text of at least eight words nearly occurs in one of the corpus
    # that holds at least 80% of its distinct word trigrams: a longer text around it, or one that was edited a
    # little. Shorter texts, and those of scripts without spaces, are not looked for nearly.
    # Only the texts of the tasks are kept in memory. To find the near ones, a text is listed under as many of its
    # rarest trigrams as it can lack, and one more: any text of the corpus that holds 80% of them holds one of these.
    matches = _Matches(text for items in tasks.values() for item in items for text in item)
    for text in corpus_texts:
        matches.compare(text)
    counts = {}
    for name, items in tasks.items():
        distinct = {text for item in items for text in item}
        closeness = [matches.closeness(text) for text in distinct]
        counts[name] = {
            "n_texts": len(distinct),
            "n_exact": sum(how >= _EXACT for how in closeness),
            "n_same": sum(how >= _SAME for how in closeness),
            "n_near": sum(how >= _NEAR for how in closeness),
            "n_items": len(items),
            "n_items_same": sum(all(matches.closeness(text) >= _SAME for text in item) for item in items),
        }
    return counts


def text_hashes(texts: Iterable[str]) -> NDArray[np.uint64]:
    """Hash of the plain form of each text, for files that must not hold the texts."""
    digests = (blake2b(plain_form(text).encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(digests), "<u8")


def count_distilled(encoder: object, texts: Sequence[str]) -> int:
    """How many of some texts are among those that an encoder was distilled from, if it knows these."""
    hashes = getattr(encoder, "fitted_texts", None)
    return 0 if hashes is None else int(np.isin(text_hashes(texts), hashes).sum())


def count_hashed(
    hashes: NDArray[np.uint64], tasks: Mapping[str, Sequence[tuple[str, ...]]]
) -> dict[str, dict[str, int]]:
    """Count the same texts of each task, as `count_overlap` does, in a corpus of which the sorted hashes are known."""
    counts = {}
    for name, items in tasks.items():
        distinct = list({text for item in items for text in item})
        is_same = dict(zip(distinct, np.isin(text_hashes(distinct), hashes).tolist(), strict=True))
        counts[name] = {
            "n_texts": len(distinct),
            "n_same": sum(is_same.values()),
            "n_items": len(items),
            "n_items_same": sum(all(map(is_same.__getitem__, item)) for item in items),
        }
    return counts


def plain_form(text: str) -> str:
    """Strip a text of what does not make it another one: Unicode form (NFKC), case, punctuation, symbols, white space."""  # noqa: E501
    folded = (text if text.isascii() else unicodedata.normalize("NFKC", text)).casefold()
    return " ".join(folded.translate(_spaces_for_marks()).split()) or " ".join(folded.split())


@cache
def _spaces_for_marks() -> dict[int, str]:
    """A space for each punctuation mark and symbol; combining marks, such as signs of vowels, are letters' parts."""
    codes = range(sys.maxunicode + 1)
    return {code: " " for code in codes if unicodedata.category(chr(code))[0] in "PS"}


class _Matches:
    """Texts of tasks, and how closely each occurs in the corpus."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._closeness = dict.fromkeys(texts, _ABSENT)
        self._by_form: dict[str, list[str]] = {}
        for text in self._closeness:
            self._by_form.setdefault(plain_form(text), []).append(text)
        self._by_gram = _list_by_rare_grams(self._by_form)

    def closeness(self, text: str) -> int:
        return self._closeness[text]

    def compare(self, text: str) -> None:
        text = text.strip()
        if not text:
            return
        form = plain_form(text)
        for same in self._by_form.get(form, ()):
            self._raise(same, _EXACT if same.strip() == text else _SAME)
        if self._by_gram.keys().isdisjoint(_grams(form)):
            return
        grams = set(_grams(form))
        for near in {near for gram in grams if gram in self._by_gram for near in self._by_gram[gram]}:
            near_grams = set(_grams(near))
            if len(near_grams & grams) >= _least_common(near_grams):
                for same in self._by_form[near]:
                    self._raise(same, _NEAR)

    def _raise(self, text: str, closeness: int) -> None:
        self._closeness[text] = max(self._closeness[text], closeness)


def _list_by_rare_grams(forms: Iterable[str]) -> dict[Gram, list[str]]:
    """Forms by some of their trigrams, see `count_overlap`."""
    long = [form for form in forms if form.count(" ") + 1 >= NEAR_WORDS]
    frequencies = [0] * _BUCKETS  # by hash: a collision costs time, never a find
    for form in long:
        for gram in set(_grams(form)):
            frequencies[hash(gram) % _BUCKETS] += 1
    by_gram: dict[Gram, list[str]] = {}
    for form in long:
        grams = sorted(set(_grams(form)), key=lambda gram: frequencies[hash(gram) % _BUCKETS])
        for gram in grams[: len(grams) - _least_common(grams) + 1]:
            by_gram.setdefault(gram, []).append(form)
    return by_gram


def _grams(form: str) -> Iterator[Gram]:
    words = form.split(" ")
    return zip(words, words[1:], words[2:], strict=False)


def _least_common(grams: Collection[Gram]) -> int:
    return ceil(NEAR_SHARE * len(grams))
