"""How frequent words are: from a file, from a corpus, or estimated from their rank."""

from __future__ import annotations

import os
import warnings

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, FrequencyWarning, InputError
from isosent.io.bounds import lines_of
from isosent.io.system import open_to_read
from isosent.words.tokens import TokenIds, offsets_of
from isosent.words.vocabulary import Vocabulary

LARGE_SHARE = 0.05
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_frequencies(path: str | os.PathLike[str], vocabulary: Vocabulary) -> NDArray[np.float64]:
    """Read how often words occur: the probability of each word of a vocabulary, in [0, 1]; 0 where it is not known."""
    path = _check.input_file(path)
    words: list[bytes] = []
    counts: list[float] = []
    with open_to_read(path) as file:
        for number, line in enumerate(lines_of(str(path), file), 1):
            fields = (line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line).split()
            if not fields:
                continue
            count = _count(fields)
            if count is None:
                shown = line[:60].decode("utf-8", "replace")
                raise FileFormatError(
                    f"{path}, line {number}: expected a word and a count of 0 or more, found {shown!r}."
                )
            words.append(fields[0])
            counts.append(count)
    total = sum(counts)
    if not 0 < total < np.inf:
        raise FileFormatError(
            f"{path}: its {len(counts)} counts have the sum {total}, which is not finite and above 0."
        )
    bounds = offsets_of([len(word) for word in words])
    ids = vocabulary.ids_of_spans(np.frombuffer(b"".join(words), dtype=np.uint8), bounds[:-1], bounds[1:])
    is_known = ids >= 0
    sums = np.bincount(ids[is_known], weights=np.array(counts)[is_known], minlength=len(vocabulary))
    return sums / total


def zipf_probabilities(vocab_size: int) -> NDArray[np.float64]:
    """Estimate the probabilities of words that are sorted from frequent to rare."""
    # 1 / (rank + 1) with ranks from 1: Zipf's law shifted by one, as in Model2Vec, whose vectors it reproduces.
    inverse: NDArray[np.float64] = 1.0 / np.arange(2, vocab_size + 2)
    inverse /= inverse.sum()
    return inverse


def count_tokens(tokens: TokenIds, vocab_size: int) -> NDArray[np.int64]:
    """Count how often each word occurs; the counts of parts of a corpus add up to those of the whole."""
    return np.bincount(tokens.ids, minlength=vocab_size)[:vocab_size]


def frequencies_of_counts(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Turn occurrences into probabilities."""
    total = counts.sum()
    if not total:
        raise InputError(
            "frequencies: the model knows no word of the corpus. Check its language and whether words are lower-cased."
        )
    return counts / total


def share_without(probabilities: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    """Share of the tokens of some texts whose probability is not known, which is 0."""
    return float(counts[probabilities == 0].sum() / max(counts.sum(), 1))


def warn_if_many_without(share: float, source: str) -> None:
    """Warn that a large share of the tokens has no frequency: such words weigh as much as the rarest."""
    # 5% separates good from bad fits, measured on STS-B with counts of Wikipedia: 2% of the lower-cased words are
    # missing; 6 to 18% if only the tokens have punctuation; 12% if the case differs.
    if share > LARGE_SHARE:
        warnings.warn(
            f"{source} has no frequency for {share:.1%} of the tokens, which weigh as much as the rarest words. "
            "Check its case and language; if it has no punctuation, use punctuation=drop.",
            FrequencyWarning,
            stacklevel=3,
        )


def _count(fields: list[bytes]) -> float | None:
    """The count of a line, or None where the line is not a word and a count."""
    try:
        word, count = fields
        word.decode()
        value = float(count)
    except ValueError:  # also not two fields, or not UTF-8
        return None
    return value if 0 <= value < np.inf else None
