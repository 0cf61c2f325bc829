import json
import math
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from isosent.errors import InputError
from isosent.numeric.isotropy import mean_cosine_of_sum
from isosent.numeric.similarity import unit_rows
from isosent.report import inspect as inspecting
from isosent.report.inspect import (
    Change,
    Effect,
    RowCounts,
    Survey,
    advise,
    drop_words,
    inspect_texts,
    inspect_vectors,
    paired_change,
    rank_copies,
)
from isosent.report.inspect_page import html_page, inspection_tables
from isosent.transforms.auto import AutoChoice, Candidate, ScoredCandidate

LEAVE, HALF = Candidate(), Candidate("whitening", 0.5, 32)
SCORED = (
    ScoredCandidate(LEAVE, 0.0, 0.0),
    ScoredCandidate(Candidate("mean_projection"), 0.1, 0.2),
    *(
        ScoredCandidate(Candidate("whitening", s, k), s * (1 - s) + k / 100, s)
        for s in (0.0, 0.5, 1.0)
        for k in (16, 32)
    ),
)


@pytest.fixture(params=[LEAVE, HALF, Candidate("mean_projection")], ids=str, scope="module")
def choice(request):
    """What auto chooses is settled, so that the rest of an inspection can be looked at."""
    choice = AutoChoice(request.param, SCORED, "Said so.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspecting, "choose_from_texts", lambda *_, **__: choice)
        patch.setattr(inspecting, "choose_from_moments", lambda *_, **__: choice)
        patch.setattr(inspecting, "COSINE_PAIRS", 4000)
        yield choice


@pytest.fixture(scope="module")
def found(choice, wordllama, texts):
    return inspect_texts(wordllama, texts, source="a <b> & c.txt")


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(700, 6)) * [3, 2, 1, 1, 0.5, 0.1] + 1).astype(np.float32)


def seen_in(rows, seed=0):
    return Survey(rows, seed=seed)


def counts(n_used=1000, dim=10, n_rows=None):
    return RowCounts(n_rows or n_used, n_used, dim, "float32", 0, 0, 0, None)


def test_bad_rows_are_counted_and_left_out(rows):
    rows[3, 2], rows[9, 0], rows[10] = np.nan, -np.inf, 0
    rows[20:25] = rows[19]
    rows[30], rows[31] = [0.0, 1, 0, 0, 0, 0], [-0.0, 1, 0, 0, 0, 0]
    seen = seen_in(rows)
    assert (seen.counts.n_rows, seen.counts.n_used) == (700, 697)
    assert (seen.counts.n_zero, seen.counts.n_non_finite, seen.counts.n_duplicates) == (1, 2, 6)
    good = np.delete(rows, [3, 9, 10], axis=0).astype(np.float64)
    np.testing.assert_allclose(seen.moments.covariance, np.cov(good.T, ddof=0), rtol=1e-9)
    assert np.isfinite(seen.sample).all()


def test_the_figures_are_those_of_the_whole_array(rows):
    seen = seen_in(rows)
    figures = seen.figures()
    exact, variances = rows.astype(np.float64), rows.astype(np.float64).var(axis=0)
    lengths = np.linalg.norm(exact, axis=1)
    assert figures.mean_cosine == pytest.approx(
        mean_cosine_of_sum(unit_rows(rows.astype(float)).sum(axis=0), len(rows)), abs=1e-12
    )
    assert figures.relative_mean_norm == pytest.approx(np.linalg.norm(exact.mean(axis=0)) / lengths.mean(), abs=1e-9)
    assert figures.top_dimension_share == pytest.approx(variances.max() / variances.sum(), abs=1e-9)
    values = np.linalg.eigvalsh(np.cov(exact.T))
    assert figures.top_axis_share == pytest.approx(values[-1] / values.sum(), abs=1e-9)
    units = exact / lengths[:, None]
    every = (units @ units.T)[np.triu_indices(700, 1)]
    assert figures.cosine_sd == pytest.approx(every.std(), abs=0.01)
    assert figures.cosine_p95 == pytest.approx(np.quantile(every, 0.95), abs=0.01)


