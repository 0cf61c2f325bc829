"""A model as exports of texts see it: on the CPU, in float32, without what no other library does."""

from __future__ import annotations

from isosent.encoders.transformer import WINDOWS, TransformerEncoder
from isosent.errors import InputError
from isosent.model import SentenceEncoder
from isosent.network.runtime import TORCH, Runtime


def refuse_flow(model: SentenceEncoder) -> None:
    """Refuse a model that ends with a flow, which no other format holds.

    Parameters
    ----------
    model : SentenceEncoder
        The model.

    Raises
    ------
    InputError
        If it does.
    """
    if model.flow is not None:
        raise InputError(
            "export: the model must not end with a flow, which no other format expresses; it does. Use isosent itself "
            "for it, or fit a linear transform such as whitening."
        )


def exportable(model: SentenceEncoder) -> SentenceEncoder:
    """Return a model as it can be exported.

    Parameters
    ----------
    model : SentenceEncoder
        The model.

    Returns
    -------
    SentenceEncoder
        The same with vectors in full precision, however this one is run.

    Raises
    ------
    InputError
        If it ends with a flow, or its encoder sees its padding, since other libraries pad their batches, or takes
        windows of long texts.
    """
    refuse_flow(model)
    encoder = model.encoder
    if not isinstance(encoder, TransformerEncoder):
        return model
    if encoder.equal_lengths:
        raise InputError(
            f"export: {encoder.reference} sees its padding, so texts in one batch would change each other's vectors in "
            "other libraries. Use isosent itself for it, or export to faiss or numpy."
        )
    if encoder.options["long"] == WINDOWS:
        raise InputError(
            "export: other libraries cut long texts, and this model takes the mean over windows of them. Open its "
            "encoder with long=truncate and fit again, or export to faiss or numpy."
        )
    plain = TransformerEncoder(
        encoder.reference,
        encoder.options,
        encoder.module_folder,
        encoder.network,
        encoder.heads,
        Runtime(TORCH, devices="cpu"),
    )
    return SentenceEncoder.from_record(plain, model.record)
