"""What may stand behind an option of a model reference: from what was written to the one spelling that is stored.

Every rule raises ValueError on what it does not take.
"""

import re
from collections.abc import Callable

from isosent.errors import ModelReferenceError
from isosent.network.reading import canonical_pooling, parse_layers
from isosent.network.runtime import AUTO
from isosent.text.tokens import SPLITTERS

FUNCTION = "function"
_DEVICE = re.compile(r"cpu|(cuda|mps|xpu)(:\d+)?")


def yes_or_no(value: str) -> str:
    """Take true or false."""
    if value.lower() not in ("true", "false"):
        raise ValueError(value)
    return value.lower()


def whole_number(value: str, least: int = 1) -> str:
    """Take a whole number that is not below the least one."""
    if int(value) < least:
        raise ValueError(value)
    return str(int(value))


def from_zero(value: str) -> str:
    """Take a whole number, 0 included."""
    return whole_number(value, 0)


def whole_number_or_none(value: str) -> str:
    """Take a whole number above 0, or none."""
    return "none" if value.lower() == "none" else whole_number(value)


def number(value: str, *, may_be_zero: bool = False) -> str:
    """Take a finite number above 0."""
    read = float(value)
    if not (read > 0 or (may_be_zero and read == 0)) or read == float("inf"):
        raise ValueError(value)
    return written_number(read)


def number_from_zero(value: str) -> str:
    """Take a finite number, 0 included."""
    return number(value, may_be_zero=True)


def powers(value: str) -> str:
    """Take powers of power means."""
    read = [float(power) for power in value.split(",")]
    if not all(power > 0 or power == -float("inf") for power in read):
        raise ValueError(value)
    return ",".join(map(written_number, read))


def layers(value: str) -> str:
    """Take layers of a network, which are resolved when it is open."""
    parse_layers(value)
    return value


def poolings(value: str) -> str:
    """Take names of poolings, in one spelling."""
    try:
        return canonical_pooling(value)
    except ModelReferenceError as error:
        raise ValueError(value) from error


def devices(value: str) -> str:
    """Take auto, or different devices."""
    named = value.split(",")
    if value != AUTO and (not all(map(_DEVICE.fullmatch, named)) or len(set(named)) < len(named)):
        raise ValueError(value)
    return value


def among(*names: str) -> Callable[[str], str]:
    """Make the rule that takes one of some names."""

    def parse(value: str) -> str:
        if value not in names:
            raise ValueError(value)
        return value

    return parse


def some_of(*names: str) -> Callable[[str], str]:
    """Make the rule that takes some of some names, none twice."""

    def parse(value: str) -> str:
        chosen = value.split(",")
        if set(chosen) - set(names) or len(set(chosen)) < len(chosen):
            raise ValueError(value)
        return value

    return parse


def tokenizer(value: str) -> str:
    """Take the name of a splitter, or a tokenizer.json."""
    if value not in (*SPLITTERS, FUNCTION) and not value.endswith(".json"):
        raise ValueError(value)
    return value


def file(value: str) -> str:
    """Take anything but nothing."""
    if not value:
        raise ValueError(value)
    return value


def written_number(number: float) -> str:
    """Write a number with as few digits as it takes to read the same one.

    Parameters
    ----------
    number : float
        Any.

    Returns
    -------
    str
        As it stands in a model reference.

    Examples
    --------
    >>> written_number(3.0), written_number(1e-3), written_number(float("-inf"))
    ('3', '0.001', '-inf')
    """
    return repr(float(number)).removesuffix(".0")