def test_how_the_rows_come_in_blocks_does_not_matter(rows, monkeypatch):
    whole = seen_in(rows)
    monkeypatch.setattr(inspecting, "_BLOCK_ROWS", 11)
    parts = seen_in(rows)
    assert whole.counts == parts.counts
    np.testing.assert_array_equal(whole.sample, parts.sample)
    np.testing.assert_allclose(whole.unit_sum, parts.unit_sum)
    np.testing.assert_allclose(whole.moments.scatter, parts.moments.scatter)


def test_the_sample_is_bounded_and_drawn_by_the_seed(rows, monkeypatch):
    monkeypatch.setattr(inspecting, "SAMPLE_ROWS", 50)
    first, again, other = seen_in(rows), seen_in(rows), seen_in(rows, seed=1)
    assert first.sample.shape == (50, 6)
    np.testing.assert_array_equal(first.sample, again.sample)
    assert (first.sample != other.sample).any()
    assert first.counts.n_used == 700


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8])
def test_every_number_type_is_looked_at(dtype):
    rows = np.random.default_rng(0).integers(-9, 9, size=(90, 4)).astype(dtype)
    seen = seen_in(rows)
    assert seen.counts.dtype == np.dtype(dtype).name
    kept = rows[rows.any(axis=1)].astype(np.float64)
    np.testing.assert_allclose(seen.moments.mean, kept.mean(axis=0))


def test_about_three_words_in_ten_are_dropped_and_never_all():
    texts = [" ".join(map(str, range(100)))] * 50 + ["word"] * 50 + ["", "   "]
    augmentations = drop_words(texts, seed=0)
    assert np.mean([len(copy.split()) for copy in augmentations[:50]]) == pytest.approx(70, abs=3)
    assert all(copy for copy in augmentations[50:100])
    assert augmentations[100:] == ["", ""]
    assert augmentations == drop_words(texts, seed=0) != drop_words(texts, seed=1)


def test_a_text_without_spaces_loses_characters():
    (copy,) = drop_words(["我们今天去公园散步然后回家吃饭"], seed=0)
    assert 0 < len(copy) < 15
    assert " " not in copy


def test_pairs_are_ranked_as_roc_auc_does():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(60, 5))
    second = first + rng.normal(size=(60, 5))
    found, ranked = rank_copies(first, second)
    cosines = (first @ second.T) / np.outer(np.linalg.norm(first, axis=1), np.linalg.norm(second, axis=1))
    assert ranked.mean() == pytest.approx(roc_auc_score(np.eye(60).ravel(), cosines.ravel()), abs=1e-12)
    np.testing.assert_array_equal(found, cosines.argmax(axis=1) == np.arange(60))


def test_the_interval_is_that_of_a_mean():
    rng = np.random.default_rng(0)
    before = rng.normal(size=800)
    after = before + rng.normal(loc=0.1, scale=0.5, size=800)
    change = paired_change(before, after, seed=0)
    error = 1.96 * (after - before).std() / math.sqrt(800)
    assert change.low == pytest.approx(change.difference - error, abs=0.004)
    assert change.high == pytest.approx(change.difference + error, abs=0.004)
    assert change == paired_change(before, after, seed=0)


GAIN, LOSS, UNCLEAR = Change(0.5, 0.6, 0.05, 0.15), Change(0.5, 0.4, -0.15, -0.05), Change(0.5, 0.5, -0.1, 0.1)


