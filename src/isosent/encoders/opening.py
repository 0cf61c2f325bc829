"""From a parsed reference to an encoder."""

from isosent.encoders.base import Encoder
from isosent.encoders.reference import Reference
from isosent.encoders.static import open_static_folder, open_wordllama, open_words
from isosent.encoders.transformer import open_transformer


def open_encoder(reference: Reference) -> Encoder:
    """Open the encoder that a reference names.

    Parameters
    ----------
    reference : Reference
        Any scheme but ``folder``, which is a model and no encoder.

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
    match reference.scheme:
        case "wordllama":
            return open_wordllama()
        case "words":
            return open_words(reference.location, reference.options)
        case "static":
            return open_static_folder(reference.location, reference.options)
        case _:
            return open_transformer(reference.location, reference.options)
