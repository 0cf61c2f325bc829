"""Fewer bytes per vector: int8 codes by a range per dimension, bits by a centre and a rotation, and product codes.

A `Quantization` is fitted on unit vectors: `fit` takes ranges and a rotation, and `with_product` adds codebooks. A
product code (Jegou et al. 2011) has four bits for each of a few parts of the dimensions, which name the nearest of 16
vectors of this part: the codebook. FAISS compares such codes in registers, four times as fast as those of a byte. The
codebooks are fitted by k-means in whole numbers, whose sums are exact in any order, so that a processor and its threads
do not matter. `encode` and `decode` turn vectors into int8 codes and bits
and back; product codes are made by FAISS, in an index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent import _check
from isosent.errors import InputError, wrong_value
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.similarity import nonzero_rows
from isosent.numeric.spectrum import spectrum
from isosent.numeric.threads import one_thread_products
from isosent.storage import CODES, Codes, Storage

MOST_ROWS = 10_000  # a hundred already give the recall of all
# Least and largest value change with every row and cut off other texts: ranges fitted on 100 rows by them lose 4 points
# of recall, and by these deviations none. Of 3.5 to 6, 5 loses least where the texts are in another language.
_DEVIATIONS = 5.0
_LEVELS = 255  # FAISS divides a range into 255 steps; the code 255 lies above it
_OFFSET = 128
CODE_BITS = 4  # of a part of a product code
N_CENTROIDS = 1 << CODE_BITS  # that they can name
PARTS_A_BYTE = 8 // CODE_BITS
_ROUNDS = 12  # of k-means; then the error is within 1% of what many more give
# Each byte stands for 8 dimensions: of 4 to 16, 8 keeps the most neighbors from 16 bytes on, and 12 below.
_BYTE_DIMS, _FEWEST_DIMS = 8, 96
FEWEST_FOR_PRODUCT = 1_000  # of fewer vectors, a codebook would hold most
_GRID = 255.0  # products of whole numbers up to this are exact in float32 for 258 dimensions or fewer
_GRID_DEVIATIONS = 5.0
_AXES_GRID = 2.0**14  # of the projection, which processors would otherwise round differently


@dataclass(frozen=True, eq=False, repr=False)
class Quantization:
    """How the vectors of one space become int8 codes or bits.

    Made by `fit`. It holds for vectors of the space it was fitted in. `SentenceEncoder.with_quantization` puts it into
    a model, and `SentenceEncoder.save` saves it with the model; `isosent.load` of that folder has it as
    ``model.quantization``.

    Parameters
    ----------
    low : ndarray of shape (dim,), float32
        Lower end of the range of each dimension.
    step : ndarray of shape (dim,), float32
        Width of one code, >= 0; 0 for a dimension that is constant.
    center : ndarray of shape (dim,), float32
        Point that is subtracted before the bits are taken.
    rotation : ndarray of shape (dim, dim), float32
        Orthogonal matrix that is applied before the bits are taken.
    projection : ndarray of shape (dim, width), float32, optional
        Orthonormal columns that are applied before a product code is taken; see `with_product`.
    codebooks : ndarray of shape (n_parts, 16, width / n_parts), float32, optional
        What the four bits of each part of a product code stand for; two parts are a byte.

    Raises
    ------
    InputError
        If an array has another shape or dtype, or holds NaN or infinity.

    Notes
    -----
    An int8 code is ``floor((x - low) / step)``, clipped to 0 ... 255, less 128; it stands for the value
    ``low + (code + 128.5) * step``. Less the 128, these are the codes of FAISS, ``ScalarQuantizer.QT_8bit`` with
    ``trained = [low, 255 * step]``, bit for bit. The bits are ``(x - center) @ rotation > 0``, packed as by
    `numpy.packbits`.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.random.default_rng(0).normal(size=(500, 64)).astype(np.float32)
    >>> quantization = Quantization.fit(vectors)
    >>> codes = quantization.encode(vectors, "int8")
    >>> codes.dtype, codes.shape, quantization.encode(vectors, "ubinary").shape
    (dtype('int8'), (500, 64), (500, 8))
    >>> bool(np.abs(quantization.decode(codes, "int8") - vectors).max() <= quantization.step.max() / 1.99)
    True
    """

    low: NDArray[np.float32]
    step: NDArray[np.float32]
    center: NDArray[np.float32]
    rotation: NDArray[np.float32]
    projection: NDArray[np.float32] | None = None
    codebooks: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        dim = self.low.shape[0] if self.low.ndim == 1 else 0
        if dim == 0:
            raise wrong_value("Quantization", "low", "have shape (dim,)", self.low.shape)
        if (self.projection is None) != (self.codebooks is None):
            raise InputError("projection and codebooks belong together; one is missing.", where="Quantization")
        shapes: dict[str, tuple[int, ...]] = {"rotation": (dim, dim)}
        if self.projection is not None and self.codebooks is not None:
            shape = self.codebooks.shape
            is_whole = len(shape) == 3 and shape[0] % PARTS_A_BYTE == 0
            if not is_whole or shape[1] != N_CENTROIDS or not 1 <= shape[0] * shape[2] <= dim:
                expected = f"have shape (2 code_bytes, {N_CENTROIDS}, width), of {dim} dimensions or fewer"
                raise wrong_value("Quantization", "codebooks", expected, shape)
            shapes |= {"projection": (dim, shape[0] * shape[2]), "codebooks": shape}
        for name, array in self.tensors().items():
            shape = shapes.get(name, (dim,))
            if array.shape != shape or array.dtype != np.float32:
                raise InputError(
                    f"expected {name} as float32 of {shape}, found {array.dtype} of {array.shape}.",
                    where="Quantization",
                )
            if not np.isfinite(array).all():
                raise InputError(f"{name} holds NaN or infinity.", where="Quantization")
        if (self.step < 0).any():
            raise wrong_value("Quantization", "step", "not be negative", f"{self.step.min():g}")

    def __repr__(self) -> str:
        return f"<Quantization of {self.dim} dimensions>"

    @property
    def dim(self) -> int:
        """Dimensions of the vectors."""
        return len(self.low)

    @property
    def code_bytes(self) -> int:
        """Bytes of a product code; 0 without codebooks."""
        return 0 if self.codebooks is None else len(self.codebooks) // PARTS_A_BYTE

    @property
    def codebook_bytes(self) -> int:
        """Bytes of the projection and the codebooks of product codes; 0 without."""
        arrays = (self.projection, self.codebooks)
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def label(self) -> str:
        """The codes that it makes."""
        product = [f"product ({self.code_bytes} bytes)"] if self.code_bytes else []
        return ", ".join([*CODES, *product])

    @classmethod
    def fit(cls, vectors: ArrayLike, *, seed: int = 0) -> Quantization:
        """Fit ranges and rotation on vectors. No labels are needed.

        Parameters
        ----------
        vectors : array_like of shape (n_rows, dim), any real dtype
            Unit vectors of texts like those to store later. Zero rows, which stand for "no vector", are left out.
        seed : int, default 0
            Seed of the rotation, and of the choice of 10,000 rows if there are more.

        Returns
        -------
        Quantization
            The same for the same rows and seed.

        Raises
        ------
        InputError
            If a row holds NaN or infinity, or no row has a vector.

        Notes
        -----
        The range of a dimension is its mean and five standard deviations to either side. The center is the mean; the
        rotation is random, because axes along which the vectors vary unequally waste bits.
        """
        where = "Quantization"
        _check.whole_number(where, "seed", seed, 0)
        rows = _fitted_rows(where, vectors, seed)
        mean, is_constant = rows.mean(axis=0, dtype=np.float64), np.ptp(rows, axis=0) == 0
        margin = np.where(is_constant, 0, _DEVIATIONS * rows.std(axis=0, dtype=np.float64))
        low = np.where(is_constant, rows[0], mean - margin).astype(np.float32)
        step = (2 * margin / _LEVELS).astype(np.float32)
        return cls(low, step, mean.astype(np.float32), _random_rotation(rows.shape[1], seed))

    def with_product(self, vectors: ArrayLike, code_bytes: int, *, seed: int = 0) -> Quantization:
        """Fit the codebooks of product codes, too, which an index stores as ``store="product"``.

        Parameters
        ----------
        vectors : array_like of shape (n_rows, dim), any real dtype
            As for `fit`.
        code_bytes : int
            Bytes of a code, at most half of `dim`; 0 for none.
        seed : int, default 0
            Seed of the rotation, of the choice of rows, and of k-means.

        Returns
        -------
        Quantization
            The same ranges and rotation, with `projection` and `codebooks`. The same for the same rows and seed.

        Raises
        ------
        InputError
            If there are more bytes than half the dimensions, or vectors that `fit` refuses.

        Notes
        -----
        The vectors are projected on their principal axes about zero, which keeps most of every inner product, 8
        dimensions a byte; a random rotation gives each byte as much to tell. OPQ, which learns the rotation, keeps no
        more neighbors and takes many times as long.
        """
        where = "Quantization"
        if not code_bytes:
            return replace(self, projection=None, codebooks=None)
        _check.whole_number(where, "code_bytes", code_bytes, 1)
        _check.whole_number(where, "seed", seed, 0)
        n_parts = PARTS_A_BYTE * code_bytes
        if n_parts > self.dim:
            raise wrong_value(where, "code_bytes", f"be at most half the {self.dim} dimensions", code_bytes)
        rows = _fitted_rows(where, vectors, seed)
        _check.same_dim(where, "vectors", rows.shape[1], self.dim)
        width = min(max(_FEWEST_DIMS, _BYTE_DIMS * code_bytes), self.dim) // n_parts * n_parts
        exact = rows.astype(np.float64)
        with one_thread_products():
            axes = spectrum(exact.T @ exact / len(exact)).vectors[:, :width]
            # the nearest rotation to random numbers is the same for any axes of one subspace, and uniformly distributed
            left, _, right = np.linalg.svd(axes.T @ np.random.default_rng(seed).standard_normal((self.dim, width)))
            projection = axes @ (left @ right)
        projection = (np.rint(_AXES_GRID * projection) / _AXES_GRID + 0.0).astype(np.float32)  # no -0.0
        projected = LinearMap(projection.astype(np.float64), np.zeros(width)).apply(rows)
        return replace(self, projection=projection, codebooks=_codebooks(projected, n_parts, seed))

    def encode(self, vectors: ArrayLike, dtype: Codes) -> NDArray[np.int8] | NDArray[np.uint8]:
        """Turn vectors into codes.

        Parameters
        ----------
        vectors : array_like of shape (n_rows, dim), any real dtype
            Vectors of the space.
        dtype : {"int8", "ubinary"}
            One byte or one bit per dimension.

        Returns
        -------
        ndarray of shape (n_rows, dim), int8, or (n_rows, ceil(dim / 8)), uint8
            Values beyond the range get its outermost code.

        Raises
        ------
        InputError
            If the vectors have another width, or hold NaN or infinity.
        """
        where = "Quantization"
        _check.one_of(where, "dtype", dtype, CODES)
        rows = _float32_rows(where, vectors)
        _check.same_dim(where, "vectors", rows.shape[1], self.dim)
        if Storage(dtype).is_bits:
            return np.packbits(self._rotated.apply(rows - self.center) > 0, axis=1)
        # the operations of FAISS in its order, so that rounding is the same, too
        span = self.span
        shares = np.clip((rows - self.low) / np.where(span > 0, span, 1), 0, 1)
        codes = (np.float32(_LEVELS) * shares * (span > 0)).astype(np.int16) - _OFFSET
        return codes.astype(np.int8)

    def decode(self, codes: ArrayLike, dtype: Codes) -> NDArray[np.float32]:
        """Turn codes into the vectors that they stand for.

        Parameters
        ----------
        codes : array_like of shape (n_rows, dim), int8, or (n_rows, ceil(dim / 8)), uint8
            What `encode` returned.
        dtype : {"int8", "ubinary"}
            What they are.

        Returns
        -------
        ndarray of shape (n_rows, dim), float32
            For int8, at most half a step away within the range. For bits, the mean of a normal distribution about the
            center, given the signs.

        Raises
        ------
        InputError
            If the codes have another dtype or shape.
        """
        where = "Quantization"
        _check.one_of(where, "dtype", dtype, CODES)
        array = _check.matrix(where, "codes", codes)
        storage = Storage(dtype)
        width, expected = storage.width(self.dim), storage.stored
        if array.dtype != expected or array.shape[1] != width:
            raise wrong_value(
                where, "codes", f"be {expected} of shape (n_rows, {width})", f"{array.dtype} of {array.shape}"
            )
        if not storage.is_bits:
            return self.low + (array.astype(np.float32) + np.float32(_OFFSET + 0.5)) * self.step
        signs = np.unpackbits(array, axis=1, count=self.dim).astype(np.float32) * 2 - 1
        # Unit vectors lie on average sqrt(1 - |center|^2) from their mean; the mean of |z| is sqrt(2 / pi).
        variance = max(0.0, 1 - float(np.square(self.center, dtype=np.float64).sum())) / self.dim
        length: np.float32 = np.float32(np.sqrt(2 / np.pi * variance))
        return self.center + length * self._turned_back.apply(signs)

    # A linear map has the same bits in any batch.
    @cached_property
    def _rotated(self) -> LinearMap:
        return LinearMap(self.rotation.astype(np.float64), np.zeros(self.dim))

    @cached_property
    def _turned_back(self) -> LinearMap:
        return LinearMap(self.rotation.T.astype(np.float64), np.zeros(self.dim))

    @property
    def span(self) -> NDArray[np.float32]:
        """Width of the range of each dimension, 255 steps: what FAISS calls vdiff, shape (dim,)."""
        return self.step * np.float32(_LEVELS)

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Return the arrays by name, those that there are."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[np.float32]]) -> Quantization:
        """Make a quantization from the result of `tensors`; an `InputError` names what is missing or wrong."""
        names = [field.name for field in fields(cls)]
        missing = [field.name for field in fields(cls) if field.default is MISSING and field.name not in tensors]
        if missing:
            raise InputError(f"{missing[0]} is missing. Expected {', '.join(names)}.", where="Quantization")
        return cls(**{name: np.asarray(tensors[name]) for name in names if name in tensors})


def _float32_rows(where: str, vectors: ArrayLike) -> NDArray[np.float32]:
    rows = _check.matrix(where, "vectors", vectors)
    with np.errstate(over="ignore"):
        rows = rows.astype(np.float32, copy=False)
    _check.finite_rows(where, "vectors", rows)
    return rows


def _fitted_rows(where: str, vectors: ArrayLike, seed: int) -> NDArray[np.float32]:
    """At most `MOST_ROWS` rows that have a vector."""
    rows = _float32_rows(where, vectors)
    rows = rows[nonzero_rows(rows)]
    if not len(rows):
        raise InputError(
            "there are no vectors, or only zero ones. At least one that is not zero is needed.", where=where
        )
    if len(rows) > MOST_ROWS:
        rows = rows[np.sort(np.random.default_rng(seed).permutation(len(rows))[:MOST_ROWS])]
    return rows


def _codebooks(rows: NDArray[np.float32], n_parts: int, seed: int) -> NDArray[np.float32]:
    """Codebooks of each part of the dimensions, (n_parts, 16, width / n_parts)."""
    mean = rows.mean(axis=0, dtype=np.float64)
    centered = rows - mean
    scale = _GRID / (_GRID_DEVIATIONS * (centered.std() or 1.0))
    # whole numbers: sums of their products are exact in any order, so the processor and its threads do not matter
    grid = np.clip(np.rint(centered * scale), -_GRID, _GRID).astype(np.float32)
    parts = np.split(grid, n_parts, axis=1)
    rng = np.random.default_rng(seed)
    with one_thread_products():
        centroids = np.hstack([_centroids(np.ascontiguousarray(part), rng) for part in parts])
    values = (centroids / scale + mean).astype(np.float32)
    return np.ascontiguousarray(values.reshape(N_CENTROIDS, n_parts, -1).swapaxes(0, 1))


def _centroids(rows: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """k-means of rows of whole numbers, with centroids of whole numbers, (16, width)."""
    centroids = rows[rng.choice(len(rows), N_CENTROIDS, replace=len(rows) < N_CENTROIDS)]
    for _ in range(_ROUNDS):
        half = np.square(centroids).sum(axis=1) / 2
        nearest = (rows @ centroids.T - half).argmax(axis=1)
        counts = np.bincount(nearest, minlength=N_CENTROIDS)
        sums = np.stack([np.bincount(nearest, column, minlength=N_CENTROIDS) for column in rows.T], axis=1)
        moved = np.rint(sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
        is_empty = counts == 0
        # an empty centroid goes where the most rows are
        moved[is_empty] = moved[np.argsort(-counts, kind="stable")[: is_empty.sum()]] + 1
        centroids = moved
    return centroids


def _random_rotation(dim: int, seed: int) -> NDArray[np.float32]:
    """A random orthogonal matrix, uniformly distributed (Mezzadri 2007)."""
    q, r = np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, dim)))
    return (q * np.sign(np.diagonal(r))).astype(np.float32)