@pytest.mark.parametrize(
    ("chosen", "nearest", "ranked", "words"),
    [
        (
            HALF,
            GAIN,
            GAIN,
            "Fit whitening (strength 0.5, 32 dimensions): it finds the nearest held-out text 10.0 points "
            "more often and separates held-out pairs 10.0 points better.",
        ),
        (HALF, UNCLEAR, GAIN, "Fit whitening"),
        (
            HALF,
            GAIN,
            UNCLEAR,
            "Fit whitening (strength 0.5, 32 dimensions): it finds the nearest held-out text 10.0",
        ),
        (HALF, GAIN, LOSS, "Test whitening"),
        (HALF, LOSS, GAIN, "Test whitening"),
        (HALF, UNCLEAR, UNCLEAR, "Leave these vectors alone: auto would choose whitening"),
        (HALF, LOSS, LOSS, "Leave these vectors alone: auto would choose whitening"),
        (
            HALF,
            LOSS,
            UNCLEAR,
            "Leave these vectors alone: auto would choose whitening (strength 0.5, 32 dimensions), which finds the "
            "nearest held-out text 10.0 points less often.",
        ),
        (
            LEAVE,
            GAIN,
            LOSS,
            "Leave these vectors alone: full whitening would separate held-out pairs 10.0 points worse",
        ),
        (
            LEAVE,
            LOSS,
            UNCLEAR,
            "Leave these vectors alone: full whitening would find the nearest held-out text 10.0 points less",
        ),
        (LEAVE, UNCLEAR, UNCLEAR, "Leave these vectors alone: auto expects no gain"),
        (
            LEAVE,
            GAIN,
            GAIN,
            "Auto would leave these vectors alone, but in this test full whitening would find the nearest held-out "
            "text 10.0 points more often and separate held-out pairs 10.0 points better: try it on your own pairs.",
        ),
    ],
)
def test_the_advice_follows_the_measured_effect(chosen, nearest, ranked, words):
    label = "full whitening" if chosen == LEAVE else "what was chosen"
    sentence = advise(counts(), AutoChoice(chosen, SCORED, ""), Effect(label, 500, nearest, ranked))
    assert sentence.startswith(words)
    assert sentence.endswith(".")


def test_the_advice_says_when_nothing_was_measured_and_when_rows_are_few():
    choice = AutoChoice(HALF, SCORED, "")
    assert "could not be measured" in advise(counts(), choice, None, kind="vectors")
    assert "only 0.5 rows per dimension" in advise(counts(5, 10), choice, None, kind="vectors")
    assert advise(counts(3), None, None).startswith("Nothing can be said yet: 3 usable texts are too few")


def test_an_inspection_of_texts_is_the_same_every_time(found, wordllama, texts):
    assert found == inspect_texts(wordllama, texts, source=found.source)


def test_an_inspection_is_plain_json(found, choice):
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert document["choice"]["chosen"] == str(choice.chosen)
    assert document["effect"]["label"] == found.after.label
    assert document["counts"]["rows_per_dim"] == pytest.approx(480 / 256)
    assert len(document["eigenvalues"]) == 256
    assert sum(document["before"]["cosine_shares"]) == pytest.approx(1)


def test_the_effect_of_the_choice_is_measured_on_texts_it_was_not_fitted_on(choice, wordllama, texts, monkeypatch):
    seen = []
    encode = type(wordllama).encode
    monkeypatch.setattr(type(wordllama), "encode", lambda *a, **k: seen.append(a[1]) or encode(*a, **k))
    effect = inspect_texts(wordllama, [*texts, *texts, ""]).effect
    assert effect.n_texts == 240
    assert [len(listed) for listed in seen] == [961, 240, 240]


def test_too_few_texts_get_figures_and_no_choice(choice, wordllama):
    found = inspect_texts(wordllama, ["one text", "another", ""])
    assert found.choice is found.effect is found.after is None
    assert found.counts.n_zero == 1
    assert found.advice.startswith("Nothing can be said yet")
    assert "<h1>Nothing can be said yet" in html_page(found)
    assert len(inspection_tables(found)) == 2


@pytest.mark.parametrize(
    "rows", [np.ones((50, 3)), np.zeros((50, 3)), np.full((50, 3), np.nan)], ids=["equal", "zero", "nan"]
)
def test_vectors_that_do_not_vary_are_described_and_not_judged(rows):
    found = inspect_vectors(rows)
    assert found.choice is None
    json.dumps(found.to_json(), allow_nan=False)
    assert "<h1>Nothing can be said yet" in html_page(found)


