"""Filters: a small grammar for conditions on columns, for pyarrow and for SQL. Nothing is evaluated as code.

``lang = "en" and (year >= 2020 or not tag in ("a", "b")) and note is not null``
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from isosent._check import brief, is_unicode
from isosent.errors import InputError

Value = str | int | float | bool

_LONGEST: Final = 10_000  # characters
_DEEPEST: Final = 50  # parentheses and nots inside each other
_LEAST, _MOST = -(2**63), 2**64 - 1  # whole numbers of columns; beyond, numbers are rounded
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])
      | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<quoted>`[^`]+`)
      | (?P<symbol><=|>=|!=|<>|==|[=<>(),])
      | (?P<word>[^\W\d][\w.\-]*)
    )""",
    re.VERBOSE | re.DOTALL,
)
_OPERATORS: Final = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_COMPUTE: Final = {
    "=": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_KEYWORDS: Final = {"and", "or", "not", "in", "is", "null", "true", "false"}


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed filter: a test of one column, or conditions joined by ``and``, ``or`` or ``not``."""

    operator: str  # a comparison, "in", "is null", "and", "or" or "not"
    column: str | None = None
    values: tuple[Value, ...] = ()
    conditions: tuple[Condition, ...] = ()

    @property
    def columns(self) -> set[str]:
        """Columns that it names."""
        return {self.column} if self.column is not None else set().union(*(part.columns for part in self.conditions))


def parse_where(text: str, columns: Collection[str]) -> Condition:
    """Parse a filter on some of these columns; an `InputError` says where it is wrong."""
    if len(text) > _LONGEST:
        raise InputError(f"where: a filter may have {_LONGEST:,} characters; got {len(text):,}.")
    condition = _Parser(text).parse()
    if unknown := sorted(condition.columns - set(columns)):
        raise InputError(f"where: there is no column {unknown[0]}; there are: {brief(', '.join(columns), 600)}.")
    return condition


class _Parser:
    def __init__(self, text: str) -> None:
        if not is_unicode(text) or "\0" in text:
            raise InputError("where: a filter must be valid Unicode without zero bytes.")
        self.text = text
        self.tokens = list(self._tokens())
        self.place = 0

    def _tokens(self) -> Iterator[tuple[str, str, int]]:
        position, end = 0, len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None:
                raise self._error(position)
            kind = str(match.lastgroup)
            yield kind, match[kind], match.start(kind)
            position = match.end()
        yield "end", "", end

    def _error(self, position: int, expected: str = "a condition") -> InputError:
        before, after = brief(self.text[:position][-60:]), brief(self.text[position:][:60])
        where = f"at its end, after {before!r}" if not after.strip() else f"at {after!r}"
        return InputError(f'where: expected {expected} {where}. Write it like: lang = "en" and year >= 2020.')

    def parse(self) -> Condition:
        condition = self._or(0)
        kind, _, position = self.tokens[self.place]
        if kind != "end":
            raise self._error(position, "and, or, or the end")
        return condition

    def _next(self) -> tuple[str, str, int]:
        token = self.tokens[self.place]
        self.place = min(self.place + 1, len(self.tokens) - 1)
        return token

    def _takes(self, *words: str) -> bool:
        """Step over these words or symbols, if they come next."""
        following = self.tokens[self.place : self.place + len(words)]
        if [(kind in ("word", "symbol"), value.lower()) for kind, value, _ in following] != [(True, w) for w in words]:
            return False
        self.place += len(words)
        return True

    def _or(self, depth: int) -> Condition:
        parts = [self._and(depth)]
        while self._takes("or"):
            parts.append(self._and(depth))
        return parts[0] if len(parts) == 1 else Condition("or", conditions=tuple(parts))

    def _and(self, depth: int) -> Condition:
        parts = [self._not(depth)]
        while self._takes("and"):
            parts.append(self._not(depth))
        return parts[0] if len(parts) == 1 else Condition("and", conditions=tuple(parts))

    def _not(self, depth: int) -> Condition:
        if depth > _DEEPEST:
            raise InputError(f"where: parentheses may be {_DEEPEST} deep; got more.")
        if self._takes("not"):
            return Condition("not", conditions=(self._not(depth + 1),))
        if self._takes("("):
            condition = self._or(depth + 1)
            if not self._takes(")"):
                raise self._error(self.tokens[self.place][2], "a closing parenthesis")
            return condition
        return self._test()

    def _test(self) -> Condition:
        kind, value, position = self._next()
        if kind == "quoted":
            column = value[1:-1]
        elif kind == "word" and value.lower() not in _KEYWORDS:
            column = value
        else:
            raise self._error(position, "a column")
        if self._takes("is", "not", "null"):
            return Condition("not", conditions=(Condition("is null", column),))
        if self._takes("is", "null"):
            return Condition("is null", column)
        if self._takes("not", "in"):
            return Condition("not", conditions=(Condition("in", column, self._list()),))
        if self._takes("in"):
            return Condition("in", column, self._list())
        kind, symbol, position = self._next()
        if symbol not in _OPERATORS:
            raise self._error(position, "one of = != < <= > >=, in, or is null")
        return Condition(_OPERATORS[symbol], column, (self._value(),))

    def _list(self) -> tuple[Value, ...]:
        if not self._takes("("):
            raise self._error(self.tokens[self.place][2], "values in parentheses")
        values = [self._value()]
        while self._takes(","):
            values.append(self._value())
        if not self._takes(")"):
            raise self._error(self.tokens[self.place][2], "a closing parenthesis")
        return tuple(values)

    def _value(self) -> Value:
        kind, value, position = self._next()
        if kind == "text":
            return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)
        if kind == "number":
            if re.fullmatch(r"[+-]?\d{1,20}", value) and _LEAST <= int(value) <= _MOST:
                return int(value)
            if math.isinf(float(value)):
                raise self._error(position, "a number below 1.8e308")
            return float(value)
        if kind == "word" and value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise self._error(position, "a value: a number, true, false, or a text in quotes")


# -- pyarrow ---------------------------------------------------------------------------------------------------------


def matching_rows(table: Any, where: str) -> NDArray[np.bool_]:
    """Which rows of a table match a filter, (n_rows,); null matches nothing but ``is null``."""
    import pyarrow as pa

    condition = parse_where(where, table.column_names)
    mask = _mask(table, condition)
    mask = mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask
    matches: NDArray[np.bool_] = mask.fill_null(False).to_numpy(zero_copy_only=False)
    return matches


def _mask(table: Any, condition: Condition) -> Any:
    """Kleene logic, as in SQL: not null is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    match condition.operator:
        case "and":
            return reduce(pc.and_kleene, (_mask(table, part) for part in condition.conditions))
        case "or":
            return reduce(pc.or_kleene, (_mask(table, part) for part in condition.conditions))
        case "not":
            return pc.invert(_mask(table, condition.conditions[0]))
        case "is null":
            return pc.is_null(table.column(condition.column))
    column = _plain(table.column(condition.column))
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.bool_())
    scalars = [_scalar(condition, column.type, value) for value in condition.values]
    if condition.operator == "in":
        values = pa.array([scalar for scalar in scalars if scalar is not None], column.type)
        return pc.if_else(pc.is_valid(column), pc.is_in(column, values), pa.scalar(None, pa.bool_()))
    compare, scalar = getattr(pc, _COMPUTE[condition.operator]), scalars[0]
    if scalar is None:  # between two values of the type, or beyond all, so rounding changes nothing
        return compare(column.cast(pa.float64(), safe=False), pa.scalar(float(condition.values[0])))
    return compare(column, scalar)


