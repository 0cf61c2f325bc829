"""Random transformers of every architecture, small enough to be made in a test, and a plain loop through them."""

import functools
import json

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

N_LAYERS, DIM = 3, 24
WORDS = [
    *("the", "a", "man", "woman", "dog", "horse", "is", "was", "riding", "running", "quickly", "in", "park", "river"),
    *("red", "blue", "and", "of", "to", "query", "passage", "find", ":", ","),
]
TEXTS = [
    "the man is riding a horse",
    "a dog",
    "the red river",
    "a woman was running quickly in the park and the dog was running in the river of the blue man",
    "horse",
    "the woman and the man",
]
SPECIAL = ["<unk>", "<pad>", "<s>", "</s>"]
VOCABULARY = {token: number for number, token in enumerate([*SPECIAL, *WORDS])}
FRAMES = {"both": "<s> $A </s>", "opening": "<s> $A", "closing": "$A </s>", "none": "$A"}

SMALL = {
    "hidden_size": DIM,
    "num_hidden_layers": N_LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "max_position_embeddings": 42,
}
DECODER = SMALL | {"num_key_value_heads": 1, "head_dim": 12}
OTHER_NAMES = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
CONFIGS = {
    "bert": (transformers.BertConfig, SMALL | {"max_position_embeddings": 40}),
    "roberta": (transformers.RobertaConfig, SMALL),
    "camembert": (transformers.CamembertConfig, SMALL),
    "xlm-roberta": (transformers.XLMRobertaConfig, SMALL),
    "distilbert": (
        transformers.DistilBertConfig,
        {"dim": DIM, "n_layers": N_LAYERS, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 40} | OTHER_NAMES,
    ),
    "albert": (transformers.AlbertConfig, SMALL | {"embedding_size": 12, "max_position_embeddings": 40}),
    "electra": (transformers.ElectraConfig, SMALL | {"embedding_size": 12, "max_position_embeddings": 40}),
    "mpnet": (transformers.MPNetConfig, SMALL),
    "deberta-v2": (
        transformers.DebertaV2Config,
        SMALL
        | {
            "relative_attention": True,
            "position_buckets": 8,
            "max_relative_positions": 42,
            "pos_att_type": "p2c|c2p",
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_biased_input": False,
        },
    ),
    "modernbert": (
        transformers.ModernBertConfig,
        SMALL | {"global_attn_every_n_layers": 2, "local_attention": 8, "cls_token_id": 2, "sep_token_id": 3},
    ),
    "gpt2": (
        transformers.GPT2Config,
        {"n_embd": DIM, "n_layer": N_LAYERS, "n_head": 2, "n_positions": 40} | OTHER_NAMES,
    ),
    "llama": (transformers.LlamaConfig, DECODER),
    "qwen2": (transformers.Qwen2Config, DECODER),
    "qwen3": (transformers.Qwen3Config, DECODER),
    "gemma2": (transformers.Gemma2Config, DECODER | {"sliding_window": 8}),
    "t5": (
        transformers.T5Config,
        {"d_model": DIM, "d_kv": 12, "d_ff": 32, "num_layers": N_LAYERS, "num_heads": 2} | OTHER_NAMES,
    ),
    "bart": (
        transformers.BartConfig,
        {
            "d_model": DIM,
            "encoder_layers": N_LAYERS,
            "decoder_layers": 2,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
            "max_position_embeddings": 40,
            "decoder_start_token_id": 3,
        }
        | OTHER_NAMES,
    ),
    "xlnet": (
        transformers.XLNetConfig,
        {"d_model": DIM, "n_layer": N_LAYERS, "n_head": 2, "d_inner": 32} | OTHER_NAMES,
    ),
    "fnet": (
        transformers.FNetConfig,
        {
            "hidden_size": DIM,
            "num_hidden_layers": N_LAYERS,
            "intermediate_size": 32,
            "max_position_embeddings": 40,
        }
        | OTHER_NAMES,
    ),
}
DECODERS = ("gpt2", "llama", "qwen2", "qwen3", "gemma2")
STOPPING = tuple(name for name in CONFIGS if name not in ("xlnet", "t5", "bart"))


def words_tokenizer(frame="both"):
    """A tokenizer that knows `WORDS`, with special tokens around a text or not."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if frame != "none":
        tokenizer.post_processor = processors.TemplateProcessing(
            single=FRAMES[frame], special_tokens=[("<s>", 2), ("</s>", 3)]
        )
    return tokenizer


def bytes_tokenizer():
    """Pieces of bytes, those of the words among `WORDS` with the space before them; no special tokens around a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([" ".join(WORDS), *TEXTS], trainer)
    return tokenizer


