"""Filters: a small grammar for conditions on columns, for pyarrow and for SQL. Nothing is evaluated as code.

``lang = "en" and (year >= 2020 or not tag in ("a", "b")) and note is not null``
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from isosent._check import brief
from isosent.errors import InputError

Value = str | int | float | bool

_LONGEST: Final = 10_000  # characters
_DEEPEST: Final = 50  # parentheses and nots inside each other
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
    "in": "equal",
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
            is_whole = re.fullmatch(r"[+-]?\d{1,18}", value) is not None
            return int(value) if is_whole else float(value)
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
    column = table.column(condition.column)
    compare = getattr(pc, _COMPUTE[condition.operator])
    return reduce(pc.or_kleene, (compare(column, _scalar(condition, column.type, v)) for v in condition.values))


def _scalar(condition: Condition, kind: Any, value: Value) -> Any:
    """A value as the type of its column."""
    import pyarrow as pa

    types = pa.types
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    fits = (
        (isinstance(value, bool) and types.is_boolean(kind))
        or (isinstance(value, (int, float)) and not isinstance(value, bool) and is_number)
        or (
            isinstance(value, str) and (types.is_string(kind) or types.is_large_string(kind) or types.is_temporal(kind))
        )
        or types.is_null(kind)
    )
    if fits and isinstance(value, str) and types.is_temporal(kind):
        try:
            return pa.scalar(value).cast(kind)
        except pa.ArrowException:
            fits = False
    if not fits:
        raise InputError(f"where: {condition.column} is of type {kind}; it cannot be compared with {value!r:.80}.")
    return pa.scalar(value)


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
