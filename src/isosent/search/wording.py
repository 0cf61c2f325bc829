"""What the words of two texts say: a small change, more words, other words, or a contrast.

A cosine hardly tells "I can" from "I cannot", and takes a misspelling for a change of meaning. `Wordings` reads the
words of texts when they are first compared. `difference` compares two: numbers, negations and names must be the same,
and a word in the place of another one is a contrast, unless it is a form or a misspelling of it. Greetings and articles
do not count, nor does a word in front or behind that marks set apart. The lists are short and of a few languages; what
they lack is taken for a contrast or left to the cosine, not for a small change.
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


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_SIGNS: Final = "\u0300-\u036f\u0900-\u0963\u0966-\u0dff"
_WORD: Final = re.compile(
    rf"(?:(?<!\S)-)?\d+(?:[.,:/-]\d+)*"  # 2.3.1, 8:15, 2021-03-04
    rf"|[{_UNSPACED}]"
    rf"|(?:[^\W\d_{_UNSPACED}]|[{_SIGNS}])+(?:'(?:[^\W\d_]|[{_SIGNS}])+)*[+#]*"  # can't, C++
    rf"|[^\w\s.,;:!?'\"()\[\]{{}}<>*/\\&~`^|=_-]"  # currencies, per cent, emoji
)
_CUT_OFF: Final = re.compile(r"(?<=\w) (?=(?:n't|'(?:s|re|m|ve|ll|d))(?!\w))", re.IGNORECASE)  # do n't, as in treebanks
_END: Final = re.compile(r"[.!?:;\n\u2026\u3002\uff01\uff1f]")
_QUOTES: Final = str.maketrans("\u2019\u2018\u02bc\u2212\u2010\u2011", "'''---")
_CONTRACTED: Final = {
    "can't": ("can", "not"), "cannot": ("can", "not"), "won't": ("will", "not"), "shan't": ("shall", "not"),
    "cant": ("can", "not"), "dont": ("do", "not"), "doesnt": ("does", "not"), "didnt": ("did", "not"),
    "isnt": ("is", "not"), "wasnt": ("was", "not"), "wont": ("will", "not"), "havent": ("have", "not"),
    "hasnt": ("has", "not"), "couldnt": ("could", "not"), "wouldnt": ("would", "not"), "shouldnt": ("should", "not"),
    "arent": ("are", "not"), "im": ("i", "am"), "ive": ("i", "have"), "let's": ("let", "us"), "whats": ("what", "is"),
}  # fmt: skip
_ENDINGS: Final = {"s": "is", "re": "are", "m": "am", "ve": "have", "ll": "will", "d": "would"}
_BEFORE_IS: Final = _words("what where who when how that there here it he she")
_NEGATIONS: Final = _words(
    "not no never none nobody nothing nowhere neither nor without unless hardly barely only except "
    "nicht kein keine keinen keinem keiner keines nie niemals niemand nichts ohne nur "
    "ne pas jamais aucun aucune sans rien personne seulement nunca nadie ningún ninguno ninguna sin tampoco jamás "
    "non mai nessuno nessuna niente senza não nunca nem ninguém nada sem niet geen nooit niemand zonder ikke inte "
    "не нет никогда без ни nie bez değil yok لا ليس لم لن غير بدون नहीं לא"
)
# of words that are written together or without spaces
_NEGATIVE_PARTS: Final = ("않", "못", "없", "不", "没", "沒", "未", "无", "無", "ない", "なかっ", "ません", "ไม่")
_MEANT_SYLLABLES: Final = frozenset("일이삼사오육칠팔구십백천만억안못않없불비무미")
_NUMBERS: Final = _words(
    "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred thousand million "
    "billion half first second third twice once both all every always zwei drei vier fünf sechs sieben acht neun zehn "
    "hundert tausend alle immer deux trois quatre cinq sept huit neuf dix cent mille tous dos tres cuatro cinco seis "
    "siete ocho nueve diez cien mil todos siempre toujours"
)
_GREETINGS: Final = _words(
    "please pls thanks thank hi hello hey dear regards cheers just bitte danke hallo merci bonjour svp gracias hola"
)
_ARTICLES: Final = _words("a an the der das ein eine le la les un une el los las una uma il lo gli het een")
# words that may stand for one another: the cosine decides
_WEAK: Final = _ARTICLES | _words(
    "die den dem des this that my its it i there and but then as of to for do does did can could would will is are was "
    "were am be been being has have had get got gets getting what which"
)
_MARKS: Final = ".,;:!?'\"()"
_AS_WRITTEN: Final = re.compile(r"[^\W\d_]+")
_BLOCK_ROWS: Final = 4096
_MEANT: Final = _NEGATIONS | _NUMBERS
_IN_FRONT: Final = re.compile(r"^\W*([^\W\d_]+(?: [^\W\d_]+)?)[,:!.?]+\s")
_BEHIND: Final = re.compile(r"[,:!.?]\s+([^\W\d_]+(?: [^\W\d_]+)?)\W*$")
_FEWEST_WORDS: Final = 3  # of a text without those that are set apart
_LONG: Final = 3  # letters of a short word, which titles write in lower case
_FEWEST_LETTERS: Final = 4  # of a word that may be misspelled
_SURE_LETTERS: Final = 8  # of a name that may be
_STEM: Final = 4  # letters that two forms of a word share
_SYLLABLES: Final = "\u0e00"  # the first character of scripts in which one is a syllable or more
_FORMS: Final = frozenset(
    frozenset(pair.split("/"))
    for pair in _words("/s /es /ed /d /ing e/ing s/ed s/ing ed/ing es/ed es/ing d/s y/ies y/ied ies/ied /n /en e/en")
)
_COMMON: Final = 3  # texts that have a word which is no misspelling
_MUCH_RARER: Final = 200  # times, than the word: a common misspelling
_SHORT: Final = 25  # words of a text in which one word more or less makes another text
_MOST_ADDED: Final = 0.34  # of the words of the shorter text
_FEW: Final = 2  # other words in a place


class Difference(IntEnum):
    """How two texts differ, from the most alike on."""

    SMALL = 0  # case, punctuation, misspellings, other forms of words, greetings
    APART = 1  # one text begins or ends with one or two more words, which a mark sets apart
    ADDED = 2  # one text has more words
    OTHER = 3
    CONTRAST = 4  # another number, negation, name or word in the same place


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
        """Whether two texts have the same words."""
        return self._wording(first).words == self._wording(second).words

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

    words: tuple[str, ...]  # but for greetings
    core: tuple[str, ...]  # but for one or two at the begin and at the end, which marks set apart
    numbers: tuple[str, ...]  # in their order
    n_negations: int
    names: frozenset[str]


def wording_of(text: str) -> Wording:
    """Read the words of a text."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(_QUOTES))
    text = _CUT_OFF.sub("", text)
    words: list[str] = []
    numbers, names = [], set()
    end, n_long, n_long_upper = 0, 0, 0
    for match in _WORD.finditer(text):
        word = match[0]
        is_first = not words or _END.search(text, end, match.start()) is not None
        is_attached = match.start() == end
        end = match.end()
        folded = word.casefold()
        if folded[-1].isdigit():
            numbers.append(folded)
        elif is_attached and len(word) == 1 and words and words[-1][-1].isdigit():
            names.add(folded := f"{words[-1]}{folded}")  # 7a: no article
        elif word != folded:
            n_long_upper += len(word) > _LONG
            if (not is_first and word[0].isupper() and folded[:2] not in ("i", "i'")) or word[1:] != folded[1:]:
                names.add(folded.partition("'")[0])
        n_long += len(word) > _LONG
        if folded != "you" or not words or words[-1] != "thank":
            words += _CONTRACTED.get(folded) or _expanded(folded)
    if n_long_upper > 1 and n_long_upper == n_long:  # a title, or upper case
        names.clear()
    n_negations = sum(word in _NEGATIONS for word in words)
    if not text.isascii():
        n_negations += sum(map(text.count, _NEGATIVE_PARTS))
    words = [word for word in words if word not in _GREETINGS] or words
    core = _core(text, words)
    return Wording(tuple(words), tuple(core), tuple(numbers), n_negations, frozenset(names - _GREETINGS - _ARTICLES))


