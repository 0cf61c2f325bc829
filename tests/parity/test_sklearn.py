"""A model as the first step of a scikit-learn pipeline, and as that of BERTopic."""

import pickle
from itertools import product

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import isosent
from isosent import Whitening
from isosent.compat.sklearn import SentenceVectorizer
from isosent.errors import InputError, InputTypeError


@pytest.fixture(scope="module")
def labels(texts):
    """Two classes that the vectors tell apart: long and short texts."""
    lengths = np.array([len(text) for text in texts])
    return lengths > np.median(lengths)


@pytest.mark.parametrize("kind", [list, np.array, lambda texts: np.array(texts, object), pd.Series])
def test_texts_of_any_kind_have_the_vectors_of_the_model(wordllama, texts, kind):
    vectors = SentenceVectorizer(wordllama).fit_transform(kind(texts[:9]))
    assert_array_equal(vectors, wordllama.encode(texts[:9]))


def test_what_is_fitted_is_what_the_model_fits(wordllama, texts):
    fitted = SentenceVectorizer(wordllama, "whitening", n_components=8).fit(texts)
    vectors = wordllama.encode(texts).astype(float)
    centered = vectors - vectors.mean(axis=0)
    values, axes = np.linalg.eigh(centered.T @ centered / len(texts))
    expected = centered @ axes[:, -8:] / np.sqrt(values[-8:])  # by hand, but for the order and the signs of axes
    assert np.abs(fitted.transform(texts)) == pytest.approx(np.abs(expected[:, ::-1]), rel=1e-3, abs=1e-3)
    assert SentenceVectorizer("wordllama?weighting=sif").fit(texts).model_.encoder.corpus is not None
    with pytest.raises(NotFittedError):
        SentenceVectorizer(wordllama).transform(texts)


def test_a_clone_shares_the_model_and_keeps_the_settings(wordllama, texts):
    vectorizer = SentenceVectorizer(wordllama, Whitening(4))
    copy = clone(vectorizer).set_params(vector_transform__n_components=5)
    assert copy.model is wordllama
    assert (copy.fit_transform(texts).shape[1], vectorizer.fit_transform(texts).shape[1]) == (5, 4)
    assert vectorizer.get_params(deep=False) == {
        "model": wordllama,
        "vector_transform": vectorizer.vector_transform,
        "n_components": None,
    }
    again = pickle.loads(pickle.dumps(vectorizer))
    assert_array_equal(again.transform(texts[:9]), vectorizer.transform(texts[:9]))


def test_a_search_over_its_parameters_fits_each_of_them_without_the_held_out_texts(wordllama, texts, labels):
    steps = make_pipeline(SentenceVectorizer(wordllama), LogisticRegression())
    grid = {
        "sentencevectorizer__vector_transform": ["whitening", "principal_components"],
        "sentencevectorizer__n_components": [2, 16],
    }
    folds = StratifiedKFold(2)
    search = GridSearchCV(steps, grid, cv=folds, error_score="raise").fit(pd.Series(texts), labels)
    expected = []
    for n_components, transform in product([2, 16], ["whitening", "principal_components"]):
        scores = []
        for train, test in folds.split(texts, labels):
            fitted = wordllama.fitted([texts[row] for row in train], transform, settings={"n_components": n_components})
            vectors = fitted.encode(texts)
            scores.append(LogisticRegression().fit(vectors[train], labels[train]).score(vectors[test], labels[test]))
        expected.append(np.mean(scores))
    assert search.cv_results_["mean_test_score"] == pytest.approx(expected)
    assert len(set(expected)) > 1


def test_columns_have_names_and_rows_keep_their_index(wordllama, texts):
    table = pd.DataFrame({"title": texts[:9], "year": range(9)}, index=[f"r{row}" for row in range(9)])
    frame = SentenceVectorizer(wordllama, "truncate", 2).set_output(transform="pandas").fit_transform(table.title)
    assert [*frame.columns] == ["sentencevectorizer0", "sentencevectorizer1"]
    assert [*frame.index] == [*table.index]
    both = make_column_transformer((SentenceVectorizer(wordllama), "title"), ("passthrough", ["year"]))
    assert both.fit_transform(table).shape == (9, 257)


@pytest.mark.filterwarnings("ignore:Can't test estimator:sklearn.exceptions.SkipTestWarning")
def test_it_passes_the_checks_that_scikit_learn_has_for_texts(wordllama):
    results = check_estimator(SentenceVectorizer(wordllama), on_skip=None)
    assert {result["status"] for result in results} == {"passed"}
    assert "check_estimator_cloneable" in {result["check_name"] for result in results}


@pytest.mark.parametrize(
    ("texts", "error", "advice"),
    [
        (pd.DataFrame({"title": ["a cat", "a dog"]}), InputTypeError, "one column"),
        (np.array([["a cat"], ["a dog"]], object), InputTypeError, "ravel"),
        (["a cat", None], InputTypeError, "row 1"),
        ("a cat", InputTypeError, r"\[text\]"),
        ([], InputError, "no texts"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(wordllama, texts, error, advice):
    with pytest.raises(error, match=rf"SentenceVectorizer.*{advice}"):
        SentenceVectorizer(wordllama).fit(texts)


def test_bertopic_takes_a_pipeline(wordllama, texts):
    """As `select_backend` of BERTopic 0.17 and its `SklearnEmbedder` do, which need no BERTopic here."""
    pipeline = make_pipeline(SentenceVectorizer(wordllama))
    assert isinstance(pipeline, Pipeline)  # all that BERTopic asks
    with pytest.raises(NotFittedError):
        pipeline.transform(texts[:3])  # then it fits
    assert_array_equal(pipeline.fit_transform(texts[:9]), wordllama.encode(texts[:9]))
    assert_array_equal(pipeline.transform(["word"]), wordllama.encode(["word"]))  # of a topic


def test_bertopic_itself_takes_a_pipeline(wordllama, texts):
    backend = pytest.importorskip("bertopic.backend._utils").select_backend
    chosen = backend(make_pipeline(SentenceVectorizer(wordllama)))
    assert_array_equal(chosen.embed_documents(texts[:9]), wordllama.encode(texts[:9]))
    assert_array_equal(chosen.embed_words(["word"]), isosent.load("wordllama").encode(["word"]))
