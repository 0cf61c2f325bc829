import pytest

from isosent.errors import FileFormatError, InputError
from isosent.io.tables import find_columns, open_table
from isosent.training.data import SCORED, read_score_table, scaled_scores

HEADERS = {
    "KorSTS.tsv": ("genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2", "g\tf\ty\t1\t{}\ta\tb"),
    "GLUE.tsv": ("index\tgenre\tfilename\tyear\tsentence1\tsentence2\tscore", "0\tg\tf\ty\ta\tb\t{}"),
    "SICK.txt": ("pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment", "1\ta\tb\t{}\tNEUTRAL"),
    "plain.csv": ("text1,text2,similarity", "a,b,{}"),
}


def write(folder, name, *scores):
    header, row = HEADERS[name]
    path = folder / name
    path.write_text("\n".join([header, *(row.format(score) for score in scores)]))
    return path


def read(path, score_range=None):
    with open_table(path, short_rows=True) as table:
        return read_score_table(table, find_columns(table, SCORED, {}), score_range)


def scaled(path, score_range=None):
    return scaled_scores(read(path, score_range)[0], path)


@pytest.mark.parametrize(
    ("name", "expected"), [("KorSTS.tsv", [0.2, 0.5, 1.0]), ("GLUE.tsv", [0.2, 0.5, 1.0]), ("SICK.txt", [0, 0.375, 1])]
)
def test_known_scales_become_zero_to_one(tmp_path, name, expected):
    path = write(tmp_path, name, "1", "2.5", "5.000")
    pairs, _ = read(path)
    assert scaled(path) == pytest.approx(expected)
    assert pairs.scores.tolist() == [1, 2.5, 5]
    assert (pairs.first, pairs.second) == (("a",) * 3, ("b",) * 3)


def test_the_benchmark_is_read_as_it_is(tmp_path):
    (tmp_path / "sts.csv").write_text('g\tf\ty\t1\t5\t"a\tb\ng\tf\ty\t2\t1.25\tc\td"\te\tf\n')
    pairs, _ = read(tmp_path / "sts.csv")
    assert (pairs.first, pairs.second, scaled(tmp_path / "sts.csv")) == (('"a', "c"), ("b", 'd"'), [1.0, 0.25])


def test_another_scale_must_be_named(tmp_path):
    path = write(tmp_path, "plain.csv", "-1", "0.5", "1")
    with pytest.raises(
        InputError, match=r"range of the scores must be said; those that are there lie in -1 \.\.\. 1\."
    ):
        scaled(path)
    assert scaled(path, (-1, 1)) == [0, 0.75, 1]


@pytest.mark.parametrize(
    ("name", "score", "score_range", "message"),
    [
        (
            "KorSTS.tsv",
            "5.2",
            None,
            r"KorSTS.tsv, line 3: score must lie in 0 \.\.\. 5, the range of the scores; got 5.2",
        ),
        ("SICK.txt", "0.5", None, r"line 3: relatedness_score must lie in 1 \.\.\. 5, .*; got 0.5"),
        ("plain.csv", "1.5", (0, 1), r"line 3: similarity must lie in 0 \.\.\. 1, .*; got 1.5"),
        ("plain.csv", "high", (0, 1), "line 3: similarity must be a number; got 'high'"),
        ("plain.csv", "inf", (0, 1), "line 3: similarity must be a number; got 'inf'"),
        ("plain.csv", "nan", (0, 1), "line 3: similarity must be a number; got 'nan'"),
    ],
)
def test_scores_outside_the_scale_are_told_by_line(tmp_path, name, score, score_range, message):
    with pytest.raises(FileFormatError, match=message):
        read(write(tmp_path, name, "1", score), score_range)


def test_rows_without_score_or_text_are_dropped_and_counted(tmp_path):
    (tmp_path / "a.csv").write_text("s1,s2,score\na,b,1\nc,d,\ne, ,0\nf,g,0\n")
    pairs, source = read(tmp_path / "a.csv", (0, 1))
    assert (pairs.first, scaled(tmp_path / "a.csv", (0, 1))) == (("a", "f"), [1, 0])
    assert dict(pairs.dropped) == {"without a score": 1, "with an empty text": 1}
    assert (source.n_rows, source.score_range) == (4, (0, 1))


def test_nothing_but_rows_without_a_score(tmp_path):
    assert scaled(write(tmp_path, "plain.csv", "", "")) == []
