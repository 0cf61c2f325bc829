"""Checks of arguments. Wrong values read ``<where>: <name> must <rule>; got <value>.``, as `isosent.cli` expects.

`text_list` makes a list of what callers pass as texts. For what is none, `_no_sequence` and `_as_strings` say what to
pass instead: an expression of the variable ``texts`` that works as it is written. Most other functions refuse one kind
of wrong value each, and return the value in one type.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent.errors import InputError, InputFileError, InputTypeError, wrong_value
from isosent.storage import Storage

DATA_SET_FILE = "state.json"  # of a data set of Hugging Face in a folder


def text_list(where: str, texts: Iterable[str]) -> list[str]:
    """Return `texts` as a list of strings; blank cells of pandas, polars and pyarrow count as empty texts."""
    if advice := _no_sequence(texts):
        raise wrong_value(
            where, "texts", "be a sequence of strings", f"one {type(texts).__name__}", advice, error=InputTypeError
        )
    is_series = type(texts).__module__.startswith(("pandas", "polars", "pyarrow"))
    cells = texts.to_pylist() if hasattr(texts, "to_pylist") else texts  # of pyarrow, whose values are no strings
    listed = ["" if is_blank(cell) else cell for cell in cells] if is_series else list(cells)
    if _are_unicode(listed):
        return listed
    others = [i for i, text in enumerate(listed) if not isinstance(text, str)]
    if others:  # missing ones first: str(None) is a text
        i = next((i for i in others if is_blank(listed[i])), others[0])
        advice = _as_strings(listed[i], [listed[other] for other in others])
        raise InputTypeError(f"row {i} of the texts is {type(listed[i]).__name__}, not a string. {advice}", where=where)
    for i, text in enumerate(listed):
        if not is_unicode(text):
            raise InputError(
                f"row {i} of the texts is not valid Unicode: it holds a lone surrogate. Replace it: texts[{i}"
                '].encode("utf-8", "replace").decode("utf-8").',
                where=where,
            )
    return listed


def _no_sequence(texts: object) -> str:
    """What to pass instead of a value that is no sequence of texts; empty for one. Taken as it is, it must work."""
    if isinstance(texts, str):
        return "Pass [text]."
    if isinstance(texts, (bytes, bytearray, memoryview)):
        source = "texts" if isinstance(texts, bytes) else "bytes(texts)"
        return f'Decode it first: [{source}.decode("{_encoding_of(bytes(texts))}")].'
    if hasattr(texts, "columns"):
        return "Pass one column of it."
    if isinstance(texts, os.PathLike):
        return "Read the file first: isosent.read_texts(texts)."
    if isinstance(texts, (set, frozenset)):
        return "Its texts have no order, and rows follow that of the texts. Pass sorted(texts)."
    if isinstance(texts, Mapping):
        return f"Pass {_texts_of_mapping(texts)}."
    if getattr(texts, "ndim", None) == 0:
        return "Pass [str(texts)]."
    if not isinstance(texts, Iterable):
        is_number = isinstance(texts, (int, float)) and not is_blank(texts)
        return "Pass [str(texts)]." if is_number else 'Pass a list of strings, such as ["one text", "another"].'
    return ""


def _as_strings(text: object, others: Sequence[object]) -> str:
    """How to make strings of a row that is none, and of the others that are none. Taken as it is, it must work."""
    if isinstance(text, bytes):
        decoded = f'text.decode("{_encoding_of(b"".join(row for row in others if isinstance(row, bytes)))}")'
        return f"Decode them first: [{decoded} if isinstance(text, bytes) else text for text in texts]."
    if is_blank(text):
        return 'Drop that row, or replace it by an empty text, "".'
    if isinstance(text, Mapping):
        keys = [key for key, value in text.items() if isinstance(value, str)]
        return f"Pass [text[{keys[0]!r}] for text in texts]." if keys else "Pass a list of strings."
    if isinstance(text, os.PathLike):
        return 'Read the files first: [path.read_text("utf-8") for path in texts].'
    if isinstance(text, (list, tuple)) and all(isinstance(part, str) for part in text):
        return "Pass one list: [text for row in texts for text in row]."
    if isinstance(text, (int, float, np.generic)):
        return "Write it as a string: [str(text) for text in texts]."
    if getattr(getattr(text, "dtype", None), "kind", "") in ("U", "O"):
        return "Pass texts.ravel()."
    if hasattr(text, "dtype") or isinstance(text, (list, tuple)):
        return "Rows of numbers are vectors: pass them to model.transform."
    return "Drop that row, or replace it by a string."


def _encoding_of(content: bytes) -> str:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"  # which decodes any bytes
    return "utf-8"


def _texts_of_mapping(texts: Mapping[Any, Any]) -> str:
    """Texts in a mapping: a column of them, all values, or one value."""
    keys = [key for key, value in texts.items() if isinstance(value, str)]
    for key, value in texts.items():
        if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
            return f"texts[{key!r}]"
    if keys and len(keys) < len(texts):
        return f"[texts[{keys[0]!r}]]"
    return "list(texts.values())" if keys else "a list of strings"


def split_options(text: str) -> tuple[str, dict[str, str]]:
    """Split ``NAME?option=value&option=value``, the one syntax for options of models and transforms."""
    name, _, query = text.partition("?")
    options: dict[str, str] = {}
    for part in query.split("&") if query else ():
        option, equals, value = part.partition("=")
        if not (option and equals):
            raise InputError(f"{text!r}: write the options as name=value&name=value.")
        if option in options:
            raise InputError(f"{text!r} gives the option {option} twice.")
        options[option] = value
    return name, options


def is_blank(cell: object) -> bool:
    """Whether a cell of a data frame is missing: None, NaN, NA or NaT."""
    return (
        cell is None
        or (isinstance(cell, (float, np.floating)) and cell != cell)
        or type(cell).__name__ in ("NAType", "NaTType")
    )


def _are_unicode(texts: list[Any]) -> bool:
    """Whether all are strings that can be written as UTF-8: checked all at once, because there may be millions."""
    try:
        return is_unicode("".join(texts))
    except TypeError:
        return False


def is_unicode(text: str) -> bool:
    """Whether a string can be written as UTF-8; a lone surrogate cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def some_texts(where: str, texts: Iterable[str]) -> list[str]:
    """Return `texts` as a list of at least one string."""
    listed = text_list(where, texts)
    if not listed:
        raise InputError("there are no texts. At least one is needed.", where=where)
    return listed


