"""Which values of a table are vectors: lists of numbers, also those that were written out as text.

`parse_numbers` reads one value: a list of JSON or parquet, or a text as pandas, numpy, torch, a database or a
spreadsheet writes it. `is_cut` finds a text in which printing has left numbers out. `kind_of` looks at many values of a
column, because one text such as "(3, 4)" says little. All that asks whether something holds vectors asks these three.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple

import msgspec

from isosent.errors import next_step, option

Kind = Literal["vectors", "lists", "cut"]

SAMPLED_ROWS: Final = 200
EXCEL: Final = "sep="  # begins a line that says how the fields of the others are separated
SAVE_ADVICE: Final = "Save the vectors with numpy.save, or in a .parquet file"
_HELP: Final = option("help")
VECTORS_ADVICE: Final = (
    f"See: {next_step(f'isosent transform {_HELP}', 'SentenceEncoder.transform')}, "
    f"{next_step(f'isosent fit {_HELP}', 'SentenceEncoder.fitted_on_vectors')}"
)

_LEAST_DIM: Final = 3  # two numbers may be a place on a map
_LONG: Final = 8  # numbers in a row that no sentence has
_FEW_ROWS: Final = 3
_USUAL: Final = re.compile(r"(^|[_.\- ])(emb(edding)?s?|vec(tor)?s?)([_.\- ]|$)")
_OTHER: Final = re.compile(
    r"(?<![a-z])(?:(sub)?scores?|(log)?prob(s|abilit(y|ies))?|logits?|b?box(es)?|coord(s|inates?)?"
    r"|(geo)?locations?|geo(m|metry|point)?|lat_?lon(g|s)?|lon_?lat|lat_?lng|pos(itions?)?|rgba?|colou?rs?"
    r"|labels?|token(s|i[sz]ed)?|ids?|(date)?times?|timestamps?|spans?|offsets?|pric(es?|ing)|ratings?|ranges?"
    r"|intervals?|shapes?|sizes?|counts?|weights?)(?![a-z])"
)
_BLANK: Final = frozenset({"", "nan", "none", "null", "na", "n/a", "<na>"})
# array([...]), tensor([...], device='cpu'), Vector([...]), <tf.Tensor: shape=(3,), numpy=array([...])>
_CALL: Final = re.compile(
    r"(?:Parameter containing:\s*)?(?:<tf\.Tensor:.*?numpy=\s*)?"
    r"(?:[a-z]+\.)?(?:array|asarray|tensor|Tensor|FloatTensor|Array|[vV]ector|HalfVector|DenseVector|list|tuple)\("
)
_SETTINGS: Final = re.compile(r",\s*(?:dtype|device|shape|requires_grad|grad_fn|weak_type|size)\s*=.*\Z", re.DOTALL)
_NUMBER_CALL: Final = re.compile(
    r"\b[A-Za-z_][\w.]{0,40}\(\s*['\"]?([-+]?[\d.]+(?:[eE][-+]?\d+)?|nan|-?inf)['\"]?\s*\)"
)
_MISSING: Final = re.compile(r"\b(?:None|null|NULL|NaN)\b")
_ALPHABET: Final = re.compile(r"[-+0-9.eE,;|\snaif'\"]*", re.ASCII)
_LEFT_OUT: Final = re.compile(r"(?:\.\.\.|\u2026)(?:\s*\d+ more items?)?")
_EMPTY: Final = ("[]", "{}", "()")
_TIGHT_COMMA: Final = re.compile(r"\d,\d")
_THOUSANDS: Final = re.compile(r"(?<![\d.])[1-9]\d{0,2},\d{3}(?!\d)")
_NO_WHOLE: Final = re.compile(r"(?<!\d)(?:0\d|-0(?!\d))")  # beginnings of numbers that are no whole ones
# base64, bytes as Python writes them, or in hexadecimal digits
_PACKED: Final = re.compile(
    r"(?:[A-Za-z0-9+/]{4}){4,}(?:[A-Za-z0-9+/]{2,3}={1,2})?|b(['\"]).*\1|(?:\\x|0x)[0-9a-fA-F]{8,}", re.DOTALL
)
_START: Final = 200
_WORDS: Final = re.compile(r"[A-Za-z]{2} +[A-Za-z]{2,40},? +[A-Za-z]{2}")  # three words
_CLOSING: Final = {"[": "]", "(": ")", "{": "}"}  # braces are arrays of PostgreSQL


class NumberList(NamedTuple):
    """A list of numbers; one that is missing is NaN."""

    numbers: Sequence[float]
    is_whole: bool  # written without a fraction and an exponent
    is_bracketed: bool


def is_blank(value: Any) -> bool:
    """Whether a value is missing: null, NaN, an empty text, or a word for it."""
    return value is None or value != value or (isinstance(value, str) and value.strip().lower() in _BLANK)


def is_comment(line: str) -> bool:
    """Whether a line around those of numbers is a header or footer of numpy.savetxt, or the separator of Excel."""
    return line.startswith("#") or (line.startswith(EXCEL) and len(line.strip()) <= len(EXCEL) + 1)


def has_whole_number(line: str) -> bool:
    """Whether one of the numbers of a line is written without a fraction and an exponent."""
    pieces = (line.replace(",", ".") if _is_decimal_comma(line) else line).replace(",", " ")
    return any(re.fullmatch(r"[-+]?\d+", piece) for piece in re.split(r"[\s;|]+", pieces))


def _is_other(name: str) -> bool:
    """Whether a word of a column's name says that its numbers are no vectors."""
    return _OTHER.search(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()) is not None


