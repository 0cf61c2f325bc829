import numpy as np
import pytest
from safetensors.numpy import load_file
from tampering import replace_part

import isosent
from isosent import L2Normalize, MeanCentering, Whitening, chain
from isosent.errors import InputError
from isosent.numeric.moments import Moments
from isosent.transforms.calibration import Calibration


@pytest.fixture(scope="module")
def queries(texts):
    return [f"Where can I read that {text.lower()}" for text in texts[:200]]


@pytest.fixture(scope="module")
def documents(texts):
    return texts[200:]


def test_queries_and_documents_each_lose_their_own_mean(wordllama, documents, queries):
    model = wordllama.fitted(documents, transform=Whitening(32), queries=queries)
    for vectors in (model.encode_document(documents), model.encode_query(queries)):
        np.testing.assert_allclose(vectors.mean(axis=0), 0, atol=1e-5)


def test_queries_and_documents_share_the_rotation(wordllama, documents, queries):
    model = wordllama.fitted(documents, transform=Whitening(32), queries=queries)
    np.testing.assert_array_equal(model.query_map.weight, model.linear_map.weight)
    both = [model.encode_document(documents), model.encode_query(queries)]
    np.testing.assert_allclose(np.cov(np.vstack(both).T, ddof=0), np.eye(32), atol=1e-4)


def test_a_query_is_nearer_to_its_document_with_a_mean_of_its_own(wordllama, texts):
    queries = [f"Where can I read that {text.lower()}" for text in texts]

    def nearness(model):
        return model.similarity(model.encode_query(queries), model.encode_document(texts)).diagonal().mean()

    one_mean = wordllama.fitted(texts, transform=MeanCentering())
    two_means = wordllama.fitted(texts, transform=MeanCentering(), queries=queries)
    assert nearness(two_means) > nearness(one_mean) + 0.05


def test_without_queries_both_are_encoded_alike(wordllama, texts):
    model = wordllama.fitted(texts, transform=Whitening(8))
    np.testing.assert_array_equal(model.encode_query(texts[:5]), model.encode_document(texts[:5]))


def test_a_second_fit_keeps_the_two_means_apart(wordllama, documents, queries):
    first = wordllama.fitted(documents, transform=MeanCentering(), queries=queries)
    second = first.fitted(documents, transform=Whitening(16))
    np.testing.assert_allclose(second.encode_query(queries).mean(axis=0), 0, atol=1e-4)
    again = second.fitted(documents, transform=MeanCentering(), queries=queries[:50])
    np.testing.assert_allclose(again.encode_query(queries[:50]).mean(axis=0), 0, atol=1e-4)


@pytest.mark.parametrize("with_queries", [False, True])
def test_a_saved_model_gives_the_same_vectors(wordllama, documents, queries, tmp_path, with_queries):
    transform = chain(Whitening(16), L2Normalize())
    model = wordllama.fitted(documents, transform=transform, queries=queries if with_queries else None)
    model = model.with_calibration(Calibration.from_random_pairs(model.encode(documents)))
    model.save(tmp_path / "model")
    loaded = isosent.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.encode_query(queries), model.encode_query(queries))
    np.testing.assert_array_equal(loaded.encode(documents), model.encode(documents))
    few = documents[:9]
    calibrated = loaded.similarity(few, few, calibrated=True)
    np.testing.assert_array_equal(calibrated, model.similarity(few, few, calibrated=True))
    assert loaded.fingerprint == model.fingerprint


def test_the_fingerprint_tells_spaces_apart(wordllama, documents, queries):
    plain = wordllama.fitted(documents, transform=Whitening(16))
    unit = wordllama.fitted(documents, transform=chain(Whitening(16), L2Normalize()))
    two_means = wordllama.fitted(documents, transform=Whitening(16), queries=queries)
    assert len({wordllama.fingerprint, plain.fingerprint, unit.fingerprint, two_means.fingerprint}) == 4


def test_a_model_that_normalizes_gives_unit_vectors_and_zero_rows(wordllama, texts):
    model = wordllama.fitted(texts, transform=chain(Whitening(16), L2Normalize()))
    np.testing.assert_allclose(np.linalg.norm(model.encode(["A dog runs.", ""]), axis=1), [1, 0], atol=1e-6)