def real_numbers(where: str, name: str, values: ArrayLike) -> NDArray[Any]:
    """Return `values` as an array of real numbers of any shape; the numbers are not checked."""
    not_masked(where, name, values)
    try:
        array = np.asarray(_on_cpu(values))
    except ValueError:  # rows of different lengths
        array = _stacked(where, name, values)
    if array.dtype.kind == "O" and array.ndim == 1 and any(hasattr(row, "__len__") for row in array):
        array = _stacked(where, name, array)
    if array.dtype.name == Storage.bfloat16:  # of ml_dtypes
        array = array.astype(np.float32)
    if array.dtype.kind not in "fiub":
        raise wrong_value(where, name, "hold real numbers", f"dtype {array.dtype}")
    return array


def _on_cpu(values: Any) -> Any:
    """A tensor of torch, or a list of them, as numpy takes it: without gradient, on the CPU; numpy has no bfloat16."""
    if isinstance(values, (list, tuple)) and values and hasattr(values[0], "detach"):
        return [_on_cpu(value) for value in values]
    if not hasattr(values, "detach"):
        return values
    tensor = values.detach().cpu()
    return tensor.float() if str(tensor.dtype) == f"torch.{Storage.bfloat16}" else tensor


def _stacked(where: str, name: str, column: Any) -> NDArray[Any]:
    """The rows of a column of lists, as data frames have them; an `InputError` names a row that is none."""
    rows = [_on_cpu(row) for row in column]
    sizes = [len(row) if hasattr(row, "__len__") else 1 for row in rows]
    for i, row in enumerate(rows):
        if is_blank(row):
            raise InputError(f"row {i} of {name} is missing. Drop that row.", where=where)
        if isinstance(row, str):
            raise InputError(
                f"row {i} of {name} is a string, {brief(row, 40)!r}, not a list of numbers. If all are lists written "
                "as JSON, pass [json.loads(row) for row in column].",
                where=where,
            )
        if sizes[i] != sizes[0]:
            raise InputError(
                f"row {i} of {name} has {sizes[i]} numbers, and row 0 has {sizes[0]}. All need the same.", where=where
            )
    try:
        return np.stack([np.asarray(row) for row in rows])
    except ValueError as error:
        raise InputError(f"{name} must be an array of real numbers; got: {error}.", where=where) from None