def parse_numbers(value: Any) -> NumberList | None:
    """Read a value that is a complete list of numbers; None for anything else."""
    if isinstance(value, list | tuple):
        return _of_items(value)
    if not isinstance(value, str):
        return None
    if value.strip() in _EMPTY:
        return NumberList([], is_whole=True, is_bracketed=True)
    if not _may_be_list(value) or is_unclear(value):
        return None
    if value.startswith("["):
        try:  # by far the fastest
            decoded = msgspec.json.decode(value, type=list[float])
        except msgspec.MsgspecError:
            pass
        else:
            return NumberList(decoded, not re.search(r"[.eE]", value), is_bracketed=True)
    body, is_bracketed, is_closed = _body(value)
    if not is_closed:
        return None
    numbers = _numbers(body)
    if numbers is None or (not is_bracketed and len(numbers) < 2):
        return None
    return NumberList(numbers, not _has_fraction(body), is_bracketed)


def is_cut(value: Any) -> bool:
    """Whether a text is a list of numbers that lacks some of them, as printing shortens it."""
    if not isinstance(value, str) or not _may_be_list(value):
        return False
    has_gap = bool(_LEFT_OUT.search(value))
    body, is_bracketed, is_closed = _body(_LEFT_OUT.sub(" ", value))
    if (not has_gap and (is_closed or not is_bracketed)) or not (is_bracketed or _has_fraction(body)):
        return False
    separator = next((mark for mark in ";,|" if mark in body), None)
    pieces = [piece.strip() for piece in body.split(separator) if piece.strip()]
    if not is_closed:  # a cell that is cut at its longest, perhaps within a number; or a matrix over several lines
        pieces = pieces[: None if has_gap else -1]
    numbers = _numbers((separator or " ").join(pieces).replace("[", " ").replace("]", " "))
    return numbers is not None and len(numbers) >= (2 if is_bracketed and has_gap else _LEAST_DIM)


def is_unclear(value: Any) -> bool:
    """Whether a text is a list whose commas may separate numbers, or be decimal commas or separators of thousands."""
    if not isinstance(value, str) or ";" in value or "|" in value or not (n_commas := value.count(",")):
        return False
    n_wide = value.count(", ")
    if n_wide == n_commas or (not n_wide and "." in value) or not _may_be_list(value):
        return False
    body, is_bracketed, _ = _body(value)
    if not (is_bracketed or n_commas >= _LONG) or not _ALPHABET.fullmatch(body) or _is_decimal_comma(body):
        return False
    if n_wide:  # 0,5, 0,25 or 1,234.5, 2.5
        return bool((_THOUSANDS if "." in body else _TIGHT_COMMA).search(body))
    return bool(_NO_WHOLE.search(body))  # 0,05,-0,25


