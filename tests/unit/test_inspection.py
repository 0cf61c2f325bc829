import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest

import isosent
from isosent.errors import InputError
from isosent.io.vectors import open_vectors, source_of
from isosent.jobs import inspect as inspecting
from isosent.jobs.inspect import (
    RowCounts,
    SeparateGroups,
    Survey,
    advise,
    find_groups,
    groups_warning,
    inspect_texts,
    inspect_vectors,
)
from isosent.numeric.moments import Moments
from isosent.numeric.neighbors import neighbor_recall
from isosent.numeric.similarity import unit_rows
from isosent.numeric.spectrum import mean_cosine_of_sum
from isosent.report.inspect_page import html_page, inspection_tables
from isosent.transforms.auto import (
    CLOSER,
    MIXED,
    STRENGTHS,
    AutoChoice,
    Candidate,
    ScoredCandidate,
    choose_from_texts,
    under,
)
from isosent.transforms.base import Auto
from isosent.transforms.groups import separate_groups

LEAVE, HALF = Candidate(), Candidate("whitening", 0.5, 32)
SCORED = (
    ScoredCandidate(LEAVE, 0.3, 0.0, 0.0, 0.0),
    *(ScoredCandidate(Candidate("whitening", g, 32), 0.3 + g / 10, g / 10, g / 20, g / 5) for g in STRENGTHS),
)


@pytest.fixture(params=[LEAVE, HALF], ids=str, scope="module")
def choice(request):
    """What auto chooses is settled, so that the rest of an inspection can be looked at."""
    choice = AutoChoice(request.param, SCORED, "Said so.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspecting, "choose_from_texts", lambda *_, **__: choice)
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
    return Survey(source_of(rows, where="survey"), seed=seed)


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


def test_how_the_rows_come_in_blocks_does_not_matter(rows, tmp_path):
    many = np.tile(rows, (30, 1))  # three blocks of an array, one of a file
    np.save(tmp_path / "v.npy", many)
    parts, whole = seen_in(many), seen_in(open_vectors(tmp_path / "v.npy"))
    assert whole.counts == parts.counts
    np.testing.assert_array_equal(whole.sample, parts.sample)
    np.testing.assert_allclose(whole.unit_sum, parts.unit_sum)
    np.testing.assert_allclose(whole.moments.scatter, parts.moments.scatter)


def test_the_sample_is_bounded_and_drawn_by_the_seed(rows):
    many = np.tile(rows, (30, 1))
    first, again, other = seen_in(many), seen_in(many), seen_in(many, seed=1)
    assert first.sample.shape == (20_000, 6)
    np.testing.assert_array_equal(first.sample, again.sample)
    assert (first.sample != other.sample).any()
    assert first.counts.n_used == 21_000


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.int64, np.uint16])
def test_every_number_type_is_looked_at(dtype):
    rows = np.random.default_rng(0).integers(-9, 9, size=(90, 4)).astype(dtype)
    seen = seen_in(rows)
    assert seen.counts.dtype == np.dtype(dtype).name
    kept = rows[rows.any(axis=1)].astype(np.float64)
    np.testing.assert_allclose(seen.moments.mean, kept.mean(axis=0))


# the advice


def test_the_advice_begins_with_the_verdict_and_says_what_to_look_out_for():
    choice = AutoChoice(HALF, SCORED, "Said so.")
    assert advise(counts(), choice) == "Said so."
    assert advise(counts(5, 10), choice).startswith("Said so. Only 0.5 rows per dimension")
    with_groups = advise(counts(), choice, SeparateGroups(0.25, (0.5, 0.5), 0.0))
    assert with_groups.startswith("Said so. Warning: the rows form two separate groups, 25% and 75%")
    assert advise(counts(3), None).startswith("Nothing can be said yet: 3 usable texts are too few")


def test_inspect_and_fit_give_the_same_verdict(wordllama, texts):
    some = [*texts[:200], *texts[:50]]
    for model in (wordllama, isosent.load("wordllama?weighting=sif")):
        found = inspect_texts(model, some, seed=7)
        assert found.choice.to_json() == model.fitted(some).fits[-1].choice
        assert found.advice.startswith(found.choice.reason)
    vectors = wordllama.encode(texts)
    assert inspect_vectors(vectors).choice.to_json() == wordllama.fitted_on_vectors(vectors).fits[-1].choice


