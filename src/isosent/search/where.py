"""Filters: a small grammar for conditions on columns, for pyarrow and for SQL. Nothing is evaluated as code.

``lang = "en" and (year >= 2020 or not tag in ("a", "b")) and note is not null``

`parse_where` makes a tree of `Condition` objects (`_Parser`), and gives each value the type of its column (`_typed`);
comparisons that a type cannot hold exactly become ones that it can (`_exact`). `matching_rows` evaluates the tree on a
pyarrow table, with the logic of SQL for null; `to_sql` writes it for a database, which gets the values as parameters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from isosent._check import brief, is_unicode
from isosent.errors import InputError

Value = str | int | float | bool | Decimal | date  # a datetime is a date

_LONGEST: Final = 10_000  # characters
_DEEPEST: Final = 50  # parentheses and nots inside each other
_LONGEST_WHOLE: Final = 40  # digits; longer numbers are rounded
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


def parse_where(text: str, schema: Any) -> Condition:
    """Parse a filter for the columns of a pyarrow schema; an `InputError` says where it is wrong.

    Values get the types of their columns, so that all engines give the same rows.
    """
    if len(text) > _LONGEST:
        raise InputError(f"where: the filter has {len(text):,} characters. At most {_LONGEST:,} are read.")
    condition = _Parser(text).parse()
    if unknown := sorted(condition.columns - set(schema.names)):
        raise InputError(f"where: there is no column {unknown[0]}; there are: {brief(', '.join(schema.names), 600)}.")
    return _typed(condition, schema)


class _Parser:
    def __init__(self, text: str) -> None:
        if not is_unicode(text) or "\0" in text:
            raise InputError("where: the filter is not valid Unicode, or holds a zero byte.")
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
            raise InputError(f"where: the parentheses are more than {_DEEPEST} deep. Write the filter with fewer.")
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
            if value.lstrip("+-").isdecimal() and len(value) <= _LONGEST_WHOLE:
                return int(value)
            if math.isinf(float(value)):
                raise self._error(position, "a number below 1.8e308")
            return float(value)
        if kind == "word" and value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise self._error(position, "a value: a number, true, false, or a text in quotes")


# -- types -----------------------------------------------------------------------------------------------------------


def _typed(condition: Condition, schema: Any) -> Condition:
    """A condition whose values have the types of their columns."""
    import pyarrow as pa

    if condition.column is None:
        return replace(condition, conditions=tuple(_typed(part, schema) for part in condition.conditions))
    kind = _plain_type(schema.field(condition.column).type)
    if not condition.values or pa.types.is_null(kind):
        return condition
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        for value in condition.values:
            if isinstance(value, (bool, str)):
                raise _mismatch(condition.column, kind, value)
        return _exact(condition, kind)
    return replace(condition, values=tuple(_value_of(condition.column, kind, value) for value in condition.values))


def _plain_type(kind: Any) -> Any:
    """Of categories, the type of their values."""
    import pyarrow as pa

    return _plain_type(kind.value_type) if pa.types.is_dictionary(kind) else kind


def _mismatch(column: str, kind: Any, value: Value) -> InputError:
    return InputError(f"where: {column} is of type {kind}; it cannot be compared with {value!r:.80}.")


def _value_of(column: str, kind: Any, value: Any) -> Value:
    from pyarrow import types

    is_text = isinstance(value, str)
    if is_text and (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        return str(value)
    if isinstance(value, bool) and types.is_boolean(kind):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and types.is_floating(kind):
        return float(value)
    if is_text and (types.is_date(kind) or types.is_timestamp(kind)):
        try:
            return date.fromisoformat(value) if types.is_date(kind) else _time(value, is_zoned=kind.tz is not None)
        except (ValueError, OverflowError):
            pass
    raise _mismatch(column, kind, value)


def _time(text: str, *, is_zoned: bool) -> datetime:
    """A time in UTC, which is also the zone where the text names none; or a time without a zone."""
    time = datetime.fromisoformat(text)
    if not is_zoned:
        if time.tzinfo is not None:
            raise ValueError
        return time
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _exact(condition: Condition, kind: Any) -> Condition:
    """A test of whole numbers or decimals, by numbers that the type can hold.

    ``n < 2.5`` becomes ``n <= 2``. Engines differ in what they do with other numbers.
    """
    import pyarrow as pa

    operator = condition.operator
    if is_decimal := pa.types.is_decimal(kind):
        high, scale = 10**kind.precision - 1, kind.scale
        low = -high
    else:
        is_signed, scale = pa.types.is_signed_integer(kind), 0
        high = 2 ** (kind.bit_width - is_signed) - 1
        low = -high - 1 if is_signed else 0

    def test(operator: str, *units: int) -> Condition:
        values = (Decimal(f"{unit}e{-scale}") if is_decimal else unit for unit in units)
        return Condition(operator, condition.column, tuple(values))

    units = [Fraction(repr(value)) * Fraction(10) ** scale for value in condition.values]
    fitting = [int(unit) for unit in units if unit.denominator == 1 and low <= unit <= high]
    if fitting:
        return test(operator, *fitting)
    never, always = test(">", high), test("<=", high)
    if operator in ("=", "in", "!="):
        return always if operator == "!=" else never
    if operator in ("<", "<="):
        return test("<=", min(math.floor(units[0]), high)) if units[0] > low else never
    if units[0] > high:
        return never
    return test(">=", math.ceil(units[0])) if units[0] > low else always


# -- pyarrow ---------------------------------------------------------------------------------------------------------


def matching_rows(table: Any, where: str) -> NDArray[np.bool_]:
    """Which rows of a table match a filter, (n_rows,); null matches nothing but ``is null``."""
    import pyarrow as pa

    condition = parse_where(where, table.schema)
    try:
        mask = _mask(table, condition)
    except pa.ArrowException as error:  # such as times that do not fit into 64 bits
        raise InputError(f"where: {brief(error)}") from None
    mask = mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask
    return np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False))


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
    column = table.column(condition.column)
    if pa.types.is_null(_plain_type(column.type)):
        return pa.nulls(len(column), pa.bool_())
    column, values = _comparable(column, condition.values)
    if condition.operator == "in":
        return pc.if_else(pc.is_valid(column), pc.is_in(column, values), pa.scalar(None, pa.bool_()))
    return getattr(pc, _COMPUTE[condition.operator])(column, values[0])


def _comparable(column: Any, values: tuple[Value, ...]) -> tuple[Any, Any]:
    """A column and values in one type that pyarrow compares."""
    import pyarrow as pa

    kind = _plain_type(column.type)
    if pa.types.is_floating(kind):  # 0.1 finds the float32 that is called 0.1
        target = pa.float32() if pa.types.is_float16(kind) else kind
        return column.cast(target), pa.array(values, pa.float64()).cast(kind).cast(target)
    if pa.types.is_timestamp(kind):
        target = pa.timestamp("us", kind.tz)
        return column.cast(target, safe=kind.unit != "ns"), pa.array(values, target)
    target = pa.string() if pa.types.is_string_view(kind) else kind
    return column.cast(target), pa.array(values, target)


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
    """A value as a literal of the SQL of DataFusion; but for times with a zone, of standard SQL."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime() if value.tzinfo is not None:  # DataFusion takes other literals for times of the column's zone
            return f"""arrow_cast('{value.isoformat()}', 'Timestamp(Microsecond, Some("UTC"))')"""
        case datetime():
            return f"timestamp '{value.isoformat(sep=' ')}'"
        case date():
            return f"date '{value.isoformat()}'"
        case Decimal():
            return f"{value:f}"
        case _:
            return repr(value)
