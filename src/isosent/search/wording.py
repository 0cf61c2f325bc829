"""What the words of two texts say about them: the same, a small change, more words, other words, or a contrast.

A cosine hardly tells "I can" from "I cannot", and takes a typo for a change of meaning: only the words can tell. `Wording`
holds the words of a text and its names; `difference` compares two. Numbers, negations and names must be the same; a
word that stands in the place of another one is a contrast unless it is a misspelling or another form of it; greetings,
thanks and articles do not count. The lists below are short and of a few languages. Other texts have fewer small
changes, and no fewer contrasts of numbers, names and single words.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_SIGNS: Final = "\u0300-\u036f\u0900-\u0963\u0966-\u0dff"
_WORD: Final = re.compile(
    rf"(?:(?<!\S)-)?\d+(?:[.,:/-]\d+)*"  # 2.3.1, 8:15, 2021-03-04
    rf"|[{_UNSPACED}]"
    rf"|(?:[^\W\d_{_UNSPACED}]|[{_SIGNS}])+(?:'(?:[^\W\d_]|[{_SIGNS}])+)*[+#]*"  # can't, C++
    rf"|[^\w\s.,;:!?'\"()\[\]{{}}<>*/\\&~`^|=_-]"  # currencies, per cent, emoji
)
_END: Final = re.compile(r"[.!?:;\n\u2026\u3002\uff01\uff1f]")
_QUOTES: Final = str.maketrans("\u2019\u2018\u02bc\u2212\u2010\u2011", "'''---")
_CONTRACTED: Final = {
    "can't": ("can", "not"), "cannot": ("can", "not"), "won't": ("will", "not"), "shan't": ("shall", "not"),
    "cant": ("can", "not"), "dont": ("do", "not"), "doesnt": ("does", "not"), "didnt": ("did", "not"),
    "isnt": ("is", "not"), "wasnt": ("was", "not"), "wont": ("will", "not"), "havent": ("have", "not"),
    "hasnt": ("has", "not"), "couldnt": ("could", "not"), "wouldnt": ("would", "not"), "shouldnt": ("should", "not"),
    "arent": ("are", "not"), "im": ("i", "am"), "ive": ("i", "have"), "let's": ("let", "us"), "whats": ("what", "is"),
}  # fmt: skip
_ENDINGS: Final = {"'s": "is", "'re": "are", "'m": "am", "'ve": "have", "'ll": "will", "'d": "would"}
_NEGATIONS: Final = frozenset(
    "not no never none nobody nothing nowhere neither nor without unless hardly barely only except "
    "nicht kein keine keinen keinem keiner keines nie niemals niemand nichts ohne nur "
    "ne n pas jamais aucun aucune sans rien personne seulement nunca nadie ningún ninguno ninguna sin tampoco jamás "
    "non mai nessuno nessuna niente senza não nunca nem ninguém nada sem niet geen nooit niemand zonder ikke inte "
    "не нет никогда без ни nie bez değil yok لا ليس لم لن غير بدون नहीं מת לא".split()
)
# of words that are written together or without spaces
_NEGATIVE_PARTS: Final = ("않", "못", "없", "不", "没", "沒", "未", "无", "無", "ない", "なかっ", "ません", "ไม่")
_MEANT_SYLLABLES: Final = frozenset("일이삼사오육칠팔구십백천만억안못않없불비무미")
_NUMBERS: Final = frozenset(
    "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred thousand million "
    "billion half first second third twice once both all every always zwei drei vier fünf sechs sieben acht neun zehn "
    "hundert tausend alle immer deux trois quatre cinq sept huit neuf dix cent mille tous dos tres cuatro cinco seis "
    "siete ocho nueve diez cien mil todos siempre toujours".split()
)
_GREETINGS: Final = frozenset(
    "please pls thanks thank hi hello hey dear regards cheers sorry well so just ok okay bitte danke hallo merci "
    "bonjour svp gracias hola".split()
)
_ARTICLES: Final = frozenset(
    "a an the der die das ein eine den dem des le la les un une el los las una o os as um uma il lo gli de het een".split()
)
# words that may stand for one another: the cosine decides
_WEAK: Final = _ARTICLES | frozenset(
    "this that my its it i there and but then as of to for do does did can could would will is are was were am be been "
    "being has have had get got gets getting what which".split()
)
_MARKS: Final = ".,;:!?'\"()"
_AS_WRITTEN: Final = re.compile(r"[^\W\d_]+")
_BLOCK_ROWS: Final = 4096
_MEANT: Final = _NEGATIONS | _NUMBERS
_IN_FRONT: Final = re.compile(r"^\W*([^\W\d_]+)[,!.]\s")
_BEHIND: Final = re.compile(r"[,.!?]\s+([^\W\d_]+)\W*$")
_FEWEST_WORDS: Final = 4  # of a text whose first or last word may be set apart
_FEWEST_LETTERS: Final = 4  # of a word that may be misspelled
_SURE_LETTERS: Final = 8  # of a name that may be
_STEM: Final = 4  # letters that two forms of a word share
_ENDING: Final = 3  # letters that may follow
_COMMON: Final = 3  # texts that have a word which is no misspelling
_MUCH_RARER: Final = 200  # times, a misspelling that is common itself
_SHORT: Final = 25  # words of a text in which one word more or less makes another text
_MOST_ADDED: Final = 0.34  # of the words of the shorter text
_FEW: Final = 2  # other words in a place


class Difference(IntEnum):
    """How two texts differ, from the most alike on."""

    SMALL = 0  # case, punctuation, misspellings, other forms of words, greetings
    ADDED = 1  # one text has more words
    OTHER = 2
    CONTRAST = 3  # another number, negation, name or word in the same place


class Wordings:
    """Texts whose words are read when they are first compared."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self._wordings: list[Wording | None] = [None] * len(texts)

    def differences(self, first: NDArray[np.intp], second: NDArray[np.intp]) -> NDArray[np.int8]:
        """How each of the first rows differs from the second one, as numbers of `Difference`."""
        pairs = zip(first.tolist(), second.tolist(), strict=True)
        return np.fromiter((self.difference(one, other) for one, other in pairs), np.int8, len(first))

    def difference(self, first: int, second: int) -> Difference:
        return difference(self._wording(first), self._wording(second), self._counts)

    def is_equal(self, first: int, second: int) -> bool:
        """Whether two texts have the same words but for greetings."""
        return self._wording(first).content == self._wording(second).content

    def letter_distances(self, rows: NDArray[np.intp], places: NDArray[np.intp]) -> NDArray[np.int64]:
        """Letters and digits that must be added to or removed from each row to have those of others, (n_rows, k)."""
        letters = self._letters
        distances = np.empty(places.shape, np.int64)
        for start in range(0, len(places), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            distances[block] = np.abs(letters[rows[block], None] - letters[places[block]]).sum(axis=2)
        return distances

    def equal_texts(self) -> tuple[list[int], list[int]]:
        """Pairs of rows that differ in case, spaces, greetings and the marks around words at most."""
        first_rows: dict[str, int] = {}
        pairs = []
        for row, text in enumerate(self.texts):
            words = [word.strip(_MARKS) for word in text.casefold().replace("thank you", "thanks").split()]
            first = first_rows.setdefault(" ".join([word for word in words if word not in _GREETINGS]), row)
            if first != row and self.difference(first, row) == Difference.SMALL:
                pairs.append((first, row))
        return [first for first, _ in pairs], [row for _, row in pairs]

    def _wording(self, row: int) -> Wording:
        wording = self._wordings[row]
        if wording is None:
            wording = self._wordings[row] = wording_of(self.texts[row])
        return wording

    @cached_property
    def _letters(self) -> NDArray[np.int16]:
        """How often each letter or digit is in each text; others share a column, (n_texts, 32)."""
        coded = [text.casefold().encode("utf-8", "replace") for text in self.texts]
        content = np.frombuffer(b"".join(coded), np.uint8)
        places = np.repeat(np.arange(len(coded)) * 32, [len(each) for each in coded])
        counts = np.bincount((places + (content & 31))[content >= ord("0")], minlength=32 * len(coded))
        return counts.reshape(-1, 32).astype(np.int16)

    @cached_property
    def _counts(self) -> Counter[str]:
        """In how many texts each word is, as it is written."""
        return Counter(word for text in self.texts for word in set(_AS_WRITTEN.findall(text)))


class Wording(NamedTuple):
    """The words of a text in lower case, and what must be the same in a duplicate."""

    words: tuple[str, ...]
    content: tuple[str, ...]  # words but for greetings
    numbers: tuple[str, ...]  # in their order
    n_negations: int
    names: frozenset[str]


def wording_of(text: str) -> Wording:
    """Read the words of a text."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(_QUOTES))
    words: list[str] = []
    numbers, names = [], []
    end, n_long, n_long_upper = 0, 0, 0
    for match in _WORD.finditer(text):
        word = match[0]
        is_first = not words or _END.search(text, end, match.start()) is not None
        is_attached = match.start() == end > 0
        end = match.end()
        folded = word.casefold()
        if folded[-1].isdigit():
            numbers.append(folded)
            words.append(folded)
            continue
        if is_attached and len(word) == 1 and words and words[-1][-1].isdigit():
            names.append(folded := f"{words[-1]}{folded}")  # 7a: no article
        elif word != folded:
            n_long_upper += len(word) > 3
            if (not is_first and word[0].isupper() and folded not in ("i", "i'm", "i've", "i'd", "i'll")) or (
                word[1:] != folded[1:]
            ):
                names.append(folded.partition("'")[0])
        n_long += len(word) > 3
        if folded == "you" and words and words[-1] == "thank":
            continue
        words += _CONTRACTED.get(folded) or _expanded(folded)
    is_title = n_long_upper > 1 and n_long_upper == n_long  # or in upper case
    n_negations = sum(word in _NEGATIONS for word in words)
    if not text.isascii():
        n_negations += sum(map(text.count, _NEGATIVE_PARTS))
    chosen_names = frozenset() if is_title else frozenset(names) - _GREETINGS - _ARTICLES
    return Wording(tuple(words), _content(text, words), tuple(numbers), n_negations, chosen_names)


def _content(text: str, words: Sequence[str]) -> tuple[str, ...]:
    """Words but for greetings, and for one word in front or behind that marks set apart; all if nothing is left."""
    content = words if _GREETINGS.isdisjoint(words) else [word for word in words if word not in _GREETINGS]
    if len(content) >= _FEWEST_WORDS:
        for pattern, place in ((_IN_FRONT, 0), (_BEHIND, -1)):
            apart = pattern.search(text)
            if apart is not None and (word := apart[1].casefold()) == content[place] and word not in _MEANT:
                content = content[1:] if place == 0 else content[:-1]
    return tuple(content or words)


def _expanded(word: str) -> tuple[str, ...]:
    if "'" not in word:
        return (word,)
    if word.endswith("n't"):
        return (word[:-3], "not")
    stem, mark, ending = word.rpartition("'")
    if ending == "s" and stem not in ("what", "where", "who", "when", "how", "that", "there", "here", "it", "he", "she"):
        return (stem,)  # of a genitive
    return (stem, _ENDINGS[mark + ending]) if mark + ending in _ENDINGS else (word.replace("'", ""),)


def difference(first: Wording, second: Wording, counts: Counter[str]) -> Difference:
    """Compare two texts; `counts` says in how many texts a word is."""
    if first.numbers != second.numbers or first.n_negations != second.n_negations:
        return Difference.CONTRAST
    if first.words == second.words:
        return Difference.SMALL
    ours, theirs = first.content, second.content
    if ours == theirs:
        return Difference.SMALL
    start, stop = 0, 0
    shortest = min(len(ours), len(theirs))
    while start < shortest and ours[start] == theirs[start]:
        start += 1
    while stop < shortest - start and ours[-1 - stop] == theirs[-1 - stop]:
        stop += 1
    ours, theirs = ours[start : len(ours) - stop], theirs[start : len(theirs) - stop]
    n_shared = shortest - min(len(ours), len(theirs))
    is_short = n_shared + max(len(ours), len(theirs)) <= _SHORT
    left, right = _leftovers(ours, theirs)
    names = first.names | second.names
    left, right = _unmatched(left, right, names, counts)
    if not left or not right or _ARTICLES.issuperset((*left, *right)):
        left, right = ([word for word in words if word not in _ARTICLES] for words in (left, right))
    if not left and not right:
        if Counter(ours) == Counter(theirs) and len(ours) > 1:
            # words in another order: two that change places have changed their roles
            moved = [place for place in range(len(ours)) if ours[place] != theirs[place]]
            is_exchange = len(moved) == 2 and moved[1] - moved[0] > 1 and not any(ours[place] in _WEAK for place in moved)
            return Difference.CONTRAST if is_exchange and is_short else Difference.OTHER
        return Difference.SMALL
    for word in (*left, *right):
        if word in _NUMBERS or word in names or not word[0].isalpha():
            return Difference.CONTRAST
    if left and right:
        is_one = len(left) == len(right) == 1
        left, right = ([word for word in words if word not in _WEAK] for words in (left, right))
        is_place = (left or right) if is_one else left and right and max(len(left), len(right)) <= _FEW
        return Difference.CONTRAST if is_place and is_short else Difference.OTHER
    n_added = len(left) + len(right)
    n_all = n_shared + max(len(ours), len(theirs))
    return Difference.ADDED if n_added <= max(1, _MOST_ADDED * (n_all - n_added)) else Difference.OTHER


def _leftovers(ours: Sequence[str], theirs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Words of each text that the other one lacks, in their order."""
    spare = Counter(theirs)
    left = []
    for word in ours:
        if spare[word] > 0:
            spare[word] -= 1
        else:
            left.append(word)
    right = []
    for word in reversed(theirs):
        if spare[word] > 0:
            spare[word] -= 1
            right.append(word)
    return left, right[::-1]


def _unmatched(
    left: list[str], right: list[str], names: frozenset[str], counts: Counter[str]
) -> tuple[list[str], list[str]]:
    """Words but for pairs that are forms or misspellings of one word."""
    if not left or not right:
        if len(left) + len(right) == 0:
            return left, right
    rest = []
    right = list(right)
    for word in left:
        same = next((other for other in right if _is_same(word, other, names, counts)), None)
        if same is None:
            rest.append(word)
        else:
            right.remove(same)
    return rest, right


def _is_same(one: str, other: str, names: frozenset[str], counts: Counter[str]) -> bool:
    if len(one) > len(other):
        one, other = other, one
    if len(other) < _FEWEST_LETTERS or one[0] != other[0] or not (one.isalpha() and other.isalpha()):
        return False
    if one[0] >= "\u0e00":  # syllables: each means something
        letters = Counter(other) - Counter(one)
        return len(one) >= _FEWEST_LETTERS and _is_misspelled_by_syllables(one, other) and _MEANT_SYLLABLES.isdisjoint(letters)
    is_name = one in names or other in names or not (counts[one] or counts[other])
    n_prefix = 0
    while n_prefix < len(one) and one[n_prefix] == other[n_prefix]:
        n_prefix += 1
    rests = one[n_prefix:], other[n_prefix:]
    if not is_name and n_prefix >= _STEM and max(map(len, rests)) <= _ENDING:
        if not _is_misspelled(*rests) or max(map(len, rests)) <= 2:
            return True
    if not _is_misspelled(*rests):
        return False
    is_swapped = len(one) == len(other) and rests[0][:2] == rests[1][:2][::-1]
    is_doubled = n_prefix == len(one) and one[-1] == other[-1]
    if is_name and not is_swapped and not (len(other) >= _SURE_LETTERS and (is_doubled or len(rests[0]) > 1)):
        return False
    rare, common = sorted((counts[one], counts[other]))
    return rare < _COMMON or rare * _MUCH_RARER < common


def _is_misspelled_by_syllables(one: str, other: str) -> bool:
    """Whether two syllables are swapped, or one of them is written twice or left out."""
    if len(one) == len(other):
        return sorted(one) == sorted(other) and sum(a != b for a, b in zip(one, other, strict=True)) == 2
    return len(other) == len(one) + 1 and any(other[:at] + other[at + 1 :] == one for at in range(1, len(other)))


def _is_misspelled(one: str, other: str) -> bool:
    """Whether the ends of two words, the shorter first, which begin differently, differ by one letter or two that are swapped."""
    if len(one) == len(other):
        return one[1:] == other[1:] or (one[:2] == other[:2][::-1] and one[2:] == other[2:])
    return one == other[1:]