def may_be_vectors(values: Sequence[Any], name: str = "") -> bool:
    """Whether a column that is not read as vectors may hold some: packed, written in another way, or whole numbers."""
    present = [value for value in values if not is_blank(value)]
    if not present or _is_other(name):
        return False
    lists = [parse_numbers(value) for value in present]
    if all(lists):
        lengths = {len(each.numbers) for each in lists if each}
        return len(lengths) == 1 and min(lengths) >= _LONG
    is_named = _USUAL.search(name.lower()) is not None
    return all(_may_be_vector(value, is_named=is_named) for value in present)


def _may_be_vector(value: Any, *, is_named: bool) -> bool:
    if not isinstance(value, str):
        return is_named and isinstance(value, bytes | list | dict) and len(value) > 1
    text = value.strip()
    if is_named and _PACKED.fullmatch(text):
        return True
    if text[0] not in _CLOSING or not any(map(str.isdigit, text)):
        return False
    is_list = text.endswith(_CLOSING[text[0]]) and len(re.split(r"[,;\s]+", text)) >= _LEAST_DIM
    return is_named or (is_list and not re.search(r"[^\W\d_]{3}", text))


def kind_of(values: Sequence[Any], name: str = "", *, is_typed: bool = False) -> Kind | None:
    """What a sample of a column holds; None for texts, single numbers and all else, and where all are missing.

    Vectors are lists of one length. Whole numbers may be labels or tokens, and short lists places or shares: those are
    "lists", and so are columns that are called scores or labels; they are vectors if someone says so. Whole numbers are
    vectors where the column is called so, or `is_typed`, such as int8 of parquet.
    "cut" are lists that lack numbers, or whose commas are unclear.
    """
    present = [value for value in values if not is_blank(value)]
    parsed = [parse_numbers(value) for value in present]
    lists = [each for each in parsed if each is not None]
    is_named = _USUAL.search(name.lower()) is not None
    n_cut = sum(is_cut(value) or is_unclear(value) for value, each in zip(present, parsed, strict=True) if each is None)
    if n_cut and 2 * (n_cut + len(lists)) > len(present) and (n_cut + len(lists) == len(present) or is_named):
        return "cut"
    if not lists:
        return None
    dim, n_equal = Counter(len(each.numbers) for each in lists).most_common(1)[0]
    are_bracketed = all(each.is_bracketed for each in lists)
    is_most = (2 * n_equal > len(present) and dim >= _LONG) or (4 * n_equal >= 3 * len(present) and are_bracketed)
    if n_equal < len(present) and not is_most and not (is_named and 2 * len(lists) > len(present)):
        return "lists" if len(lists) == len(present) else None  # else the reader names the row that differs
    n_fractions = sum(not each.is_whole for each in lists)
    if is_named and (dim > 1 or are_bracketed):
        return "vectors"
    if _is_other(name):
        return "lists"
    if are_bracketed:
        return "vectors" if dim >= _LEAST_DIM and (n_fractions or is_typed) else "lists"
    # numbers without brackets: phone numbers, dates and sums are no vectors
    is_enough = len(lists) >= _FEW_ROWS or dim >= _LONG
    return "vectors" if dim >= _LEAST_DIM and is_enough and 2 * n_fractions > len(lists) else "lists"


def kind_of_lines(lines: Sequence[str]) -> Kind | None:
    """The same of lines of a file; what numpy prints of a matrix goes over several lines, and counts as cut."""
    numbered = [place for place, line in enumerate(lines) if not is_comment(line)]
    if numbered and 2 * len(numbered) > len(lines):
        lines = lines[numbered[0] : numbered[-1] + 1]
    kind = kind_of(lines)
    if kind not in ("vectors", "cut") and any(line.lstrip().startswith("[") for line in lines[:1]):
        pieces = [_LEFT_OUT.sub(" ", line).strip().strip("[],") for line in lines]
        present = [piece for piece in pieces if piece.strip()]
        numbers = [_numbers(piece.strip()) for piece in present]
        if len(present) > 1 and all(numbers) and any(map(_has_fraction, present)):
            return "cut"
    return kind


