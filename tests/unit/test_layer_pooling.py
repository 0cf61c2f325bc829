"""The grammar of layers and poolings."""

import math

import pytest

from isosent.errors import ModelReferenceError
from isosent.networks.layer_pooling import (
    POOLING_NAMES,
    LayerPooling,
    canonical_pooling,
    format_layers,
    parse_layers,
    resolve_layers,
)

THIRD = 1 / 3


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("-1", {12: 1.0}),
        ("12", {12: 1.0}),
        ("0", {0: 1.0}),
        ("-13", {0: 1.0}),
        ("1,-1", {1: 0.5, 12: 0.5}),
        ("L1+L12", {1: 0.5, 12: 0.5}),
        ("l1+l2+l12", {1: THIRD, 2: THIRD, 12: THIRD}),
        ("L-1,L0", {12: 0.5, 0: 0.5}),
        (" 1 , 2 ", {1: 0.5, 2: 0.5}),
        ("first_last_avg", {1: 0.5, 12: 0.5}),
        ("last2", {11: 0.5, 12: 0.5}),
        ("last", {12: 1.0}),
        ("0..3", {0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}),
        ("L10..L12", {10: THIRD, 11: THIRD, 12: THIRD}),
        ("-2..-1", {11: 0.5, 12: 0.5}),
        ("5..5", {5: 1.0}),
        ("0.3*1,0.7*-1", {1: 0.3, 12: 0.7}),
        ("3*1+1*2", {1: 0.75, 2: 0.25}),
        ("2*1,2", {1: 2 * THIRD, 2: THIRD}),
        ("0.5*0..1,3", {0: 0.25, 1: 0.25, 3: 0.5}),
        (".25*1,1e-2*2", {1: 0.25 / 0.26, 2: 0.01 / 0.26}),
    ],
)
def test_layers_have_shares_that_sum_to_one(written, expected):
    layers = dict(LayerPooling.of(written, "mean", n_layers=12).layers)
    assert layers == pytest.approx(expected)
    assert math.fsum(layers.values()) == pytest.approx(1.0, abs=1e-15)


def test_all_layers_are_the_embeddings_and_every_other_one():
    assert [layer for layer, _ in LayerPooling.of("all", "mean", n_layers=6).layers] == list(range(7))


NO_LAYERS = "|one|1,,2|1,|1..|..3|1-3|1*|*1|0*1|-0.5*1|nan*1|inf*1|1.5|L|first|0x1|1 2|1e400*1,2"


@pytest.mark.parametrize("written", NO_LAYERS.split("|"))
def test_what_is_no_layer_is_no_layer(written):
    with pytest.raises(ValueError):  # noqa: PT011
        parse_layers(written)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("13", r"no layer 13\. The layers are 0 to 12, or -13 to -1"),
        ("-14", r"no layer -14\. The layers are 0 to 12, or -13 to -1"),
        ("1..13", "no layer 13"),
        ("1,1", "layers=1,1: layer 1 occurs twice"),
        ("12,-1", "layer 12 occurs twice"),
        ("0..3,2", "layer 2 occurs twice"),
        ("4..2", r"of a range must rise, and those of 4\.\.2"),
        ("1..-13", r"of a range must rise"),
    ],
)
def test_a_layer_that_is_not_there_or_there_twice_is_refused(written, words):
    with pytest.raises(ModelReferenceError, match=words):
        resolve_layers(written, 12)


@pytest.mark.parametrize(
    "written",
    ["1,-1", "L1+L2+L12", "0..4", "0.3*1,0.7*12", "all", "last2", "1e-3*1,2*-1", "2*1,2*3", f"1{16 * '0'}*1,2"],
)
def test_the_stored_spelling_reads_back_as_itself(written):
    layers = resolve_layers(written, 12)
    stored = format_layers(layers)
    assert resolve_layers(stored, 12) == layers
    assert format_layers(resolve_layers(stored, 12)) == stored


def test_layers_without_weights_are_stored_without():
    assert format_layers(resolve_layers("L1+-1", 12)) == "1,12"


def test_the_highest_layer_and_the_width():
    reading = LayerPooling.of("1,7,2", "mean,p_mean,cls", n_layers=12)
    assert reading.highest == 7
    assert reading.width(10) == 50
    assert LayerPooling.of("0", "mean", n_layers=12).highest == 0


def test_one_spelling_makes_one_reading():
    assert LayerPooling.of("L1+L12", "lasttoken", n_layers=12) == LayerPooling.of(
        "first_last_avg", "last_token", n_layers=12
    )
    assert len({LayerPooling.of("1,12", "mean", n_layers=12), LayerPooling.of("1,-1", "mean", n_layers=12)}) == 1


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("mean_sqrt_len_tokens", "mean_sqrt_len"),
        ("weightedmean,lasttoken", "weighted_mean,last_token"),
        (",".join(POOLING_NAMES), "mean,cls,max,mean_sqrt_len,last_token,weighted_mean,p_mean,sbert_wk"),
    ],
)
def test_poolings_are_stored_in_one_spelling(written, stored):
    assert canonical_pooling(written) == stored
    assert canonical_pooling(stored) == stored


@pytest.mark.parametrize("written", ["", "median", "mean,", "MEAN", "mean;cls"])
def test_an_unknown_pooling_is_refused_with_the_list(written):
    with pytest.raises(
        ModelReferenceError, match=r"pooling=.*: there is no .*\. Choose among mean, cls, max, .*, sbert_wk"
    ):
        canonical_pooling(written)


@pytest.mark.parametrize("written", ["mean,mean", "cls,mean,cls", "lasttoken,last_token"])
def test_a_pooling_named_twice_is_refused(written):
    with pytest.raises(ModelReferenceError, match=r"pooling=.*: a name occurs twice"):
        canonical_pooling(written)


@pytest.mark.parametrize("layers", ["-1", "0", "5..5", "0.4*1,0.6*2"])
def test_sbert_wk_takes_several_layers_without_weights(layers):
    with pytest.raises(ModelReferenceError, match=r"pooling=sbert_wk needs two layers or more, without weights"):
        LayerPooling.of(layers, "mean,sbert_wk", n_layers=12)
    assert LayerPooling.of("4..12", "mean,sbert_wk", n_layers=12).poolings == ("mean", "sbert_wk")