# groups and neighbours


def two_languages(n_rows=600, dim=64, share=0.25, distance=2.0, seed=0):
    rng = np.random.default_rng(seed)
    language = (np.arange(n_rows) < share * n_rows).astype(int)
    rows = rng.normal(size=(n_rows, dim)) + distance * rng.normal(size=(2, dim))[language]
    return rows[rng.permutation(n_rows)]


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5])
def test_two_languages_in_one_set_of_vectors_are_found(share):
    rows = two_languages(share=share)
    groups = find_groups(rows)
    assert groups.share == pytest.approx(share, abs=0.01)
    assert min(groups.cosine_within) > groups.cosine_between + 0.1
    found = inspect_vectors(rows)
    assert found.groups == groups
    assert "two separate groups" in found.advice
    assert "kinds of products" in found.advice
    assert json.loads(json.dumps(found.to_json()))["groups"]["share"] == groups.share


def in_languages(n_languages, *, distance, n_words=40, n_rows=200, dim=32, seed=0):
    """Vectors and texts of several languages: words of one are of no other, and vectors lie a little apart."""
    rng = np.random.default_rng(seed)
    language = np.repeat(np.arange(n_languages), n_rows)
    words = rng.integers(n_words, size=(len(language), 6)) ** 2 // n_words  # some are frequent
    meanings = rng.normal(size=(n_words, dim))
    vectors = meanings[words].mean(axis=1) + distance * rng.normal(size=(n_languages, dim))[language]
    texts = [
        " ".join(f"w{word}x{of}" for word in row) + f" {n}"
        for n, (row, of) in enumerate(zip(words, language, strict=True))
    ]
    return vectors.astype(np.float32), texts, language


def test_texts_show_several_languages_whose_vectors_lie_close_together():
    vectors, texts, language = in_languages(3, distance=0.25)
    assert find_groups(vectors) is None
    groups = find_groups(vectors, texts)
    assert (groups.n_groups, groups.share) == (3, pytest.approx(1 / 3, abs=0.01))
    assert "3 separate groups" in groups_warning(groups)
    assert "kinds of products" not in groups_warning(groups)
    assert "--erase COLUMN" in groups_warning(groups)
    found = separate_groups(vectors, texts)
    assert all(np.bincount(found[language == each]).max() > 190 for each in range(3))
    order = np.random.default_rng(1).permutation(len(texts))
    again = separate_groups(vectors[order], [texts[row] for row in order])
    np.testing.assert_array_equal(again, found[order])


def test_texts_of_one_language_are_one_group_whatever_their_topics():
    vectors, texts, _ = in_languages(3, distance=0.25)
    assert find_groups(vectors, [re.sub(r"x\d", "", text) for text in texts]) is None
    assert find_groups(vectors[:90], texts[:90]) is None
    assert find_groups(vectors, ["." * n for n in range(len(texts))]) is None


def test_auto_chooses_nothing_that_moves_languages_further_apart():
    vectors, texts, language = in_languages(3, distance=0.25)
    vectors += 3.0  # what centering removes: then the languages are what is left
    choice = choose_from_texts(vectors, texts, Auto())
    given = choose_from_texts(vectors, texts, Auto(), groups=language)
    assert given.chosen == choice.chosen
    moments, units = Moments.from_rows(vectors), []
    for rows in under(vectors, moments, [Candidate(), choice.chosen]):
        cosines = unit_rows(rows) @ unit_rows(rows).T
        same = language[:, None] == language
        units.append((cosines[same].mean() - cosines[~same].mean()) / cosines[same].std())
    assert choice.chosen == Candidate() or units[1] < max(CLOSER * units[0], MIXED)
    assert "groups of texts closer together" in choice.reason