def not_masked(where: str, name: str, values: object) -> None:
    """Refuse masked arrays, whose masked numbers numpy would use."""
    masked_arrays = sys.modules.get("numpy.ma")  # without it there are none, and importing it takes 16 ms
    if masked_arrays is not None and masked_arrays.is_masked(values):
        raise InputError(f"{name} must not be masked; some numbers are. Drop their rows, or fill them.", where=where)


def matrix(where: str, name: str, rows: ArrayLike) -> NDArray[Any]:
    """Return `rows` as a two-dimensional array of real numbers with at least one column; values are not checked."""
    array = real_numbers(where, name, rows)
    if array.ndim != 2:
        raise wrong_value(
            where,
            name,
            "be 2-D of shape (n_rows, dim)",
            f"shape {array.shape}",
            "Reshape your data: one vector alone is vector[None, :].",
        )
    if array.shape[1] == 0:
        raise wrong_value(where, name, "have at least one column", f"shape {array.shape}")
    return array


def finite_rows(where: str, name: str, rows: NDArray[Any], first_row: int = 0) -> None:
    """Refuse NaN and infinity with the number of the first row that holds one (counted from `first_row`)."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(rows.sum()):
            return
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if bad.size:
        row = rows[bad[0]]
        value = "NaN" if np.isnan(row).any() else "infinity"
        raise InputError(
            f"row {first_row + bad[0]} of {name}, counted from 0, holds {value} ({bad.size} such rows). "
            "Drop or repair them.",
            where=where,
        )


def texts_or_vectors(where: str, name: str, values: Any) -> list[str] | NDArray[np.floating]:
    """Texts as a list, or vectors as rows; a single text or vector becomes one row."""
    if isinstance(values, str):
        return [values]
    if type(values) in (bytes, bytearray):  # refused there
        return text_list(where, values)
    array = values if isinstance(values, np.ndarray) else None
    if array is None and not hasattr(values, "detach"):
        values = list(values) if isinstance(values, Iterator) else values
        has_texts = isinstance(values, Iterable) and any(isinstance(value, str) for value in values)
        if has_texts or (isinstance(values, Sequence) and not values):
            return text_list(where, values)
    if array is not None and array.dtype.kind in "UO":
        return list(array.tolist())
    array = real_numbers(where, name, values)
    vectors = matrix(where, name, array[None, :] if array.ndim == 1 else array)
    finite_rows(where, name, vectors)
    return vectors


def row_weights(where: str, weights: ArrayLike, n_rows: int) -> NDArray[np.float64]:
    """Return row weights as float64 of shape (n_rows,), finite and not negative."""
    array = real_numbers(where, "weights", weights).astype(np.float64, copy=False)
    if array.shape != (n_rows,):
        raise wrong_value(where, "weights", f"have shape ({n_rows},), one per row", array.shape)
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise wrong_value(where, "weights", "be finite and >= 0", f"{array.min()} at least once")
    return array


def same_dim(where: str, name: str, dim: int, expected: int) -> None:
    """Refuse a width other than the expected one."""
    if dim != expected:
        raise InputError(f"expected {name} of {expected} dimensions, found {dim}.", where=where)


def same_count(where: str, name: str, n_rows: int, expected: int) -> None:
    """Refuse another number of rows than there are texts."""
    if n_rows != expected:
        raise InputError(f"expected {expected} rows of {name}, found {n_rows}.", where=where)


def fraction(where: str, name: str, value: object) -> float:
    """Return a number in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 <= float(value) <= 1:
        raise wrong_value(where, name, "be from 0 to 1", repr(value))
    return float(value)


