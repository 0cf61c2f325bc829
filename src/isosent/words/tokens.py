"""Texts to token ids: words looked up in a vocabulary, cut by characters, by white space or by a function.

Every tokenizer takes texts and returns `TokenIds`, the ids of all texts in one array (`Tokenizing`). `WordTokenizer`
joins the texts and lets compiled code cut and look up their words (`scan_texts`), several chunks at a time.
`CallableTokenizer` asks a function of the user for the words and looks these up (`look_up_words`). A `TokenFilter`
leaves out punctuation and stop words. Unknown words are skipped and counted, or get ids after those of the vocabulary
(`number_unknown`), for encoders that make vectors of sub-words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, InputTypeError
from isosent.io.bounds import decode_utf8
from isosent.io.system import read_bytes
from isosent.numeric.threads import over_chunks
from isosent.words.vocabulary import (
    PUNCTUATION,
    SPACE,
    TEXT_END,
    WORD,
    Number,
    Vocabulary,
    same_spans,
    scan,
    words_as_bytes,
)

SPLITTERS = ("wordpunct", "whitespace")
UNKNOWN_RULES = ("skip", "keep")
LONGEST_PIECE = 1 << 20  # characters


@dataclass(frozen=True, slots=True, eq=False)
class TokenIds:
    """Token ids of several texts, concatenated: text i has ``ids[offsets[i]:offsets[i + 1]]``."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    truncated_rows: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    n_unknown: int = 0  # tokens that the vocabulary lacks
    n_tokens: int = -1  # with the unknown ones that are left out; -1: as many as there are ids
    unknown: tuple[str, ...] = ()  # distinct unknown words with the ids vocab_size, vocab_size + 1, ..., if kept
    n_unpooled: int | NDArray[np.intp] = 0  # leading tokens that are not pooled: of every text, or of each

    def __post_init__(self) -> None:
        if self.n_tokens < 0:
            object.__setattr__(self, "n_tokens", len(self.ids))

    @classmethod
    def from_lists(
        cls,
        lists: Sequence[Sequence[int]],
        truncated_rows: Sequence[int] = (),
        n_unpooled: int | NDArray[np.intp] = 0,
    ) -> TokenIds:
        """Join lists of ids."""
        offsets = offsets_of([len(ids) for ids in lists])
        ids = np.fromiter(chain.from_iterable(lists), dtype=np.int32, count=offsets[-1])
        return cls(ids, offsets, np.array(truncated_rows, dtype=np.intp), n_unpooled=n_unpooled)

    @property
    def n_cut(self) -> int:
        """Texts that were cut."""
        return len(self.truncated_rows)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each text, shape (n_texts,)."""
        return np.diff(self.offsets)

    def take(self, rows: NDArray[np.intp]) -> TokenIds:
        """Select texts."""
        lengths = self.lengths[rows]
        offsets = offsets_of(lengths)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        ids = self.ids[np.repeat(self.offsets[rows], lengths) + within]
        n_unpooled = self.n_unpooled if isinstance(self.n_unpooled, int) else self.n_unpooled[rows]
        return TokenIds(ids, offsets, unknown=self.unknown, n_unpooled=n_unpooled)

    def padded(self, pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return input_ids and attention_mask of shape (n_texts, seq_len), padded on the right."""
        lengths = self.lengths
        attention_mask = np.arange(lengths.max(initial=0))[None, :] < lengths[:, None]
        input_ids = np.full(attention_mask.shape, pad_id, dtype=np.int64)
        input_ids[attention_mask] = self.ids
        return input_ids, attention_mask.astype(np.int64)


class Tokenizing(Protocol):
    """The contract of every tokenizer: texts to token ids."""

    def __call__(self, texts: Sequence[str]) -> TokenIds:
        """Return the ids of the texts."""
        ...

    def spell(self, text: str, tokens: TokenIds) -> tuple[list[str], NDArray[np.intp]]:
        """Words of a text as it has them, and which of them each of its tokens belongs to."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return a text with these token ids, if there is one."""
        ...

    def vocabulary(self) -> Iterable[str]:
        """Yield the tokens in the order of their ids."""
        ...


