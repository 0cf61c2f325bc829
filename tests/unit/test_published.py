import pytest

from isosent.encoders.reference import options_of, parse_reference, weighting_of, write_options
from isosent.evaluation.published import published_rows

DEFAULTS = {"lowercase": "true", "tokenizer": "wordpunct", "punctuation": "keep", "stop_words": "keep"}
COUNTS = "/data/enwiki_vocab_min200.txt"


def labels(options, *, transform=None):
    """Labels beside GloVe 840B with options written as in a reference, fitted on the target."""
    checked = dict(parse_reference(f"words:glove.840B.300d.txt?{options}").options)
    in_force = DEFAULTS | write_options(checked | options_of(weighting_of(checked)))
    model = {"reference": "words:/data/glove.840B.300d.txt", "options": in_force, "fits": []}
    protocol = {"transform": transform, "fit": "target", "parameters": {}, "missing_subsets": {}}
    return [
        row.label.removeprefix("GloVe 840B ").removesuffix(", Yokoi et al. 2024")
        for row in published_rows(model, protocol)
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("weighting=mean", ["mean"]),
        ("zipfian=false", ["mean"]),
        (f"weighting=sif&frequencies={COUNTS}", ["SIF with removal"]),
        (f"zipfian=true&frequencies={COUNTS}", ["Zipfian whitening"]),
        ("weighting=sif&frequencies=corpus", []),
        (f"weighting=sif&a=0.01&frequencies={COUNTS}", []),
        (f"zipfian=true&weighting=sif&frequencies={COUNTS}", []),
        ("weighting=gem", []),
        ("stop_words=english", []),
    ],
)
def test_published_rows_stand_beside_the_same_weighting(options, expected):
    assert labels(options) == expected


def test_nothing_was_published_for_a_transform_behind_them():
    assert labels("weighting=mean", transform="whitening") == []
