"""From a parsed reference to an encoder."""

from isosent.encoders.base import Encoder
from isosent.encoders.reference import WEIGHTING_OPTIONS, Reference
from isosent.encoders.static_opening import (
    Given,
    open_static_folder,
    open_token_embeddings,
    open_wordllama,
    open_words,
)
from isosent.encoders.transformer_opening import open_transformer
from isosent.errors import InputError

_NOTHING = Given()


def open_encoder(reference: Reference, given: Given = _NOTHING) -> Encoder:
    """Open the encoder that a reference names.

    Parameters
    ----------
    reference : Reference
        Any scheme but ``folder``, which is a model and no encoder.
    given : Given, optional
        What a reference cannot say.

    Returns
    -------
    Encoder
        The encoder, with every option resolved.

    Raises
    ------
    InputError
        If a file is missing or damaged, or an option does not fit the model.
    MissingExtraError
        If ``hf:`` is asked for without the extra ``plm``.
    """
    location, options = reference.location, reference.options
    if given.split is not None and reference.scheme != "words":
        raise InputError(f"load: a tokenizer function is for words: only; got {reference.scheme}.")
    match reference.scheme:
        case "wordllama":
            return open_wordllama(options, given)
        case "words":
            return open_words(location, options, given)
        case "static":
            return open_static_folder(location, options, given)
        case _ if options.get("static") == "true":
            return open_token_embeddings(location, options, given)
        case _:
            if weights := [name for name in WEIGHTING_OPTIONS if name in options]:
                raise InputError(
                    f"hf:{location}: {', '.join(weights)} must come with static=true, for token embeddings."
                )
            layers = {name: value for name, value in options.items() if name != "static"}
            return open_transformer(location, layers)