def component_count(where: str, value: object, dim: int, *, name: str = "n_components") -> int:
    """Return a number of components in 1 ... dim; None means dim."""
    if value is None:
        return dim
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise wrong_value(where, name, "be a whole number", repr(value))
    if not 1 <= value <= dim:
        raise wrong_value(where, name, f"be from 1 to {dim}, the dimensions of the vectors", int(value))
    return int(value)


def component_count_or_share(where: str, value: object, dim: int) -> None:
    """Refuse anything but a number of components in 1 ... dim, a share of the variance in (0, 1], or None."""
    if isinstance(value, (float, np.floating)):
        if not 0 < value <= 1:
            raise wrong_value(where, "n_components", "be above 0 and at most 1 as a share of the variance", repr(value))
    elif isinstance(value, str):
        raise wrong_value(
            where, "n_components", "be a whole number, a share of the variance such as 0.95, or 'auto'", repr(value)
        )
    else:
        component_count(where, value, dim)


def not_negative(where: str, name: str, value: object) -> None:
    """Refuse anything but a finite number >= 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 <= float(value) < np.inf:
        raise wrong_value(where, name, "be a finite number >= 0", repr(value))


def above_zero(where: str, name: str, value: object) -> None:
    """Refuse anything but a finite number > 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 < float(value) < np.inf:
        raise wrong_value(where, name, "be a finite number > 0", repr(value))


def whole_number(where: str, name: str, value: object, least: int) -> None:
    """Refuse anything but a whole number >= `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise wrong_value(where, name, f"be a whole number >= {least}", repr(value))


def one_of(where: str, name: str, value: object, allowed: Sequence[str]) -> None:
    """Refuse a value outside a list of words."""
    if value not in allowed:
        raise wrong_value(where, name, f"be one of {', '.join(allowed)}", repr(value))


def input_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of an existing regular file that is not empty; of a data set, that of its `DATA_SET_FILE`."""
    path = _path(path)
    if path.is_dir():
        if is_data_set(path):
            return path / DATA_SET_FILE
        if splits := sorted(each.parent.name for each in path.glob(f"*/{DATA_SET_FILE}") if is_data_set(each.parent)):
            raise InputFileError(f"{path} holds the splits {', '.join(splits)}. Name one: {path / splits[0]}.")
        raise InputFileError(f"{path} is a folder. Name a file.")
    if not path.exists():
        is_url = re.match(r"[a-z][a-z0-9+.-]+:/", str(path))
        advice = " It seems to be on another machine; copy it here first." if is_url else ""
        raise InputFileError(f"{path}: no such file.{advice}")
    if path.is_file() and path.stat().st_size == 0:
        raise InputFileError(f"{path} is empty.")
    return path


def is_data_set(folder: Path) -> bool:
    """Whether `save_to_disk` of the package datasets wrote a folder."""
    return (folder / DATA_SET_FILE).is_file() and (folder / "dataset_info.json").is_file()


def input_folder(path: str | os.PathLike[str]) -> Path:
    """Return the path of an existing folder."""
    path = _path(path)
    if not path.is_dir():
        raise InputFileError(f"{path} is a file. Name a folder." if path.exists() else f"{path}: no such folder.")
    return path


def brief(value: object, n_characters: int = 200) -> str:
    """A value, or the message of another library, shortened to one line."""
    text = " ".join(str(value).split())
    return text if len(text) <= n_characters else f"{text[:n_characters]}..."


def _path(path: str | os.PathLike[str]) -> Path:
    """Return a path that the file system accepts."""
    try:
        Path(path).exists()
    except (OSError, ValueError) as error:
        raise InputFileError(f"{os.fspath(path)!r} is no path: {error}.") from None
    return Path(path)