def save_tokenizer(folder, tokenizer=None, *, frame="both", has_padding=True, **more):
    """Save a tokenizer as transformers does; returns the size of its vocabulary."""
    tokenizer = tokenizer or words_tokenizer(frame)
    padding = {"pad_token": "<pad>"} if has_padding else {}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", cls_token="<s>", sep_token="</s>", **padding, **more
    ).save_pretrained(folder)
    return tokenizer.get_vocab_size()


def network_of(name, vocab_size, seed=0, **changes):
    """A random network; layer norms and biases are random too, so that none is invisible."""
    kind, settings = CONFIGS[name]
    config = kind(vocab_size=vocab_size, **settings | changes)
    torch.manual_seed(seed)
    model = transformers.T5EncoderModel(config) if name == "t5" else transformers.AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def save_model(folder, name, tokenizer=None, *, seed=0, changes=None, n_layers=None, **how):
    """Save a tiny model with its tokenizer; how: as for `save_tokenizer`."""
    if n_layers is not None:
        changes = (changes or {}) | {"n_layer" if name == "gpt2" else "num_hidden_layers": n_layers}
    if name in DECODERS:
        how = {"frame": "none" if name == "gpt2" else "opening", "padding_side": "left"} | how
    if name == "qwen2":  # its tokenizer is of this kind whatever is saved
        tokenizer = tokenizer or bytes_tokenizer()
    network_of(name, save_tokenizer(folder, tokenizer, **how), seed, **changes or {}).save_pretrained(folder)
    return folder


def save_labse(folder):
    """The modules of LaBSE: a BERT, its first token, a Dense layer with tanh, length 1."""
    kinds = ("Transformer", "Pooling", "Dense", "Normalize")
    modules = [
        {"idx": place, "name": str(place), "path": "" if place == 0 else f"{place}_{kind}", "type": f"{_PLACE}{kind}"}
        for place, kind in enumerate(kinds)
    ]
    save_model(folder, "bert")
    write_json(folder / "modules.json", modules)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 32, "do_lower_case": False})
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": DIM, "pooling_mode_cls_token": True})
    dense = {"in_features": DIM, "out_features": DIM, "bias": True}
    write_json(folder / "2_Dense" / "config.json", dense | {"activation_function": "torch.nn.modules.activation.Tanh"})
    torch.manual_seed(1)
    weights = {"linear.weight": torch.randn(DIM, DIM) / 5, "linear.bias": torch.randn(DIM) / 5}
    save_file(weights, folder / "2_Dense" / "model.safetensors")
    return folder


_PLACE = "sentence_transformers.models."


def write_json(path, content):
    """Write a JSON file, with its folder."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content), "utf-8")


def token_ids(folder, texts):
    """Token ids by the tokenizer alone."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return [tokenizer(text)["input_ids"] for text in texts]


@functools.lru_cache(maxsize=4)
def loaded(folder):
    """The network of a folder, by transformers alone; of an encoder-decoder, the encoder."""
    kind = transformers.AutoConfig.from_pretrained(folder).model_type
    model = (transformers.T5EncoderModel if kind == "t5" else transformers.AutoModel).from_pretrained(folder).eval()
    return model.get_encoder() if kind == "bart" else model


def hidden_states(folder, ids):
    """All hidden states of texts of token ids, each alone and without padding, (n_layers + 1, n_tokens, dim) each."""
    model = loaded(folder)
    found = []
    for row in ids:
        input_ids = torch.tensor([row])
        with torch.inference_mode():
            output = model(input_ids=input_ids, attention_mask=torch.ones_like(input_ids), output_hidden_states=True)
        states = [*output.hidden_states[:-1], output.last_hidden_state]
        found.append(np.stack([state[0].numpy() for state in states]))
    return found


def plain_pooling(tokens, name):
    """One vector out of the token vectors of one text, (n_tokens, dim), in the words of the definition."""
    positions = np.arange(1, len(tokens) + 1)[:, None]
    match name:
        case "mean":
            return tokens.mean(axis=0)
        case "cls":
            return tokens[0]
        case "max":
            return tokens.max(axis=0)
        case "mean_sqrt_len":
            return tokens.sum(axis=0) / np.sqrt(len(tokens))
        case "last_token":
            return tokens[-1]
        case "weighted_mean":
            return (tokens * positions).sum(axis=0) / positions.sum()
        case "p_mean":
            return np.concatenate([tokens.min(axis=0), tokens.mean(axis=0), tokens.max(axis=0)])
    raise ValueError(name)


def plain_vectors(states, layers, pooling):
    """Pool each layer of each text, then average the layers; `layers` maps each to its weight."""
    total = sum(layers.values())
    return np.stack(
        [
            sum(weight / total * plain_pooling(of_text[layer], pooling) for layer, weight in layers.items())
            for of_text in states
        ]
    )