def test_nothing_is_fitted_behind_unit_lengths(wordllama, texts):
    model = wordllama.fitted(texts, transform=chain(Whitening(16), L2Normalize()))
    with pytest.raises(InputError, match="after scaling to length 1"):
        model.fitted(texts, transform=Whitening())


def test_a_fit_on_moments_is_a_fit_on_texts(wordllama, texts):
    moments = Moments.from_rows(wordllama.encode(texts))
    found = wordllama.fitted_on_moments(moments, transform=Whitening(8))
    expected = wordllama.fitted(texts, transform=Whitening(8))
    np.testing.assert_allclose(found.encode(texts), expected.encode(texts), atol=1e-6)


def test_a_fit_behind_a_fit_is_a_fit_on_its_vectors(wordllama, texts):
    first = wordllama.fitted(texts, transform=Whitening(16, strength=0.5))
    vectors = first.encode(texts).astype(np.float64)
    found = first.fitted(texts, transform=Whitening(8)).encode(texts)
    np.testing.assert_allclose(found, Whitening(8).fit_transform(vectors), atol=2e-4)


def test_similarity_is_the_cosine_of_texts_or_vectors(wordllama):
    texts = ["A dog runs.", "A cat sleeps.", ""]
    found = wordllama.similarity(texts, wordllama.encode(texts[:2]))
    assert found.shape == (3, 2)
    np.testing.assert_allclose(found.diagonal(), 1)
    np.testing.assert_array_equal(found[2], 0)


def test_similarity_without_a_calibration_says_how_to_make_one(wordllama):
    with pytest.raises(InputError, match=r"Calibration\.from_random_pairs"):
        wordllama.similarity(["a"], ["b"], calibrated=True)


def test_a_change_of_the_query_mean_in_the_folder_is_seen(wordllama, documents, queries, tmp_path):
    wordllama.fitted(documents, transform=MeanCentering(), queries=queries).save(tmp_path / "model")
    wordllama.fitted(documents, transform=MeanCentering()).save(tmp_path / "other")
    (map_of_other,) = (tmp_path / "other").glob("linear_map-*")
    replace_part(tmp_path / "model", "linear_map", load_file(map_of_other))
    with pytest.raises(InputError, match="a file was altered"):
        isosent.load(tmp_path / "model")


def test_moments_of_no_vector_are_refused(wordllama, texts):
    nothing = Moments.empty(256)
    for transform in (Whitening(), "auto"):
        with pytest.raises(InputError, match=r"no vectors, or only zero ones\. At least one that is not zero"):
            wordllama.fitted_on_moments(nothing, transform=transform)
    with pytest.raises(InputError, match=r"no vectors, or only zero ones\. At least one that is not zero"):
        wordllama.fitted_on_moments(
            Moments.from_rows(wordllama.encode(texts)), transform=Whitening(), query_moments=nothing
        )


def test_vectors_of_another_number_than_the_texts_are_refused(wordllama, texts):
    with pytest.raises(InputError, match="expected 480 rows of encoded"):
        wordllama.fitted(texts, transform=Whitening(), encoded=wordllama.encode(texts[:9]))


def test_a_bare_model_refuses_what_is_not_finite(wordllama):
    with pytest.raises(InputError, match=r"row 1 of .*, counted from 0, holds NaN"):
        wordllama.transform(np.where(np.arange(2)[:, None] == 1, np.nan, np.zeros((2, 256))))


def test_queries_are_not_left_alone_without_a_word(wordllama, documents, queries):
    moments, query_moments = (Moments.from_rows(wordllama.encode(lines)) for lines in (documents, queries))
    with pytest.warns(isosent.IsosentWarning, match="vectors of queries stay as they are"):
        wordllama.fitted_on_moments(moments, transform="auto", query_moments=query_moments)


def test_a_role_that_there_is_not_is_refused(wordllama):
    with pytest.raises(InputError, match="role must be one of text, query, document; got 'qery'"):
        wordllama.encode("a", role="qery")
