"""What the softmax objective sees of two sentence embeddings: the concatenations of Reimers & Gurevych 2019."""

from __future__ import annotations

from typing import Final

from isosent.errors import InputError

CONCATENATIONS: Final = (
    "u,v",
    "|u-v|",
    "u*v",
    "|u-v|,u*v",
    "u,v,u*v",
    "u,v,|u-v|",
    "u,v,|u-v|,u*v",
)


def concatenation_parts(concatenation: str) -> dict[str, bool]:
    r"""Say which parts a concatenation has.

    Parameters
    ----------
    concatenation : str
        One of `CONCATENATIONS`.

    Returns
    -------
    dict of str to bool
        ``pair``, the two embeddings themselves; ``difference``, \|u - v\|; ``product``, u * v, both by component. In
        this order, from left to right.

    Raises
    ------
    InputError
        If there is no such concatenation.

    References
    ----------
    Reimers & Gurevych 2019, *Sentence-BERT*, EMNLP, Table 6.

    Examples
    --------
    >>> concatenation_parts("u,v,|u-v|")
    {'pair': True, 'difference': True, 'product': False}
    """
    if concatenation not in CONCATENATIONS:
        known = ", ".join(f'"{name}"' for name in CONCATENATIONS)
        raise InputError(f'train: concatenation must be one of {known}; got "{concatenation}".')
    parts = concatenation.split(",")
    return {"pair": "u" in parts, "difference": "|u-v|" in parts, "product": "u*v" in parts}