def _plain(column: Any) -> Any:
    """A column in a type that pyarrow compares: categories as their values, and numbers in double precision."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type))
    if pa.types.is_floating(kind):
        return column.cast(pa.float64())
    return column.cast(pa.string()) if pa.types.is_string_view(kind) else column


def _scalar(condition: Condition, kind: Any, value: Value) -> Any:
    """A value as the type of its column; None if it is a number that this type cannot hold."""
    import pyarrow as pa

    types = pa.types
    try:
        if isinstance(value, bool):
            if types.is_boolean(kind):
                return pa.scalar(value)
        elif isinstance(value, str):
            if types.is_string(kind) or types.is_large_string(kind):
                return pa.scalar(value, kind)
            if types.is_temporal(kind):
                return _time(kind, value)
        elif types.is_floating(kind):
            return pa.scalar(float(value))
        elif types.is_integer(kind) or types.is_decimal(kind):
            exact = Decimal(repr(value))
            if types.is_integer(kind) and exact != int(exact):
                return None
            return pa.scalar(int(exact) if types.is_integer(kind) else exact, kind)
    except (pa.ArrowException, OverflowError):
        if not isinstance(value, str):
            return None
    raise InputError(f"where: {condition.column} is of type {kind}; it cannot be compared with {value!r:.80}.")


def _time(kind: Any, value: str) -> Any:
    """A date or a time; without a zone it is in UTC."""
    import pyarrow as pa

    try:
        return pa.scalar(value).cast(kind)
    except pa.ArrowInvalid:
        if getattr(kind, "tz", None) is None:
            raise
        return pa.scalar(value).cast(pa.timestamp(kind.unit)).cast(kind)


# -- SQL -------------------------------------------------------------------------------------------------------------


def to_sql(condition: Condition, identifier: Callable[[str], str], value: Callable[[Value], str]) -> str:
    """A filter as SQL. `identifier` quotes a column; `value` renders a value, or keeps it as a parameter."""
    match condition.operator:
        case "and" | "or":
            joined = f" {condition.operator} ".join(to_sql(p, identifier, value) for p in condition.conditions)
            return f"({joined})"
        case "not":
            return f"(not {to_sql(condition.conditions[0], identifier, value)})"
        case "is null":
            return f"({identifier(str(condition.column))} is null)"
        case "in":
            listed = ", ".join(value(v) for v in condition.values)
            return f"({identifier(str(condition.column))} in ({listed}))"
        case comparison:
            symbol = "<>" if comparison == "!=" else comparison
            return f"({identifier(str(condition.column))} {symbol} {value(condition.values[0])})"


def sql_literal(value: Value) -> str:
    """A value as a literal of standard SQL."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)
