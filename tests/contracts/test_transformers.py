"""Transformers keep the contract of an encoder: order, batches and padding are invisible."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tiny_models import DIM, TEXTS, save_model

import isosent
from isosent.encoders import transformer
from isosent.errors import FileFormatError, InputError, ModelFolderError, TruncationWarning
from isosent.loading import read_record
from isosent.networks.torch_backend import TorchNetwork

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = ["bert", "gpt2", "t5", "xlnet", "labse"]  # test_transformer_poolings.py has every architecture without padding
POOLINGS = ("mean", "cls", "max", "mean_sqrt_len", "last_token", "weighted_mean", "p_mean")
ATOL = 2e-6


@pytest.fixture(scope="module", params=NAMES)
def folder(request, tiny_model):
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def bert(tiny_model):
    return tiny_model("bert")


def test_padding_and_batches_are_invisible(folder):
    def read(budget):
        encoder = isosent.load(f"hf:{folder}?batch_tokens={budget}").encoder
        return encoder.read(
            TEXTS, [encoder.layer_pooling(layers, pooling) for layers in ("-1", "0,2") for pooling in POOLINGS]
        )

    alone = read(1)  # one text per batch, so no padding
    for budget in (12, 64, 100000):
        for found, expected in zip(read(budget), alone, strict=True):
            np.testing.assert_allclose(found, expected, atol=ATOL * max(1, np.abs(expected).max()))


def test_order_and_duplicates_are_invisible(folder):
    model = isosent.load(f"hf:{folder}")
    vectors = model.encode(TEXTS)
    order = [4, 0, 5, 5, 2, 1, 3, 0, 4, 4]
    np.testing.assert_allclose(model.encode([TEXTS[i] for i in order]), vectors[order], atol=ATOL)


def test_identical_texts_are_computed_once(bert, monkeypatch, progress):
    encoder = isosent.load(f"hf:{bert}?backend=torch").encoder
    rows = []
    monkeypatch.setattr(
        TorchNetwork,
        "__call__",
        lambda self, ids, *masks, real=TorchNetwork.__call__: rows.append(len(ids)) or real(self, ids, *masks),
    )
    vectors = encoder.encode([*TEXTS * 3, ""], progress=progress)
    assert sum(rows) == len(TEXTS)
    assert progress.complete() == [3 * len(TEXTS) + 1]
    np.testing.assert_array_equal(vectors[:6], vectors[6:12])


def test_more_texts_than_a_window_keep_their_rows(bert, monkeypatch):
    monkeypatch.setattr("isosent.encoders.base.WINDOW", 2)
    encoder = isosent.load(f"hf:{bert}?max_length=6").encoder
    texts = [*TEXTS, "", *TEXTS[::-1]]
    with pytest.warns(TruncationWarning, match="6 of 13 texts were cut"):
        vectors = encoder.encode(texts)
    monkeypatch.undo()
    with pytest.warns(TruncationWarning, match="6 of 13 texts were cut"):
        np.testing.assert_allclose(vectors, encoder.encode(texts), atol=ATOL)


def test_an_empty_text_gives_the_zero_row_and_no_text_gives_none(folder):
    model = isosent.load(f"hf:{folder}")
    vectors = model.encode(["a dog", "", "   "])
    assert vectors[0].any()
    assert not vectors[1:].any()
    nothing = model.encode([])
    assert nothing.shape == (0, DIM)
    assert nothing.dtype == np.float32


def test_poolings_are_concatenated_in_the_order_written(bert):
    both = isosent.load(f"hf:{bert}?pooling=max,cls").encode(TEXTS)
    parts = [isosent.load(f"hf:{bert}?pooling={name}").encode(TEXTS) for name in ("max", "cls")]
    np.testing.assert_allclose(both, np.concatenate(parts, axis=1), atol=ATOL)


def test_texts_beyond_the_maximum_are_cut_with_one_warning_that_counts_them(bert):
    encoder = isosent.load(f"hf:{bert}?max_length=6")
    with pytest.warns(TruncationWarning, match="3 of 6 texts were cut at the encoder's maximum of 6 tokens") as seen:
        vectors = encoder.encode(TEXTS)
    assert len(seen) == 1
    np.testing.assert_allclose(vectors[0], encoder.encode(["the man is riding"])[0], atol=ATOL)


def test_texts_that_are_cut_count_as_often_as_they_stand_there(bert):
    with pytest.warns(TruncationWarning, match="7 of 10 texts were cut at the encoder's maximum of 6 tokens"):
        isosent.load(f"hf:{bert}?max_length=6").encode([TEXTS[0]] * 5 + [TEXTS[3]] * 2 + ["a dog"] * 3)


@pytest.mark.parametrize("name", ["bert", "roberta", "mpnet", "distilbert", "electra", "gpt2", "bart"])
def test_the_position_table_sets_the_maximum(tiny_model, name):
    model = isosent.load(f"hf:{tiny_model(name)}")
    assert model.encoder.options["max_length"] == "40"
    with pytest.warns(TruncationWarning, match="were cut"):
        assert np.isfinite(model.encode(["dog " * 100])).all()


@pytest.mark.parametrize("name", ["llama", "xlnet", "t5"])
def test_without_a_position_table_nothing_is_cut_unless_the_tokenizer_says_so(tiny_model, name):
    assert isosent.load(f"hf:{tiny_model(name)}").encoder.options["max_length"] == "none"
    assert isosent.load(f"hf:{tiny_model(name, model_max_length=33)}").encoder.options["max_length"] == "33"


def test_a_saved_model_opens_again_and_gives_the_same_vectors(bert, tmp_path):
    encoder = isosent.load(f"hf:{bert}?layers=0.3*1,0.7*-1&pooling=cls")
    model = encoder.fitted(TEXTS, transform=isosent.Whitening(3))
    model.save(tmp_path / "model")
    again = isosent.load(tmp_path / "model")
    assert again.encoder.options == model.encoder.options
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))


RUNNING = {"batch_tokens": "16", "backend": "torch", "dtype": "float32", "devices": "cpu", "trust_remote_code": "true"}


def test_how_it_runs_is_no_part_of_a_model(bert, tmp_path):
    plain, told = isosent.load(f"hf:{bert}"), isosent.load(f"hf:{bert}", **RUNNING)
    assert told.fingerprint == plain.fingerprint
    assert told.encoder.options == plain.encoder.options
    assert told.encoder.runtime.batch_tokens == 16
    vectors = plain.encode(TEXTS)
    for name, model in (("plain", plain), ("told", told)):
        model.fitted(TEXTS, transform=isosent.Whitening(3), encoded=vectors).save(tmp_path / name)
    written = [json.loads((tmp_path / name / "model.json").read_text()) for name in ("plain", "told")]
    for content in written:
        del content["checksum"], content["fits"][0]["fitted_at"]  # they depend on when it was fitted
    assert written[0] == written[1]


def test_a_saved_model_is_told_how_to_run(bert, tmp_path):
    model = isosent.load(f"hf:{bert}").fitted(TEXTS, transform=isosent.Whitening(3))
    model.save(tmp_path / "model")
    written = "&".join(f"{name}={value}" for name, value in RUNNING.items())
    for again in (
        isosent.load(f"{tmp_path / 'model'}?{written}"),
        isosent.load(tmp_path / "model", **RUNNING),
        isosent.load(f"{tmp_path / 'model'}?encoder=hf:{bert}&batch_tokens=16"),
    ):
        assert again.encoder.runtime.batch_tokens == 16
        assert again.fingerprint == model.fingerprint
        np.testing.assert_allclose(again.encode(TEXTS), model.encode(TEXTS), atol=1e-5)


def test_a_record_is_made_without_computing(bert, monkeypatch):
    monkeypatch.setattr(transformer, "batch_runner", None)
    model = isosent.load(f"hf:{bert}?layers=all&pooling=mean,p_mean")
    assert model.dim == 4 * DIM
    assert model.record.fingerprint == read_record(f"hf:{bert}?layers=0..3&pooling=mean,p_mean").fingerprint


def test_two_threads_encode_at_once(bert):
    encoder = isosent.load(f"hf:{bert}?batch_tokens=32").encoder
    shares = [TEXTS * 5, ["the red man", *TEXTS[::-1]] * 4]
    expected = [encoder.encode(texts) for texts in shares]
    fresh = isosent.load(f"hf:{bert}?batch_tokens=32").encoder
    start = threading.Barrier(4)

    def encode(texts):
        start.wait()
        return [fresh.encode(texts) for _ in range(5)]

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(encode, shares * 2))
    for rounds, right in zip(found, expected * 2, strict=True):
        for vectors in rounds:
            np.testing.assert_allclose(vectors, right, atol=ATOL)


def test_one_thread_at_a_time_is_in_the_tokenizer(bert, monkeypatch):
    """Whether it truncates is a state that all threads share: two at once would cut what is not counted."""
    encoder = isosent.load(f"hf:{bert}?max_length=6").encoder
    inside, most = [], []

    def tokenizer(*args, real=encoder.tokenizer, **how):
        inside.append(1)
        most.append(len(inside))
        encoded = real(*args, **how)
        threading.Event().wait(0.002)
        inside.pop()
        return encoded

    monkeypatch.setattr(encoder, "tokenizer", tokenizer)
    with ThreadPoolExecutor(3) as threads:
        counts = list(threads.map(lambda texts: encoder.tokenize(texts).n_cut, [TEXTS, TEXTS[:2], TEXTS[1:2]] * 4))
    assert counts == [3, 1, 0] * 4
    assert max(most) == 1


def test_a_model_refuses_other_weights(bert, tmp_path):
    encoder = isosent.load(f"hf:{bert}")
    encoder.fitted(TEXTS, transform=isosent.Whitening(3)).save(tmp_path / "model")
    save_model(tmp_path / "other", "bert", seed=1)
    with pytest.raises(ModelFolderError, match="cannot be compared"):
        isosent.load(f"{tmp_path / 'model'}?encoder=hf:{tmp_path / 'other'}")
    assert isosent.load(f"{tmp_path / 'model'}?encoder=hf:{bert}").dim == 3


def test_a_model_with_other_settings_has_another_fingerprint(bert, tmp_path):
    for path in bert.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((bert / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_act": "relu"}))
    assert isosent.load(f"hf:{tmp_path}").fingerprint != isosent.load(f"hf:{bert}").fingerprint


@pytest.mark.parametrize("max_length", ["1", "2", "41", "none"])
def test_a_maximum_that_the_model_has_no_room_for_is_refused(bert, max_length):
    with pytest.raises(InputError, match="max_length must be above 2, its special tokens, and at most 40"):
        isosent.load(f"hf:{bert}?max_length={max_length}")


def test_modules_without_a_counterpart_are_refused(bert, tmp_path):
    (tmp_path / "modules.json").write_text(json.dumps([{"path": "", "type": "sentence_transformers.models.CNN"}]))
    with pytest.raises(FileFormatError, match="got 'CNN'"):
        isosent.load(f"hf:{tmp_path}")
