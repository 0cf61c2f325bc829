"""Every option that can follow a model reference, with its flag, its help and its rule."""

from collections.abc import Callable
from dataclasses import dataclass

from isosent.numeric.pooling import POOLINGS
from isosent.text.tokens import SPLITTERS

FUNCTION = "function"
MODEL = "Model"
_TEXT, _WEIGHTING, _GEM = WORD_PANELS = ("Words of a text", "Weighting of words", "GEM")


@dataclass(frozen=True, slots=True)
class Option:
    """Something a reference can be followed by.

    Parameters
    ----------
    name : str
        As written behind the ``?``; the flag of the command line has dashes in place of underscores.
    values : str
        What may stand there, in short.
    rule : str
        What must stand there, the end of a sentence.
    summary : str
        What it does, for people.
    parse : callable
        From what was written to the one spelling that is stored; raises ValueError on anything else.
    panel : str
        Heading that its flag stands under.
    """

    name: str
    values: str
    rule: str
    summary: str
    parse: Callable[[str], str]
    panel: str = MODEL


def _yes_or_no(value: str) -> str:
    if value.lower() not in ("true", "false"):
        raise ValueError(value)
    return value.lower()


def _whole_number(value: str, least: int = 1) -> str:
    if int(value) < least:
        raise ValueError(value)
    return str(int(value))


def _from_zero(value: str) -> str:
    return _whole_number(value, 0)


def _whole_number_or_none(value: str) -> str:
    return "none" if value.lower() == "none" else _whole_number(value)


def _number(value: str, *, may_be_zero: bool = False) -> str:
    number = float(value)
    if not (number > 0 or (may_be_zero and number == 0)) or number == float("inf"):
        raise ValueError(value)
    return written_number(number)


def _number_from_zero(value: str) -> str:
    return _number(value, may_be_zero=True)


def _powers(value: str) -> str:
    numbers = [float(power) for power in value.split(",")]
    if not all(number > 0 or number == -float("inf") for number in numbers):
        raise ValueError(value)
    return ",".join(map(written_number, numbers))


def _layer_list(value: str) -> str:
    layers = [int(layer) for layer in value.split(",")]
    if len(set(layers)) < len(layers):
        raise ValueError(value)
    return ",".join(map(str, layers))


def _pooling_list(value: str) -> str:
    if any(name not in POOLINGS for name in value.split(",")):
        raise ValueError(value)
    return value


def _among(*names: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in names:
            raise ValueError(value)
        return value

    return parse


def _some_of(*names: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        chosen = value.split(",")
        if set(chosen) - set(names) or len(set(chosen)) < len(chosen):
            raise ValueError(value)
        return value

    return parse


def _tokenizer(value: str) -> str:
    if value not in (*SPLITTERS, FUNCTION) and not value.endswith(".json"):
        raise ValueError(value)
    return value


def _file(value: str) -> str:
    if not value:
        raise ValueError(value)
    return value


def _choice(name: str, summary: str, *names: str, panel: str) -> Option:
    return Option(name, "|".join(names), f"be {_or(names)}", summary, _among(*names), panel)


def _or(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


_YES_OR_NO = ("true|false", "be true or false")
_COUNT = ("N", "be a whole number above 0")

OPTIONS = {
    option.name: option
    for option in (
        Option("lowercase", *_YES_OR_NO, "words: lower-case texts before look-up (default true)", _yes_or_no, _TEXT),
        Option(
            "tokenizer",
            "NAME|FILE",
            f"be {', '.join(SPLITTERS)} or a FILE.json",
            f"words: {'|'.join(SPLITTERS)}|FILE.json (a tokenizer.json) splits texts (default wordpunct)",
            _tokenizer,
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
            _file,
            _TEXT,
        ),
        _choice(
            "unknown",
            "words: skip unknown words, make them of sub-words, or take the mean of all (default: sub-words if there "
            "are any, else skip)",
            *("skip", "subwords", "mean"),
            panel=_TEXT,
        ),
        Option("vocabulary", "FILE", "be a file", "words: keep only the words of this file", _file, _TEXT),
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
            _yes_or_no,
            _WEIGHTING,
        ),
        Option(
            "frequencies",
            "corpus|rank|FILE",
            "be corpus, rank or a file",
            "sif, usif, zipfian: count words in the texts fitted on, estimate from their order (Zipf), or read 'word "
            "count' lines (default corpus)",
            _file,
            _WEIGHTING,
        ),
        Option("a", "A", "be a number above 0", "sif: smoothing constant (default 0.001)", _number, _WEIGHTING),
        Option(
            "n_components",
            "N",
            "be a whole number, 0 or more",
            "sif, usif: common components removed (default 1, 5)",
            _from_zero,
            _WEIGHTING,
        ),
        Option(
            "powers",
            "-inf,1,inf",
            "be numbers above 0, -inf or inf, with commas between them",
            "p_mean: powers, concatenated (default -inf,1,inf)",
            _powers,
            _WEIGHTING,
        ),
        Option(
            "z_norm", *_YES_OR_NO, "p_mean: standardize over the texts fitted on (default true)", _yes_or_no, _WEIGHTING
        ),
        Option("window", *_COUNT, "gem: words on each side (default 7)", _whole_number, _GEM),
        Option("n_candidates", *_COUNT, "gem: principal vectors of the corpus (default 45)", _whole_number, _GEM),
        Option("n_removed", *_COUNT, "gem: principal vectors removed from a text (default 17)", _whole_number, _GEM),
        Option(
            "power",
            "T",
            "be a number, 0 or more",
            "gem: power of the singular values in coarse vectors (default 3)",
            _number_from_zero,
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
            _some_of("novelty", "significance", "uniqueness"),
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
            "static", *_YES_OR_NO, "hf: the token embeddings alone, no layer of the network (default false)", _yes_or_no
        ),
        Option(
            "layers",
            "1,-1",
            "be whole numbers, none of them twice, with commas between them, as in 1,-1",
            "hf: layers to average, 0 the embedding layer, -1 the last (default -1)",
            _layer_list,
        ),
        Option(
            "pooling",
            "mean,...",
            f"be among {', '.join(POOLINGS)}, or several of these with commas between them",
            f"hf: {'|'.join(POOLINGS)}; several are concatenated",
            _pooling_list,
        ),
        Option("dense", *_YES_OR_NO, "hf: apply the folder's Dense and LayerNorm modules (default true)", _yes_or_no),
        Option("normalize", *_YES_OR_NO, "hf, static: scale to length 1 (default: as the folder says)", _yes_or_no),
        Option(
            "max_length",
            "N|none",
            "be a whole number above 0, or none",
            "hf, static: cut texts at N tokens (default: as the folder says)",
            _whole_number_or_none,
        ),
        Option("encoder", "REFERENCE", "name an encoder", "FOLDER: where its encoder lies now, if it was moved", str),
    )
}


def written_number(number: float) -> str:
    """Write a number with as few digits as it takes to read the same one.

    Parameters
    ----------
    number : float
        Any.

    Returns
    -------
    str
        As it stands in a model reference.

    Examples
    --------
    >>> written_number(3.0), written_number(1e-3), written_number(float("-inf"))
    ('3', '0.001', '-inf')
    """
    return repr(float(number)).removesuffix(".0")


def options_under(panel: str) -> list[Option]:
    """List the options under a heading.

    Parameters
    ----------
    panel : str
        The heading.

    Returns
    -------
    list of Option
        In the order of the table.
    """
    return [option for option in OPTIONS.values() if option.panel == panel]