def _core(text: str, words: list[str]) -> list[str]:
    """Words but for those that marks set apart."""
    core = words
    for pattern, is_front in ((_IN_FRONT, True), (_BEHIND, False)):
        if (found := pattern.search(text)) is not None:
            apart = found[1].casefold().split()
            n_apart = len(apart)
            is_there = core[:n_apart] == apart if is_front else core[-n_apart:] == apart
            if is_there and len(core) >= _FEWEST_WORDS + n_apart and _MEANT.isdisjoint(apart):
                core = core[n_apart:] if is_front else core[:-n_apart]
    return core


def _expanded(word: str) -> tuple[str, ...]:
    """Parts of a word with an apostrophe."""
    if "'" not in word:
        return (word,)
    if word.endswith("n't"):
        return (word[:-3], "not") if word[:-3] else ("not",)
    stem, _, ending = word.rpartition("'")
    if ending == "s" and stem not in _BEFORE_IS:
        return (stem,)  # of a genitive
    return (stem, _ENDINGS[ending]) if ending in _ENDINGS else (word.replace("'", ""),)


def difference(first: Wording, second: Wording, counts: Counter[str]) -> Difference:
    """Compare two texts; `counts` says in how many texts a word is, as it is written."""
    if first.numbers != second.numbers or first.n_negations != second.n_negations:
        return Difference.CONTRAST
    if first.words == second.words:
        return Difference.SMALL
    if not first.words or not second.words:
        return Difference.OTHER
    names = first.names | second.names
    n_apart = len(first.words) - len(first.core), len(second.words) - len(second.core)
    if bool(n_apart[0]) == bool(n_apart[1]):  # Anna, call me; Peter, call me
        return _compared(first.words, second.words, names, counts)
    change = _compared(first.core, second.core, names, counts)
    if change != Difference.SMALL:
        return change
    longer = first if n_apart[0] else second
    apart = list((Counter(longer.words) - Counter(longer.core)).elements())
    # a word that is never in lower case is a name
    return Difference.SMALL if len(apart) == 1 and counts[apart[0]] else Difference.APART