def test_equal_vectors_are_called_equal_and_not_too_few():
    assert "all 200 usable vectors are equal" in inspect_vectors(np.ones((200, 4))).advice


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30])
def test_the_size_of_the_rows_does_not_change_figures_of_directions(rows, scale):
    found = inspect_vectors(rows.astype(np.float64) * scale).before
    expected = inspect_vectors(rows.astype(np.float64)).before
    for name in ("mean_cosine", "relative_mean_norm", "cosine_sd"):
        assert getattr(found.figures, name) == pytest.approx(getattr(expected.figures, name), rel=1e-9)


def test_percentiles_of_tied_cosines_are_shares_of_the_pairs_drawn():
    found = inspect_vectors(np.eye(64)[np.random.default_rng(0).integers(64, size=500)])
    np.testing.assert_allclose(found.before.percentiles, 1 - 1 / 64, atol=0.003)


def test_vectors_have_no_effect_and_say_why(choice, rows):
    found = inspect_vectors(np.repeat(rows, 6, axis=1) + np.random.default_rng(1).normal(size=(700, 36)))
    assert found.effect is None
    assert "do not tell which of them belong together" in found.effect_note
    assert found.model is None


def test_an_array_of_the_wrong_shape_is_refused():
    with pytest.raises(InputError, match="must be 2-D"):
        inspect_vectors(np.ones(5))


def test_a_list_of_vectors_is_taken_for_an_array(rows):
    assert inspect_vectors(rows[:50].tolist()).counts.n_rows == 50
    with pytest.raises(InputError):
        inspect_vectors(["no", "vectors"])


def test_the_percentiles_rise_with_the_cosine(found):
    for stage in (found.before, found.after):
        assert (np.diff(stage.percentiles) >= 0).all()
        assert 0 < stage.percentiles[0] < stage.percentiles[-1] <= 1


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


def test_the_page_stands_alone_and_is_well_formed(found):
    text = html_page(found)
    page = Page(text)
    assert page.open == []
    assert {"script", "link", "img", "iframe"}.isdisjoint({tag for tag, _ in page.tags})
    assert not re.search(r"https?:|url\(|@import|\bsrc=|\bhref=", text)
    assert "a <b> & c.txt" in page.words
    assert found.advice in page.words
    for scheme in ("color-scheme: light dark", "@media print", "max-width: 560px"):
        assert scheme in text


def test_every_figure_is_named_and_keeps_within_its_frame(found):
    figures = [svg for svg in re.findall(r"<svg.*?</svg>", html_page(found)) if 'role="img"' in svg]
    assert len(figures) == 6
    for figure in figures:
        root = ET.fromstring(figure)
        named = {root.find("title").get("id"), root.find("desc").get("id")}
        assert root.get("role") == "img"
        assert set(root.get("aria-labelledby").split()) == named
        assert root.find("title").text
        assert root.find("desc").text
        _, _, width, height = map(float, root.get("viewBox").split())
        for points in (element.get("points") for element in root.iter() if element.get("points")):
            for x, y in (point.split(",") for point in points.split()):
                assert 0 <= float(x) <= width
                assert 0 <= float(y) <= height


def test_the_dot_of_the_variance_lies_on_its_curve(found):
    (figure,) = re.findall(r'<svg[^>]*"cumulative-t.*?</svg>', html_page(found))
    x, y = map(float, re.search(r'<circle[^>]* cx="([\d.]+)" cy="([\d.]+)"', figure).groups())
    (line,) = re.findall(r'<polyline[^>]* stroke="var\(--before\)"[^>]* points="(.*?)"', figure)
    assert (x, y) in [tuple(map(float, point.split(","))) for point in line.split()]


def test_the_chosen_width_is_marked_where_there_is_one(found, choice):
    marked = html_page(found).count("chosen: k = 32")
    assert marked == (2 if choice.chosen == HALF else 0)


def test_the_tables_hold_every_figure(found):
    tables = inspection_tables(found)
    names = [cell for table in tables for cell in table.columns[0].cells]
    for name in ("rows (N)", "exact duplicates", "IsoScore", "uniformity", "participation ratio (dimensions)", "0.5"):
        assert name in names
