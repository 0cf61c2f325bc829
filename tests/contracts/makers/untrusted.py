"""Folders that would run something: code that transformers imports, and pickles that call a function."""

import json
import pickle
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from tiny_models import DIM, write_json

from isosent.io.json import write_document

CODE = """
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput


class MineConfig(PretrainedConfig):
    model_type = "mine"
    num_hidden_layers = 2
    hidden_size = 24
    tells_layers = True


class Mine(PreTrainedModel):
    config_class = MineConfig

    def __init__(self, config):
        super().__init__(config)
        self.words = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.mix = torch.nn.Linear(config.hidden_size, config.hidden_size)
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            module.weight.data.normal_()

    def forward(self, input_ids, attention_mask=None, output_hidden_states=False, return_dict=True):
        states = [self.words(input_ids)]
        for _ in range(self.config.num_hidden_layers):
            states.append(torch.tanh(self.mix(states[-1])))
        all_states = tuple(states) if output_hidden_states and self.config.tells_layers else None
        return BaseModelOutput(last_hidden_state=states[-1], hidden_states=all_states)
"""


def save_model_of_own_code(bert, folder, marker=None):
    """A copy of a BERT's folder for a model that only code in it knows: embeddings and one layer, twice.

    The code makes the file `marker` when it is imported.
    """
    folder = Path(shutil.copytree(bert, folder))
    (folder / "mine.py").write_text(CODE if marker is None else f"open({str(marker)!r}, 'w').close()\n{CODE}", "utf-8")
    vocab_size = json.loads((bert / "config.json").read_text())["vocab_size"]
    settings = {"model_type": "mine", "vocab_size": vocab_size, "architectures": ["Mine"]}
    write_json(
        folder / "config.json", settings | {"auto_map": {"AutoConfig": "mine.MineConfig", "AutoModel": "mine.Mine"}}
    )
    torch.manual_seed(0)
    weights = {
        "words.weight": torch.randn(vocab_size, DIM),
        "mix.weight": torch.randn(DIM, DIM),
        "mix.bias": torch.randn(DIM),
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return open, (self.marker, "w")


def save_pickle_that_runs(bert, folder, marker):
    """A copy of a BERT's folder with its weights in a pickle that makes the file `marker` when it is read."""
    folder = Path(shutil.copytree(bert, folder))
    (folder / "model.safetensors").unlink()
    with (folder / "pytorch_model.bin").open("wb") as file:
        pickle.dump({"embeddings.word_embeddings.weight": Payload(marker)}, file)
    return folder


def change_json(path, **settings):
    """Change some values of a JSON file; what was sealed with a checksum is sealed again, as an attacker would."""
    document = json.loads(path.read_text("utf-8"))
    if document.pop("checksum", None) is None:
        path.write_text(json.dumps(document | settings), "utf-8")
    else:
        write_document(path, document | settings)