def _compared(
    ours: tuple[str, ...], theirs: tuple[str, ...], names: frozenset[str], counts: Counter[str]
) -> Difference:
    """Compare the words of two texts."""
    n_words = max(len(ours), len(theirs))
    ours, others = _middles(ours, theirs)
    n_shared = n_words - max(len(ours), len(others))
    left, right, theirs = _unmatched(ours, others, names, counts)
    if any(word in _NUMBERS or word in names or not word[0].isalpha() for word in (*left, *right)):
        return Difference.CONTRAST
    if _in_order(ours, names, theirs) != _in_order(theirs, names, ours):
        return Difference.CONTRAST  # Anna paid Peter, Peter paid Anna
    if not left or not right or _ARTICLES.issuperset((*left, *right)):
        left, right = _without(_ARTICLES, left), _without(_ARTICLES, right)
    if not left and not right:
        return _of_order(_without(_ARTICLES, ours), _without(_ARTICLES, theirs), is_short=n_words <= _SHORT)
    if left and right:
        is_one = len(left) == len(right) == 1
        left, right = _without(_WEAK, left), _without(_WEAK, right)
        is_place = (left or right) if is_one else left and right and max(len(left), len(right)) <= _FEW
        return Difference.CONTRAST if is_place and n_words <= _SHORT else Difference.OTHER
    shorter, longer = sorted((_without(_ARTICLES, ours), _without(_ARTICLES, theirs)), key=len)
    rest = iter(longer)
    n_added = len(left) + len(right)
    is_added = all(word in rest for word in shorter) and n_added <= max(1, _MOST_ADDED * (n_shared + len(shorter)))
    return Difference.ADDED if is_added else Difference.OTHER


def _of_order(ours: Sequence[str], theirs: Sequence[str], *, is_short: bool) -> Difference:
    """Compare texts of the same words: two that change places have changed their roles."""
    moved = [one for one, other in zip(ours, theirs, strict=True) if one != other]
    if not moved:
        return Difference.SMALL
    is_exchange = len(moved) == 2 and abs(ours.index(moved[0]) - ours.index(moved[1])) > 1 and _WEAK.isdisjoint(moved)
    return Difference.CONTRAST if is_exchange and is_short else Difference.OTHER