def are_json_objects(values: Sequence[Any]) -> bool:
    """Whether texts are objects in JSON, as databases export their metadata, and no texts to search."""
    present = [value for value in values if not is_blank(value)]
    try:
        return bool(present) and all(msgspec.json.decode(value, type=dict) is not None for value in present)
    except (msgspec.MsgspecError, TypeError, UnicodeError):
        return False


def are_written_lists(values: Sequence[Any]) -> bool:
    """Whether texts are lists in brackets of four numbers or more, of any kind, or no texts but lists."""
    present = [value for value in values if not is_blank(value)]
    lists = [each for value in present if (each := parse_numbers(value)) is not None and each.is_bracketed]
    is_long = bool(lists) and len(lists) == len(present) and min(len(each.numbers) for each in lists) > _LEAST_DIM
    return is_long or (bool(present) and all(isinstance(value, list) for value in present))


def _of_items(items: Sequence[Any]) -> NumberList | None:
    if len(items) == 1 and isinstance(items[0], list | tuple):  # a matrix of one row
        return _of_items(items[0])
    kinds = set(map(type, items)) - {type(None)}  # a few, where the items are many
    if not all(issubclass(kind, (int, float, Decimal)) and kind is not bool for kind in kinds):
        return None
    try:
        numbers = [math.nan if item is None else float(item) for item in items]
    except OverflowError:  # a whole number of more than 308 digits
        return None
    is_whole = None not in items and all(issubclass(kind, int) for kind in kinds)
    return NumberList(numbers, is_whole, is_bracketed=True)


def _may_be_list(text: str) -> bool:
    """Whether a text begins as lists of numbers do, which spares sentences a closer look."""
    start = text[:_START]
    return any(character.isdigit() for character in start) and not _WORDS.search(start)


def _body(text: str) -> tuple[str, bool, bool]:
    """What lies within the brackets, whether there are any, and whether they are closed."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1].strip()
    call = _CALL.match(text)
    if call:
        text = _SETTINGS.sub("", text[call.end() :].rstrip(">").removesuffix(")").strip()).strip()
    if "(" in text:
        text = _NUMBER_CALL.sub(r"\1", text)
    if re.search("N[oaU]|null", text):
        text = _MISSING.sub("nan", text)
    is_bracketed, is_closed = call is not None, True
    for _ in range(2):  # twice for a matrix of one row
        if not text or text[0] not in _CLOSING:
            break
        closing, is_bracketed = _CLOSING[text[0]], True
        is_closed = is_closed and text.endswith(closing)
        text = text[1:].removesuffix(closing).strip()
    return text, is_bracketed, is_closed


def _numbers(body: str) -> list[float] | None:
    """Numbers between semicolons, commas, bars or blanks."""
    if not _ALPHABET.fullmatch(body):
        return None
    if _is_decimal_comma(body):
        body = body.replace(",", ".")
    separator = next((mark for mark in ";,|" if mark in body), None)
    pieces = body.replace("'", "").replace('"', "").split(separator)
    if separator and not pieces[-1].strip():
        pieces.pop()
    try:
        return list(map(float, pieces))
    except ValueError:
        return None


def _is_decimal_comma(body: str) -> bool:
    """Whether commas are in place of decimal points, between semicolons or blanks."""
    if "," not in body or "." in body:
        return False
    pieces = body.replace(";", " ").split()
    return (";" in body or len(pieces) > 1) and all(
        re.fullmatch(r"[-+]?\d+(,\d+)?([eE][-+]?\d+)?", each) for each in pieces
    )


def _has_fraction(body: str) -> bool:
    return bool(re.search(r"[.eE]", body)) or _is_decimal_comma(body)
