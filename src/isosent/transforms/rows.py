"""Rows as scikit-learn takes them."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, validate_data

from isosent import _check
from isosent.errors import InputError, InputTypeError


def as_rows(where: str, X: ArrayLike, *, at_least: int) -> NDArray[Any]:
    """Return whatever scikit-learn takes as rows, a data frame for one, as an array; values are not looked at.

    Parameters
    ----------
    where : str
        Who asks, for the message.
    X : array_like of shape (n_rows, dim)
        The rows.
    at_least : int
        Fewest rows.

    Returns
    -------
    ndarray of shape (n_rows, dim)
        The rows.

    Raises
    ------
    InputError
        If the shape cannot be used.
    InputTypeError
        If the type cannot be used.
    """
    _check.not_masked(where, "X", X)
    try:
        array: NDArray[Any] = check_array(
            X, dtype="numeric", ensure_all_finite=False, ensure_min_samples=at_least, input_name="X"
        )
    except TypeError as error:
        raise InputTypeError(f"{where}: {error}") from None
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
    return _check.matrix(where, "X", array)


class RowEstimator:
    """What scikit-learn is told of every transform: its columns are compared, float32 and float64 are kept."""

    def _check_features(self, X: ArrayLike, *, reset: bool) -> None:
        """Let scikit-learn compare number and names of the columns with those of the fit, or note them."""
        try:
            validate_data(self, X, reset=reset, skip_check_array=True)
        except (ValueError, TypeError) as error:
            raise InputError(f"{type(self).__name__}: {error}") from None

    def __sklearn_tags__(self) -> Tags:
        """Tell scikit-learn which dtypes are kept."""
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
