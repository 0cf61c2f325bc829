"""The layers of networks of the BERT family, each as the parts it is computed from."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from isosent import _extras


@dataclass(frozen=True, slots=True)
class _Names:
    """Where the parts stand in a network: the list of layers, and in a layer the fields of `LayerParts`."""

    layers: str
    query: str
    key: str
    value: str
    mix: str
    first_norm: str
    up: str
    activation: str
    down: str
    second_norm: str


_BERT = _Names(
    "encoder.layer",
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "intermediate.intermediate_act_fn",
    "output.dense",
    "output.LayerNorm",
)
_MPNET = _Names(
    "encoder.layer",
    "attention.attn.q",
    "attention.attn.k",
    "attention.attn.v",
    "attention.attn.o",
    "attention.LayerNorm",
    "intermediate.dense",
    "intermediate.intermediate_act_fn",
    "output.dense",
    "output.LayerNorm",
)
_DISTILBERT = _Names(
    "transformer.layer",
    "attention.q_lin",
    "attention.k_lin",
    "attention.v_lin",
    "attention.out_lin",
    "sa_layer_norm",
    "ffn.lin1",
    "ffn.activation",
    "ffn.lin2",
    "output_layer_norm",
)
_FAMILY = {
    "BertModel": _BERT,
    "RobertaModel": _BERT,
    "XLMRobertaModel": _BERT,
    "CamembertModel": _BERT,
    "ElectraModel": _BERT,
    "MPNetModel": _MPNET,
    "DistilBertModel": _DISTILBERT,
}


@dataclass(frozen=True, slots=True, eq=False)
class LayerParts:
    """A layer: attention, sum and normalization, feed-forward, sum and normalization.

    Parameters
    ----------
    query, key, value, mix, up, down : torch.nn.Linear
        Products of the attention, and of the feed-forward.
    first_norm, second_norm : torch.nn.LayerNorm
        Normalizations behind the two.
    activation : callable
        Between `up` and `down`.
    """

    query: Any
    key: Any
    value: Any
    mix: Any
    first_norm: Any
    up: Any
    activation: Any
    down: Any
    second_norm: Any

    @property
    def products(self) -> tuple[Any, ...]:
        """The linear layers, in their order."""
        return self.query, self.key, self.value, self.mix, self.up, self.down


def layer_parts(model: Any, n_layers: int) -> list[LayerParts] | None:
    """Take the layers of a network of transformers apart.

    Parameters
    ----------
    model : PreTrainedModel
        The network.
    n_layers : int
        Its layers.

    Returns
    -------
    list of LayerParts or None
        One a layer; None where the network is of another family, a decoder, or has something else in a part's place.
    """
    torch, kind, config = _extras.require("torch"), type(model), model.config
    names = _FAMILY.get(kind.__name__) if kind.__module__.startswith("transformers.") else None
    if names is None or getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        return None
    if getattr(config, "position_embedding_type", "absolute") not in (None, "absolute"):
        return None
    try:
        layers = list(attrgetter(names.layers)(model))
        found = [
            LayerParts(**{field: attrgetter(getattr(names, field))(layer) for field in LayerParts.__slots__})
            for layer in layers
        ]
    except AttributeError:
        return None
    return found if len(found) == n_layers and all(_is_plain(torch, parts) for parts in found) else None


def _is_plain(torch: Any, parts: LayerParts) -> bool:
    """Whether every part is what its name says, and no more, such as an adapter."""
    shapes = {each.weight.shape for each in (parts.query, parts.key, parts.value) if type(each) is torch.nn.Linear}
    return (
        len(shapes) == 1
        and all(type(each) is torch.nn.Linear and each.bias is not None for each in parts.products)
        and all(type(each) is torch.nn.LayerNorm for each in (parts.first_norm, parts.second_norm))
    )