def offsets_of(lengths: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
    """Where texts of these lengths begin, and where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def pieces_of(text: str) -> Iterator[str]:
    """Cut a long text at blanks into pieces of a million characters, for which tokenizers need 100 MB."""
    start = 0
    while len(text) - start > LONGEST_PIECE:
        at = text.rfind(" ", start + 1, start + LONGEST_PIECE + 1)
        stop = start + LONGEST_PIECE if at < 0 else at
        yield text[start:stop]
        start = stop + (at >= 0)
    yield text[start:] if start else text


def keep_where(
    mask: NDArray[np.bool_], ids: NDArray[np.int32], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Leave out the tokens where a mask is False."""
    return ids[mask], offsets_of(mask)[offsets]


PUNCTUATION_RULES = ("keep", "drop", "gem")

_GEM_PUNCTUATION = frozenset("!.:?@-\"'")
_WORD_CHARACTER = re.compile(r"\w")


@dataclass(frozen=True)
class TokenFilter:
    """Tokens to leave out, which count neither as tokens nor as unknown."""

    # drop: tokens without any word character. gem: a single one of ! . : ? @ - " ', as GEM's authors do
    punctuation: str = "keep"
    stop_words: frozenset[str] = frozenset()  # lower-cased, if the tokenizer lower-cases

    def __post_init__(self) -> None:
        _check.one_of("tokenizer", "punctuation", self.punctuation, PUNCTUATION_RULES)

    @property
    def drops_punctuation(self) -> bool:
        """Whether tokens without any word character are left out."""
        return self.punctuation == "drop"

    @cached_property
    def tokens(self) -> frozenset[str]:
        """Words and punctuation that are left out by name."""
        return self.stop_words | _GEM_PUNCTUATION if self.punctuation == "gem" else self.stop_words

    def drops(self, token: str) -> bool:
        """Whether a token is left out."""
        return token in self.tokens or (self.drops_punctuation and not _WORD_CHARACTER.search(token))


def read_stop_words(source: str) -> frozenset[str]:
    """Read words to leave out."""
    if source == "keep":
        return frozenset()
    if source == "english":
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        return frozenset(ENGLISH_STOP_WORDS)
    path = _check.input_file(source)
    lines = decode_utf8(str(path), read_bytes(path)).split("\n")
    for number, line in enumerate(lines, 1):
        if len(line.split()) > 1:
            raise FileFormatError(f"{path}, line {number}: expected one word, found {line[:60]!r}.")
    return frozenset(line.strip() for line in lines if line.strip())


_N_ASCII, _N_UNICODE = 0x80, 0x110000
_NOTHING = Vocabulary.from_words([])


def scan_texts(
    texts: Sequence[str],
    vocabulary: Vocabulary,
    *,
    split: str,
    keeps_unknown: bool,
    drops_punctuation: bool = False,
    dropped: Vocabulary = _NOTHING,
) -> TokenIds:
    """Cut texts into tokens and look these up."""
    data = _joined_bytes(texts)
    text = np.frombuffer(data, dtype=np.uint8)
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    offsets[1:] = np.flatnonzero(text == TEXT_END) + 1
    classes = _classes(_N_ASCII if data.isascii() else _N_UNICODE, spaces=" \n" if split == "blank" else r"\s")
    rules = (classes, split == "wordpunct", drops_punctuation)
    ids, lengths = np.empty(len(text), dtype=np.int32), np.empty(len(texts), dtype=np.int64)
    unknown = np.empty((2, len(text) if keeps_unknown else 0), dtype=np.int64)
    counts: dict[int, tuple[int, int]] = {}

    def run(first: int, last: int) -> None:
        start, stop = int(offsets[first]), int(offsets[last])
        room = (unknown[0, start:stop], unknown[1, start:stop])
        output = (ids[start:stop], lengths[first:last])
        counts[start] = scan(text, (start, stop), rules, vocabulary.arrays, dropped.arrays, output, room)

    over_chunks(run, offsets)
    n_ids, n_unknown = ({start: counts[start][i] for start in sorted(counts)} for i in range(2))
    tokens = _pieces(ids, n_ids)
    if not keeps_unknown:
        n_skipped = sum(n_unknown.values())
        return TokenIds(tokens, offsets_of(lengths), n_unknown=n_skipped, n_tokens=len(tokens) + n_skipped)
    starts, stops = _pieces(unknown[0], n_unknown), _pieces(unknown[1], n_unknown)
    words = number_unknown(tokens, len(vocabulary), text, starts, stops)
    return TokenIds(tokens, offsets_of(lengths), n_unknown=len(starts), unknown=words)


def number_unknown(
    ids: NDArray[np.int32],
    vocab_size: int,
    text: NDArray[np.uint8],
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
) -> tuple[str, ...]:
    """Give each distinct unknown word an id, in place: vocab_size, vocab_size + 1, ...; return these words."""
    firsts = same_spans(text, starts, stops)
    is_first = firsts == np.arange(len(firsts))
    numbers = np.cumsum(is_first, dtype=np.int32) - 1
    ids[ids < 0] = vocab_size + numbers[firsts]
    spans = zip(starts[is_first].tolist(), stops[is_first].tolist(), strict=True)
    data = text.tobytes()
    return tuple(data[start:stop].decode() for start, stop in spans)


def _joined_bytes(texts: Sequence[str]) -> bytes:
    """All texts in UTF-8, each followed by a line feed; line feeds inside a text become blanks."""
    joined = "\n".join([*texts, ""])
    if joined.count("\n") > len(texts):
        joined = "\n".join([*(text.replace("\n", " ") for text in texts), ""])
    return joined.encode()


def _pieces(array: NDArray[Number], counts: Mapping[int, int]) -> NDArray[Number]:
    """Join what each thread wrote from the start of its texts."""
    return np.concatenate([array[:0], *(array[start : start + count] for start, count in counts.items())])


@cache
def _classes(n_code_points: int, *, spaces: str) -> NDArray[np.uint8]:
    r"""Class of each code point by Python's own ``\w`` and what counts as a space."""
    characters = np.arange(n_code_points, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    classes = np.full(n_code_points, PUNCTUATION)
    for pattern, kind in ((r"\w+", WORD), (f"[{spaces}]+", SPACE)):
        for run in re.finditer(pattern, characters):
            classes[run.start() : run.end()] = kind
    return classes


class WordTokenizer:
    """Cuts texts into words or at white space, and looks these up in a vocabulary."""

    def __init__(
        self,
        words: Vocabulary,
        *,
        split: str = "wordpunct",
        lowercase: bool = True,
        punctuation: str = "keep",
        stop_words: Iterable[str] = (),
        unknown: str = "skip",
    ) -> None:
        _check.one_of("tokenizer", "split", split, SPLITTERS)
        _check.one_of("tokenizer", "unknown", unknown, UNKNOWN_RULES)
        self.words = words
        self.split = split
        self.lowercase = lowercase
        self.unknown = unknown
        self.token_filter = TokenFilter(punctuation, frozenset(stop_words))
        self._dropped = Vocabulary.from_words(sorted(self.token_filter.tokens))

    def __call__(self, texts: Sequence[str]) -> TokenIds:
        """Return the ids of the texts."""
        return scan_texts(
            list(map(str.lower, texts)) if self.lowercase else texts,
            self.words,
            split=self.split,
            keeps_unknown=self.unknown == "keep",
            drops_punctuation=self.token_filter.drops_punctuation,
            dropped=self._dropped,
        )

    def spell(self, text: str, tokens: TokenIds) -> tuple[list[str], NDArray[np.intp]]:
        """Words of a text as it has them, one for each token."""
        return spell_words(text, tokens, self.words, lowercase=self.lowercase)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the words of token ids, with blanks between them."""
        return " ".join(self.words[number] for number in ids)

    def vocabulary(self) -> Iterable[str]:
        """Yield the words in the order of their ids."""
        return self.words


class CallableTokenizer:
    """Words from a function of the user, looked up in a vocabulary; for languages written without spaces."""

    def __init__(
        self,
        function: Callable[[str], Sequence[str]],
        words: Vocabulary,
        *,
        lowercase: bool = False,
        punctuation: str = "keep",
        stop_words: Iterable[str] = (),
        unknown: str = "skip",
    ) -> None:
        _check.one_of("tokenizer", "unknown", unknown, UNKNOWN_RULES)
        self.function = function
        self.words = words
        self.lowercase = lowercase
        self.unknown = unknown
        self.token_filter = TokenFilter(punctuation, frozenset(stop_words))

    def __call__(self, texts: Sequence[str]) -> TokenIds:
        """Return the ids of the texts."""
        lists = [
            [word for word in self._split(text) if not self.token_filter.drops(word)]
            for text in (map(str.lower, texts) if self.lowercase else texts)
        ]
        return look_up_words(lists, self.words, keeps_unknown=self.unknown == "keep")

    def spell(self, text: str, tokens: TokenIds) -> tuple[list[str], NDArray[np.intp]]:
        """Words of a text as it has them, one for each token."""
        return spell_words(text, tokens, self.words, lowercase=self.lowercase)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the words of token ids, with blanks between them."""
        return " ".join(self.words[number] for number in ids)

    def vocabulary(self) -> Iterable[str]:
        """Yield the words in the order of their ids."""
        return self.words

    def _split(self, text: str) -> Sequence[str]:
        words = self.function(text)
        wrong = [words] if isinstance(words, str) or not isinstance(words, Sequence) else words
        for word in wrong:
            if wrong is not words or not isinstance(word, str):
                raise InputTypeError(
                    f"tokenizer: the function must return a sequence of strings; got {word!r} for the text "
                    f"{text[:60]!r}. Return a list of words."
                )
        return words


def spell_words(
    text: str, tokens: TokenIds, words: Vocabulary, *, lowercase: bool
) -> tuple[list[str], NDArray[np.intp]]:
    """Find the tokens of a text in it one after the other; one that it does not have stays unchanged."""
    lowered = text.lower() if lowercase else text
    spelled, end = [], 0
    for token_id in tokens.ids.tolist():
        word = words[token_id] if token_id < len(words) else tokens.unknown[token_id - len(words)]
        start = lowered.find(word, end)
        if start >= 0 and len(lowered) == len(text):  # "İ" is longer in lower case
            end = start + len(word)
            word = text[start:end]
        spelled.append(word)
    return spelled, np.arange(len(spelled))


def look_up_words(lists: Sequence[Sequence[str]], words: Vocabulary, *, keeps_unknown: bool) -> TokenIds:
    """Look up texts that are split already."""
    text, bounds = words_as_bytes(chain.from_iterable(lists))
    starts, stops = bounds[:-1], bounds[1:]
    ids, offsets = words.ids_of_spans(text, starts, stops), offsets_of([len(listed) for listed in lists])
    is_unknown = ids < 0
    n_unknown = int(np.count_nonzero(is_unknown))
    if keeps_unknown:
        unknown = number_unknown(ids, len(words), text, starts[is_unknown], stops[is_unknown])
        return TokenIds(ids, offsets, n_unknown=n_unknown, unknown=unknown)
    return TokenIds(*keep_where(~is_unknown, ids, offsets), n_unknown=n_unknown, n_tokens=len(ids))
