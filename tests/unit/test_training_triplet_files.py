from pathlib import Path

import pytest

from isosent.errors import FileFormatError, InputError
from isosent.io.tables import open_table
from isosent.training.data import LabelledPairs, SourceFile, derive_pairs, derive_triplets, read_triplets

COLUMNS = {"anchor": "anchor", "positive": "positive", "negative": "negative"}
E, C, N = "entailment", "contradiction", "neutral"


def nli(*rows):
    first, second, labels = ([row[place] for row in rows] for place in range(3))
    columns = {"sentence1": "premise", "sentence2": "hypothesis", "label": "label"}
    return LabelledPairs(first, second, labels, {"without a label": 2}, SourceFile(Path("a.jsonl"), 9, columns))


def triplets_of(found):
    return list(zip(*found.columns.values(), strict=True))


def read(tmp_path, content, columns=COLUMNS):
    (tmp_path / "a.csv").write_text(content)
    with open_table(tmp_path / "a.csv", short_rows=True) as table:
        return read_triplets(table, columns)


def test_columns_are_read_by_their_names(tmp_path):
    found = read(tmp_path, "bad,good,text\nc,b,a\n", {"anchor": "text", "positive": "good", "negative": "bad"})
    assert triplets_of(found) == [("a", "b", "c")]
    assert found.source.columns == {"anchor": "text", "positive": "good", "negative": "bad"}


def test_triplets_with_a_text_twice_or_an_empty_one_are_dropped_and_counted(tmp_path):
    found = read(tmp_path, "anchor,positive,negative\na,b,c\na,a,c\na,b,b\na,b,a\na,,c\n")
    assert triplets_of(found) == [("a", "b", "c")]
    assert (dict(found.dropped), found.source.n_rows) == ({"with the same text twice": 3, "with an empty text": 1}, 5)


def test_pairs_of_the_same_text_are_kept(tmp_path):
    found = read(tmp_path, "anchor,positive\na,a\nb,c\n", {"anchor": "anchor", "positive": "positive"})
    assert (triplets_of(found), dict(found.dropped)) == ([("a", "a"), ("b", "c")], {})


def test_ids_that_occur_twice_are_listed(tmp_path):
    rows = "id,anchor,positive,negative\n7,a,b,c\nx,d,e,f\n7,g,h,i\nx,,,\n8,j,k,l\n"
    with pytest.raises(FileFormatError, match=r"id must differ from row to row; 2 occur more than once: 7, x\. Remove"):
        read(tmp_path, rows)
    assert len(triplets_of(read(tmp_path, rows, {"anchor": "id", "positive": "anchor", "negative": "negative"}))) == 4


def test_an_entailment_goes_with_the_contradiction_of_the_same_place():
    of_p = [("p", "e1", E), ("p", "n", N), ("p", "c1", C), ("p", "e2", E), ("p", "c2", C), ("p", "e3", E)]
    of_q = [("q", "c", C), ("q", "e", E)]
    found = derive_triplets(nli(of_p[0], of_q[0], *of_p[1:], of_q[1]))
    assert triplets_of(found) == [("p", "e1", "c1"), ("p", "e2", "c2"), ("q", "e", "c")]
    left = {"without a label": 2, "of another class": 1, "without a counterpart of the same premise": 1}
    assert dict(found.dropped) == left
    assert found.source.columns == {
        "anchor": "premise",
        "positive": "hypothesis (entailment)",
        "negative": "hypothesis (contradiction)",
    }


def test_derived_triplets_are_those_of_a_plain_search(texts):
    rows = [(texts[i % 7], texts[10 + i], (E, C, N)[i * i % 11 % 3]) for i in range(60)]
    expected = []
    for premise in dict.fromkeys(row[0] for row in rows if row[2] != N):
        of = {label: [h for p, h, of_class in rows if p == premise and of_class == label] for label in (E, C)}
        expected += [(premise, of[E][i], of[C][i]) for i in range(min(len(of[E]), len(of[C])))]
    found = derive_triplets(nli(*rows))
    assert triplets_of(found) == expected
    assert 2 * len(expected) + sum(found.dropped.values()) - 2 == len(rows)


def test_a_hypothesis_that_is_the_premise_tells_nothing():
    found = derive_triplets(nli(("p", "p", E), ("p", "c", C)))
    assert triplets_of(found) == []
    assert found.dropped["with the same text twice"] == 1


@pytest.mark.parametrize(("label", "absent"), [(E, C), (C, E)])
def test_triplets_need_both_classes(label, absent):
    with pytest.raises(
        InputError, match=f"must have pairs of entailment and contradiction .*; it has none of {absent}"
    ):
        derive_triplets(nli(("p", "h", label), ("p", "n", N)))


def test_pairs_are_the_entailments():
    found = derive_pairs(nli(("p", "e", E), ("p", "x", "not_entailment"), ("p", "p", E)))
    assert triplets_of(found) == [("p", "e"), ("p", "p")]
    assert dict(found.dropped) == {"without a label": 2, "of another class": 1}
    with pytest.raises(InputError, match="must have pairs of entailment to rank; it has none"):
        derive_pairs(nli(("p", "x", "not_entailment")))