def test_auto_helps_no_language_at_the_expense_of_another():
    meanings, texts, language = in_languages(2, distance=0.0)
    noise = np.random.default_rng(0).normal(size=(len(texts), 16))
    one, other = (language == 0)[:, None], (language == 1)[:, None]
    # the noise of one language is in small dimensions, that of the other in large ones
    vectors = np.hstack([one * meanings, other * 0.1 * meanings, one * 0.05 * noise, other * noise]).astype(np.float32)
    others = np.flatnonzero(language == 1)
    alone = choose_from_texts(vectors[others], [texts[row] for row in others], Auto())
    together = choose_from_texts(vectors, texts, Auto(), groups=language)
    assert (alone.chosen.strength, together.chosen.strength) == (1.0, 0.75)
    assert "Strength 1 ranked the texts of one group worse" in together.reason


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n_rows", "dim"), [(600, 32), (100, 2), (300, 768), (40, 768), (20, 256), (12, 1000)])
def test_one_cloud_is_one_group_however_few_its_rows(n_rows, dim, seed):
    rng = np.random.default_rng(seed)
    assert find_groups(rng.normal(size=(n_rows, dim))) is None
    assert find_groups(rng.normal(size=(n_rows, dim)) * 2.0 ** -np.arange(dim) + 1) is None


def test_too_few_or_equal_rows_are_no_groups():
    for n_rows in range(10):
        assert find_groups(two_languages(n_rows)) is None
    assert find_groups(np.ones((100, 3))) is None
    assert find_groups(np.zeros((100, 3))) is None


def test_a_rotation_keeps_all_neighbors_and_a_truncation_some():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 16))
    rotation = np.linalg.qr(rng.normal(size=(16, 16)))[0]
    assert neighbor_recall(rows, rows @ rotation, 100) == 1
    recalls = [neighbor_recall(rows, rows[:, :k], 100) for k in (15, 8, 2)]
    assert 1 > recalls[0] > recalls[1] > recalls[2] > 10 / 500


def test_recall_is_the_share_of_the_nearest_that_stay():
    angles = np.array([0.0, *np.linspace(0.1, 0.5, 20)])
    moved = np.where(np.arange(21) % 2, angles, angles + 1)  # every second neighbour goes far away
    moved[0] = 0
    before, after = (np.stack([np.cos(each), np.sin(each)], axis=1) for each in (angles, moved))
    assert neighbor_recall(before, after, 1) == 0.5


def test_vectors_without_texts_get_the_recall_of_fewer_dimensions(rows):
    wide = np.concatenate([rows - rows.mean(axis=0), 1e-3 * np.random.default_rng(1).normal(size=rows.shape)], axis=1)
    found = inspect_vectors(wide[:, ::-1])
    assert found.model is None
    assert found.choice.chosen == LEAVE
    recalls = {(e.transform, e.center, e.n_components): e.recall for e in found.sizes.rows if e.dtype == "float32"}
    assert recalls["principal_components", False, 6] > 0.95 > recalls["truncate", False, 6]
    assert "Will search get worse?" in html_page(found)
    assert "recall@10" in {name for table in inspection_tables(found) for name in table.columns}
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))["sizes"]
    assert {"float32", "int8", "binary"} < {row["dtype"] for row in document["rows"]}
    assert any(row["is_on_front"] for row in document["rows"])


@pytest.mark.parametrize("n_rows", [9, 109, 110, 111])
def test_few_vectors_are_described_with_or_without_sizes(n_rows):
    found = inspect_vectors(np.random.default_rng(0).normal(size=(n_rows, 4)))
    assert (found.sizes is not None) == (n_rows >= 110)
    assert html_page(found)


# the inspection


def test_an_inspection_of_texts_is_the_same_every_time(found, wordllama, texts):
    assert found == inspect_texts(wordllama, texts, source=found.source)


def test_an_inspection_is_plain_json(found, choice):
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert document["choice"]["chosen"] == str(choice.chosen)
    assert document["advice"] == found.advice
    assert document["sizes"]["n_texts"] == 432
    assert document["counts"]["rows_per_dim"] == pytest.approx(480 / 256)
    assert len(document["eigenvalues"]) == 256
    assert sum(document["before"]["cosine_shares"]) == pytest.approx(1)


def test_too_few_texts_get_figures_and_no_choice(choice, wordllama):
    found = inspect_texts(wordllama, ["one text", "another", ""])
    assert found.choice is found.groups is found.after is None
    assert found.sizes is None
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
    names, more = (
        {cell for table in inspection_tables(found, details=details) for cell in (row.cells[0] for row in table.rows)}
        for details in (False, True)
    )
    assert {"rows (N)", "exact duplicates", "IsoScore", "uniformity", "participation ratio (dimensions)"} <= names
    assert {"0.5", *(str(scored.candidate) for scored in SCORED)} <= more - names
