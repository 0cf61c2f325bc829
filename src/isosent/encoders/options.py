"""Every option that can follow a model reference, with its flag, its help and its rule."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from isosent.errors import ModelReferenceError
from isosent.networks.layer_pooling import LAYER_NAMES, POOLING_NAMES, canonical_pooling, parse_layers
from isosent.networks.network import AUTO, BACKENDS, DTYPES
from isosent.words.tokens import SPLITTERS

FUNCTION = "function"
_DEVICE = re.compile(r"cpu|(cuda|mps|xpu)(:\d+)?")


def yes_or_no(value: str) -> str:
    """Take true or false."""
    if value.lower() not in ("true", "false"):
        raise ValueError(value)
    return value.lower()


def whole_number(value: str, least: int = 1) -> str:
    """Take a whole number that is not below the least one."""
    if int(value) < least:
        raise ValueError(value)
    return str(int(value))


def from_zero(value: str) -> str:
    """Take a whole number, 0 included."""
    return whole_number(value, 0)


def whole_number_or_none(value: str) -> str:
    """Take a whole number above 0, or none."""
    return "none" if value.lower() == "none" else whole_number(value)


def number(value: str, *, may_be_zero: bool = False) -> str:
    """Take a finite number above 0."""
    read = float(value)
    if not (read > 0 or (may_be_zero and read == 0)) or read == float("inf"):
        raise ValueError(value)
    return written_number(read)


def number_from_zero(value: str) -> str:
    """Take a finite number, 0 included."""
    return number(value, may_be_zero=True)


def powers(value: str) -> str:
    """Take powers of power means."""
    read = [float(power) for power in value.split(",")]
    if not all(power > 0 or power == -float("inf") for power in read):
        raise ValueError(value)
    return ",".join(map(written_number, read))


def layers(value: str) -> str:
    """Take layers of a network, which are resolved when it is open."""
    parse_layers(value)
    return value


def poolings(value: str) -> str:
    """Take names of poolings, in one spelling."""
    try:
        return canonical_pooling(value)
    except ModelReferenceError as error:
        raise ValueError(value) from error


def devices(value: str) -> str:
    """Take auto, or different devices."""
    named = value.split(",")
    if value != AUTO and (not all(map(_DEVICE.fullmatch, named)) or len(set(named)) < len(named)):
        raise ValueError(value)
    return value


def among(*names: str) -> Callable[[str], str]:
    """Make the rule that takes one of some names."""

    def parse(value: str) -> str:
        if value not in names:
            raise ValueError(value)
        return value

    return parse


def some_of(*names: str) -> Callable[[str], str]:
    """Make the rule that takes some of some names, none twice."""

    def parse(value: str) -> str:
        chosen = value.split(",")
        if set(chosen) - set(names) or len(set(chosen)) < len(chosen):
            raise ValueError(value)
        return value

    return parse


def tokenizer(value: str) -> str:
    """Take the name of a splitter, or a tokenizer.json."""
    if value not in (*SPLITTERS, FUNCTION) and not value.endswith(".json"):
        raise ValueError(value)
    return value


def file(value: str) -> str:
    """Take anything but nothing."""
    if not value:
        raise ValueError(value)
    return value


def written_number(number: float) -> str:
    """Write a number with as few digits as it takes to read the same one."""
    return repr(float(number)).removesuffix(".0")


MODEL, RUNNING = "Model", "Running"
_TEXT, _WEIGHTING, _GEM = WORD_PANELS = ("Words of a text", "Weighting of words", "GEM")


@dataclass(frozen=True, slots=True)
class Option:
    """Something a reference can be followed by."""

    name: str  # as written behind the ``?``; the flag of the command line has dashes in place of underscores
    values: str  # what may stand there, in short
    rule: str  # what must stand there, the end of a sentence
    summary: str  # what it does, for people
    # From what was written to the one spelling that is stored; raises ValueError on anything else
    parse: Callable[[str], str]
    panel: str = MODEL  # heading that its flag stands under


def _choice(name: str, summary: str, *names: str, panel: str) -> Option:
    return Option(name, "|".join(names), f"be {_or(names)}", summary, among(*names), panel)


def _or(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


PERMISSIONS = ("trust_remote_code", "pickled_weights")  # only the caller grants them; no file can
_YES_OR_NO = ("true|false", "be true or false")
_COUNT = ("N", "be a whole number above 0")

OPTIONS = {
    option.name: option
    for option in (
        Option("lowercase", *_YES_OR_NO, "words: lower-case texts before look-up (default true)", yes_or_no, _TEXT),
        Option(
            "tokenizer",
            "NAME|FILE",
            f"be {', '.join(SPLITTERS)} or a FILE.json",
            f"words: {'|'.join(SPLITTERS)}|FILE.json (a tokenizer.json) splits texts (default wordpunct)",
            tokenizer,
            _TEXT,
        ),
        _choice(
            "punctuation",
            "words: keep, drop, or drop the eight signs that the authors of GEM drop (default keep)",
            *("keep", "drop", "gem"),
            panel=_TEXT,
        ),
        Option(
            "stop_words",
            "keep|english|FILE",
            "be keep, english or a file",
            "words: drop English stop words or those of a file (default keep)",
            file,
            _TEXT,
        ),
        _choice(
            "unknown",
            "words: skip unknown words, make them of sub-words, or take the mean of all (default: sub-words if there "
            "are any, else skip)",
            *("skip", "subwords", "mean"),
            panel=_TEXT,
        ),
        Option("vocabulary", "FILE", "be a file", "words: keep only the words of this file", file, _TEXT),
        _choice(
            "weighting",
            "words, static, wordllama: how words make a text (default mean)",
            *("mean", "sif", "usif", "p_mean", "gem"),
            panel=_WEIGHTING,
        ),
        Option(
            "zipfian",
            *_YES_OR_NO,
            "whiten the word vectors by the frequencies of words first (default false)",
            yes_or_no,
            _WEIGHTING,
        ),
        Option(
            "frequencies",
            "corpus|rank|FILE",
            "be corpus, rank or a file",
            "sif, usif, zipfian: count words in the texts fitted on, estimate from their order (Zipf), or read 'word "
            "count' lines (default corpus)",
            file,
            _WEIGHTING,
        ),
        Option("a", "A", "be a number above 0", "sif: smoothing constant (default 0.001)", number, _WEIGHTING),
        Option(
            "n_components",
            "N",
            "be a whole number, 0 or more",
            "sif, usif: common components removed (default 1, 5)",
            from_zero,
            _WEIGHTING,
        ),
        Option(
            "powers",
            "-inf,1,inf",
            "be numbers above 0, -inf or inf, with commas between them",
            "p_mean: powers, concatenated (default -inf,1,inf)",
            powers,
            _WEIGHTING,
        ),
        Option(
            "z_norm",
            *_YES_OR_NO,
            "p_mean: standardize over the texts fitted on (default true)",
            yes_or_no,
            _WEIGHTING,
        ),
        Option("window", *_COUNT, "gem: words on each side (default 7)", whole_number, _GEM),
        Option("n_candidates", *_COUNT, "gem: principal vectors of the corpus (default 45)", whole_number, _GEM),
        Option("n_removed", *_COUNT, "gem: principal vectors removed from a text (default 17)", whole_number, _GEM),
        Option(
            "power",
            "T",
            "be a number, 0 or more",
            "gem: power of the singular values in coarse vectors (default 3)",
            number_from_zero,
            _GEM,
        ),
        _choice(
            "removal", "gem: by sentence, the same for all, or none (default sdr)", *("sdr", "sir", "none"), panel=_GEM
        ),
        Option(
            "scores",
            "NAMES",
            "be some of novelty, significance, uniqueness, with commas between them",
            "gem: scores that count, of novelty,significance,uniqueness (default all)",
            some_of("novelty", "significance", "uniqueness"),
            _GEM,
        ),
        _choice(
            "significance",
            "gem: divide by the words present or by 2m+1 (default columns)",
            "columns",
            "window",
            panel=_GEM,
        ),
        _choice(
            "ranking",
            "gem: rank principal vectors with or without singular values (default weighted)",
            *("weighted", "unweighted"),
            panel=_GEM,
        ),
        _choice(
            "uniqueness",
            "gem: singular values as published or over the largest (default published)",
            *("published", "scaled"),
            panel=_GEM,
        ),
        Option(
            "static",
            *_YES_OR_NO,
            "hf: the token embeddings alone, no layer of the network (default false)",
            yes_or_no,
        ),
        Option(
            "layers",
            "1,-1",
            f"be layers as in 1,-1 or L1+L12 or 0..4 or 0.3*1,0.7*-1, or {_or(tuple(LAYER_NAMES))}",
            "hf: layers to average, 0 the embedding layer, -1 the last; first_last_avg is 1,-1, last2 is -2,-1 "
            "(default -1)",
            layers,
        ),
        Option(
            "pooling",
            "mean,...",
            f"be among {', '.join(POOLING_NAMES)}, or several of these with commas between them, none twice",
            f"hf: {'|'.join(POOLING_NAMES)}; several are concatenated",
            poolings,
        ),
        Option("dense", *_YES_OR_NO, "hf: apply the folder's Dense and LayerNorm modules (default true)", yes_or_no),
        Option("normalize", *_YES_OR_NO, "hf, static: scale to length 1 (default: as the folder says)", yes_or_no),
        Option(
            "max_length",
            "N|none",
            "be a whole number above 0, or none",
            "hf, static: cut texts at N tokens (default: as the folder says)",
            whole_number_or_none,
        ),
        Option(
            "long",
            "truncate|windows",
            "be truncate or windows",
            "hf: cut texts at max_length, or take the mean over windows of it (default truncate)",
            among("truncate", "windows"),
        ),
        Option(
            "overlap",
            "N",
            "be a whole number, 0 or more",
            "hf: tokens that windows share (default: a quarter of max_length)",
            from_zero,
        ),
        Option("prompt", "TEXT", "be a text", "hf: stands before every text (default: as the folder says)", str),
        Option("query_prompt", "TEXT", "be a text", "hf: the same for queries (default: as the folder says)", str),
        Option("document_prompt", "TEXT", "be a text", "hf: the same for documents (default: as the folder says)", str),
        Option("encoder", "REFERENCE", "name an encoder", "FOLDER: where its encoder lies now, if it was moved", str),
        _choice("backend", "hf: what computes (default auto)", AUTO, *BACKENDS, panel=RUNNING),
        _choice("dtype", "hf: numbers that layers are computed in (default float32)", *DTYPES, panel=RUNNING),
        Option(
            "devices",
            "auto|cpu|cuda:0,...",
            "be auto, or devices as torch writes them, with commas between them",
            "hf: where to compute; several GPUs share the work (default auto: a GPU if there is one)",
            devices,
            RUNNING,
        ),
        Option(
            "batch_tokens",
            *_COUNT,
            "hf: tokens of a batch at most, padding counted (default: as suits the device)",
            whole_number,
            RUNNING,
        ),
        Option(
            "trust_remote_code",
            *_YES_OR_NO,
            "hf: run code that comes with the model or that its config names (default false)",
            yes_or_no,
            RUNNING,
        ),
        Option(
            "pickled_weights",
            *_YES_OR_NO,
            "hf: read weights out of pickles where there are no others (default false)",
            yes_or_no,
            RUNNING,
        ),
    )
}
RUNTIME_OPTIONS = tuple(option.name for option in OPTIONS.values() if option.panel == RUNNING)


def options_under(panel: str) -> list[Option]:
    """List the options under a heading."""
    return [option for option in OPTIONS.values() if option.panel == panel]
