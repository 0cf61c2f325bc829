import pytest
from made_results import made_result, made_task, right_and_wrong

from isosent.encoders.reference import options_of, parse_reference, weighting_of, write_options
from isosent.evaluation.published import published_rows
from isosent.evaluation.tables import result_tables

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


def test_the_published_score_stays_beside_sts_where_other_tasks_are_evaluated_with_it():
    hows = [f"{metric}{how}" for metric in ("spearman", "pearson") for how in ("", "_mean", "_wmean")]
    sts = made_task(
        scores=dict.fromkeys(hows, 0.75),
        intervals={"spearman": (0.7, 0.8), "pearson": (0.71, 0.79)},
        details={"subsets": {"one": {}, "two": {}}},
    )
    options = {"layers": "6", "pooling": "mean", "dense": "true", "normalize": "true"}
    result = made_result(
        "hf:sentence-transformers/all-MiniLM-L6-v2", options=options, STS12=sts, TREC=right_and_wrong(80)
    )
    first, second = result_tables([result], ["none"])
    rows = {cells[0].strip(): cells[1] for cells, *_ in first.rows}
    assert rows["published [1]"] == "72.37"  # of its model card, as MTEB measured it
    assert {"pearson all", "spearman mean", "spearman wmean"} <= rows.keys()
    assert [cells[0] for cells, *_ in second.rows] == ["TREC"]