def _middles(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Words between those that two texts begin with and those that they end with."""
    start, stop, shortest = 0, 0, min(len(ours), len(theirs))
    while start < shortest and ours[start] == theirs[start]:
        start += 1
    while stop < shortest - start and ours[-1 - stop] == theirs[-1 - stop]:
        stop += 1
    return ours[start : len(ours) - stop], theirs[start : len(theirs) - stop]


def _without(left_out: frozenset[str], words: Sequence[str]) -> list[str]:
    return [word for word in words if word not in left_out]


def _in_order(words: Sequence[str], names: frozenset[str], others: Sequence[str]) -> list[str]:
    """The names that both texts have."""
    shared = names.intersection(others)
    return [word for word in words if word in shared]


def _unmatched(
    ours: Sequence[str], theirs: Sequence[str], names: frozenset[str], counts: Counter[str]
) -> tuple[list[str], list[str], tuple[str, ...]]:
    """Words that only one of two texts has, and those of the second one, spelled as in the first one."""
    left, right = _beyond(ours, theirs), _beyond(theirs, ours)
    places: dict[str, list[int]] = {}  # of each word of the second text, the first of them at the end
    for place in range(len(right) - 1, -1, -1):
        places.setdefault(right[place], []).append(place)
    letters = {word[0] for word in left}.intersection(word[0] for word in places)  # spares most words the keys
    words_of: dict[str, list[str]] = {}
    for word in places:
        if word[0] in letters:
            for key in _keys(word):
                words_of.setdefault(key, []).append(word)
    spelled, rest = {}, []
    for word in left:
        near = {other for key in _keys(word) for other in words_of.get(key, ())} if word[0] in letters else ()
        spellings = [other for other in near if places[other] and _is_same(word, other, names, counts)]
        if spellings:
            same = min(spellings, key=lambda other: places[other][-1])
            places[same].pop()
            spelled[same] = word
        else:
            rest.append(word)
    others = sorted(place for unmatched in places.values() for place in unmatched)
    return rest, [right[place] for place in others], tuple(spelled.get(word, word) for word in theirs)


def _beyond(words: Sequence[str], others: Sequence[str]) -> list[str]:
    """Words without as many of each as there are among others, the first ones."""
    counts = Counter(others)
    beyond = []
    for word in words:
        if counts[word] > 0:
            counts[word] -= 1
        else:
            beyond.append(word)
    return beyond


def _keys(word: str) -> set[str]:
    """Words that `_is_same` can hold for have one of these in common, so not all are compared with all."""
    # they share the first four letters, or are equal but for one letter that is left out before the fifth
    keys = {word, word[:_STEM], *(word[:at] + word[at + 1 :] for at in range(1, min(_STEM + 1, len(word))))}
    if word[0] >= _SYLLABLES:  # any two may have changed places
        keys.add("".join(sorted(word)))
    return keys


def _is_same(one: str, other: str, names: frozenset[str], counts: Counter[str]) -> bool:
    """Whether two words are forms or spellings of one word; never of names that may be two."""
    if len(one) > len(other):
        one, other = other, one
    if len(other) < _FEWEST_LETTERS or one[0] != other[0] or not (one.isalpha() and other.isalpha()):
        return False
    if one[0] >= _SYLLABLES:  # each means something
        return len(one) >= _FEWEST_LETTERS and _is_misspelled_syllable(one, other)
    n_same = 0
    while n_same < len(one) and one[n_same] == other[n_same]:
        n_same += 1
    ending, longer = one[n_same:], other[n_same:]
    # a word that is never in lower case is a name
    is_name = one in names or other in names or not (counts[one] or counts[other])
    if (
        not is_name
        and n_same >= _STEM
        and (frozenset((ending, longer)) in _FORMS or (not ending and longer in (f"{one[-1]}ed", f"{one[-1]}ing")))
    ):
        return True
    is_swapped = len(one) == len(other) and ending[:2] == longer[1::-1] and ending[2:] == longer[2:]
    is_changed = len(one) == len(other) and ending[1:] == longer[1:]
    is_left_out = ending == longer[1:]
    if not (is_swapped or is_changed or is_left_out):
        return False
    if is_name and not is_swapped:
        is_doubled = not ending and one[-1] == other[-1]
        if len(other) < _SURE_LETTERS or not (is_doubled or len(ending) > 1):
            return False
    rare, common = sorted((counts[one], counts[other]))
    # contact and contract are two words; where both are rare, nobody knows
    return (rare < _COMMON or rare * _MUCH_RARER < common) and (is_swapped or is_name or rare < common)


def _is_misspelled_syllable(one: str, other: str) -> bool:
    """Whether two syllables are swapped, or one that is no number or negation is written twice or left out."""
    if len(one) == len(other):
        return sorted(one) == sorted(other) and sum(a != b for a, b in zip(one, other, strict=True)) == 2
    places = [at for at in range(1, len(other)) if other[:at] + other[at + 1 :] == one]
    return bool(places) and other[places[0]] not in _MEANT_SYLLABLES
