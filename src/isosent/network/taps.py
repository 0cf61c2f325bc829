"""Hidden states as they come by: each layer is looked at when it is computed, and none above the last one wanted is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

from isosent import _extras

Visit = Callable[[int, Any], None]


class _Enough(Exception):  # noqa: N818 - no error
    """Ends a pass: nothing above is wanted."""


class LayerTaps:
    """Watches the layers of a network of transformers.

    Parameters
    ----------
    model : PreTrainedModel
        The network. Hooks stay on its layers; they do nothing outside of `run`.
    n_layers : int
        Its layers.

    Notes
    -----
    Layer 0 is what enters the first layer, layer k what the k-th one returns, and the last layer is the output of the
    network, behind its final normalization where it has one: the ``hidden_states`` of transformers. Where that does not
    hold for an architecture, which a run on two tokens tells, all hidden states are asked of the network itself.
    """

    def __init__(self, model: Any, n_layers: int) -> None:
        self._torch = _extras.require("torch")
        self._model = model
        self._n_layers = n_layers
        self._pass = threading.local()
        self._stack: list[Any] = []
        for stack in self._stacks():
            self._stack = stack
            hooks = [hook for module in stack for hook in self._hooked(module)]
            if self._agrees():
                break
            self._stack = []
            for hook in hooks:
                hook.remove()

    def __deepcopy__(self, memo: dict[int, Any]) -> LayerTaps:
        """Return these: in a copy of the network their hooks do nothing."""
        return self

    @property
    def stops_early(self) -> bool:
        """Whether layers above the highest one wanted are left out."""
        return bool(self._stack)

    def run(self, input_ids: Any, attention_mask: Any, wanted: Collection[int], visit: Visit) -> None:
        """Run a batch through the network.

        Parameters
        ----------
        input_ids, attention_mask : tensor of shape (n_texts, seq_len), int64
            The batch.
        wanted : collection of int
            Layers to be looked at.
        visit : callable
            Called with each of them and its hidden states, of shape (n_texts, seq_len, dim), from the lowest on.

        Raises
        ------
        ValueError
            If the network gives no hidden states.
        """
        if not self._stack:
            self._run_whole(input_ids, attention_mask, wanted, visit)
            return
        highest = max(wanted)
        self._pass.visit, self._pass.wanted, self._pass.layer = visit, frozenset(wanted), 0
        self._pass.stop_at = highest if highest < self._n_layers else None
        try:
            output = self._call(input_ids, attention_mask)
        except _Enough:
            return
        finally:
            self._pass.visit = None
        visit(self._n_layers, output.last_hidden_state)

    def _run_whole(self, input_ids: Any, attention_mask: Any, wanted: Collection[int], visit: Visit) -> None:
        only_last = set(wanted) == {self._n_layers}
        output = self._call(input_ids, attention_mask, output_hidden_states=not only_last)
        states = () if only_last else output.hidden_states
        if not only_last and (states is None or len(states) != self._n_layers + 1):
            raise ValueError(f"{self._n_layers + 1} hidden states; got {0 if states is None else len(states)}")
        for layer in sorted(wanted):
            visit(layer, output.last_hidden_state if layer == self._n_layers else states[layer])

    def _call(self, input_ids: Any, attention_mask: Any, **asked: Any) -> Any:
        return self._model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **asked)

    def _stacks(self) -> list[list[Any]]:
        """Modules that may be called one after the other, once a layer: one for each, or the same one again."""
        lists = [list(part) for part in self._model.modules() if isinstance(part, self._torch.nn.ModuleList)]
        whole = [modules for modules in lists if len(modules) == self._n_layers]
        return sorted(whole or [modules for modules in lists if len(modules) == 1], key=_n_parameters, reverse=True)

    def _hooked(self, module: Any) -> list[Any]:
        return [
            module.register_forward_pre_hook(self._before, with_kwargs=True),
            module.register_forward_hook(self._after),
        ]

    def _before(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        visit = getattr(self._pass, "visit", None)
        if visit is None or self._pass.layer > 0:
            return
        self._see(0, args[0] if args else kwargs["hidden_states"])

    def _after(self, module: Any, args: tuple[Any, ...], output: Any) -> None:
        if getattr(self._pass, "visit", None) is None:
            return
        self._pass.layer += 1
        if self._pass.layer < self._n_layers:  # the last one is the output of the network
            self._see(self._pass.layer, output if self._torch.is_tensor(output) else output[0])

    def _see(self, layer: int, states: Any) -> None:
        if layer in self._pass.wanted:
            self._pass.visit(layer, states)
        if layer == self._pass.stop_at:
            raise _Enough

    def _agrees(self) -> bool:
        """Whether what is seen is what the network calls its hidden states, on a batch with padding."""
        torch, device = self._torch, self._model.device
        input_ids = torch.ones((2, 3), dtype=torch.int64, device=device)
        attention_mask = torch.tensor([[1, 1, 1], [1, 1, 0]], device=device)
        seen: dict[int, Any] = {}
        try:
            with torch.inference_mode():
                self.run(input_ids, attention_mask, range(self._n_layers + 1), seen.__setitem__)
                states = self._call(input_ids, attention_mask, output_hidden_states=True).hidden_states
        except (AttributeError, IndexError, KeyError, TypeError):
            return False
        return len(seen) == self._n_layers + 1 == len(states) and all(
            torch.is_tensor(seen[layer])
            and seen[layer].shape == states[layer].shape
            and torch.equal(seen[layer], states[layer])
            for layer in range(self._n_layers)
        )


def _n_parameters(modules: list[Any]) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())
