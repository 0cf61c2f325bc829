"""Texts longer than the encoder, as windows: against a plain loop over windows of token ids."""

import numpy as np
import pytest
from tiny_models import TEXTS, hidden_states, plain_pooling, token_ids

import isosent
from isosent.errors import InputError, TruncationWarning

pytestmark = pytest.mark.usefixtures("one_thread")

LONG = [*TEXTS, " ".join(TEXTS), "the red dog " * 17, "", "horse " * 8]


def plain_windows(ids, *, room, overlap, n_leading, n_closing):
    """Windows of one text, and how many of its tokens each is the first to hold."""
    if len(ids) <= n_leading + room + n_closing:
        return [ids], [len(ids)]
    leading, own, closing = ids[:n_leading], ids[n_leading : len(ids) - n_closing], ids[len(ids) - n_closing :]
    windows, fresh, end = [], [], 0
    while end < len(own):
        begin = max(0, end - overlap)
        windows.append(leading + own[begin : begin + room] + closing)
        fresh.append(min(begin + room, len(own)) - end)
        end = begin + room
    return windows, fresh


def plain_long(folder, texts, layers, pooling, **rule):
    vectors = []
    for ids in token_ids(folder, texts):
        windows, fresh = plain_windows(ids, **rule)
        states = hidden_states(folder, windows)
        pooled = [sum(plain_pooling(of_window[k], pooling) for k in layers) / len(layers) for of_window in states]
        vectors.append(np.average(pooled, axis=0, weights=fresh))
    return np.stack(vectors)


@pytest.mark.parametrize(
    ("name", "n_leading", "n_closing", "options", "overlap"),
    [
        ("bert", 1, 1, "", 3),
        ("bert", 1, 1, "&overlap=0", 0),
        ("llama", 1, 0, "&overlap=5", 5),
        ("gpt2", 0, 0, "", 3),
        ("fnet", 1, 1, "", 3),
    ],
)
def test_a_long_text_is_the_mean_of_its_windows(tiny_model, name, n_leading, n_closing, options, overlap):
    folder = tiny_model(name)
    rule = {"room": 12 - n_leading - n_closing, "overlap": overlap, "n_leading": n_leading, "n_closing": n_closing}
    encoder = isosent.load(f"hf:{folder}?max_length=12&long=windows{options}&layers=1,-1&batch_tokens=50").encoder
    texts = [text for text in LONG if text]
    expected = plain_long(folder, texts, [1, 3], "mean", **rule)
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=2e-6)
    found = encoder.read(texts, [encoder.layer_pooling("0,2", "max"), encoder.layer_pooling("-1", "cls")])
    np.testing.assert_allclose(found[0], plain_long(folder, texts, [0, 2], "max", **rule), atol=2e-6)
    np.testing.assert_allclose(found[1], plain_long(folder, texts, [3], "cls", **rule), atol=2e-6)


def test_texts_of_one_window_are_as_they_were_and_nothing_is_cut(tiny_model, progress):
    windows = isosent.load(f"hf:{tiny_model('bert')}?max_length=12&long=windows")
    whole = isosent.load(f"hf:{tiny_model('bert')}")
    short = [text for text in TEXTS if len(text.split()) <= 10]
    np.testing.assert_allclose(windows.encode(short), whole.encode(short), atol=2e-6)
    vectors = windows.encode(LONG * 2, progress=progress)  # a TruncationWarning would be an error here
    assert progress.complete() == [2 * len(LONG)]
    np.testing.assert_array_equal(vectors[: len(LONG)], vectors[len(LONG) :])
    assert np.flatnonzero(~vectors.any(axis=1)).tolist() == [8, 18]
    with pytest.warns(TruncationWarning, match="3 of 10 texts were cut"):
        cut = isosent.load(f"hf:{tiny_model('bert')}?max_length=12").encode(LONG)
    assert np.abs(cut - vectors[: len(LONG)]).max() > 0.01


def test_a_prompt_stands_before_every_window(tiny_model):
    folder, long = tiny_model("bert"), "the red dog " * 6
    told = isosent.load(f"hf:{folder}?max_length=12&long=windows&overlap=2&prompt=find : ")
    rule = {"room": 8, "overlap": 2, "n_leading": 3, "n_closing": 1}
    expected = plain_long(folder, [f"find : {long}", "find : a dog"], [3], "mean", **rule)
    np.testing.assert_allclose(told.encode([long, "a dog"]), expected, atol=2e-6)


def test_windows_are_part_of_the_model(tiny_model, tmp_path):
    cut = isosent.load(f"hf:{tiny_model('bert')}?max_length=12")
    windows = isosent.load(f"hf:{tiny_model('bert')}?max_length=12&long=windows")
    narrow = isosent.load(f"hf:{tiny_model('bert')}?max_length=12&long=windows&overlap=1")
    assert len({model.fingerprint for model in (cut, windows, narrow)}) == 3
    assert windows.encoder.options["overlap"] == "3"
    assert "overlap" not in cut.encoder.options
    model = windows.fitted(LONG, transform=isosent.Whitening(3))
    model.save(tmp_path / "model")
    again = isosent.load(tmp_path / "model")
    assert again.encoder.options == windows.encoder.options
    np.testing.assert_array_equal(again.encode(LONG), model.encode(LONG))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("overlap=2", "overlap is for long=windows"),
        ("long=truncate&overlap=2", "overlap is for long=windows"),
        (
            "max_length=12&long=windows&overlap=10",
            "max_length=12 leaves too little room for a text next to overlap=10",
        ),
        (
            "max_length=8&long=windows&prompt=find the red dog in the park",
            "max_length=8 leaves too little room for a text",
        ),
        (
            "max_length=8&long=windows&query_prompt=find the red dog in the",
            "max_length=8 leaves too little room for a text",
        ),
    ],
)
def test_windows_without_room_are_refused(tiny_model, options, words):
    with pytest.raises(InputError, match=words):
        isosent.load(f"hf:{tiny_model('bert')}?{options}")


def test_windows_need_a_length(tiny_model):
    with pytest.raises(InputError, match=r"long=windows needs a max_length, which is none\. Name one"):
        isosent.load(f"hf:{tiny_model('llama')}?long=windows")
