import pytest

from isosent.evaluation.overlap import count_overlap, plain_form
from isosent.evaluation.sts import read_sts, sts_task

LONG = "the committee of ministers met in the old town hall on a rainy day in early spring"


def counts_of(corpus, *pairs):
    return count_overlap(corpus, {"T": pairs})["T"]


def test_texts_are_counted_by_how_closely_they_occur():
    found = counts_of(
        ["a cat sat", "A DOG, ran!", f"yesterday, {LONG}"], ("a cat sat", "a dog ran"), (LONG, "a bird sang")
    )
    assert found == {"n_texts": 4, "n_exact": 1, "n_same": 2, "n_near": 3, "n_items": 2, "n_items_same": 1}


def test_a_corpus_without_any():
    found = counts_of(["something else"], ("a cat sat", "a dog ran"))
    assert found == {"n_texts": 2, "n_exact": 0, "n_same": 0, "n_near": 0, "n_items": 1, "n_items_same": 0}
    assert counts_of([], ("a cat sat", "a dog ran")) == found


def test_a_pair_needs_both_its_texts_wherever_they_stand():
    pairs = ("a cat sat", "a dog ran"), ("a cat sat", "a bird sang"), ("a dog ran", "a cat sat")
    found = counts_of(["a dog ran", "", "a cat sat"], *pairs)
    assert (found["n_texts"], found["n_items"], found["n_items_same"]) == (3, 3, 2)


def test_a_task_of_single_texts_counts_every_one():
    task = [(text,) for text in ("a cat sat", "a dog ran", "a cat sat", "a bird sang")]
    found = count_overlap(["A cat sat."], {"T": task})["T"]
    assert (found["n_texts"], found["n_same"]) == (3, 1)
    assert (found["n_items"], found["n_items_same"]) == (4, 2)


def test_every_task_has_its_own_counts():
    tasks = {"one": [("a cat sat", "a dog ran")], "two": [("a cat sat", "a bird sang")]}
    found = count_overlap(["a cat sat", "a dog ran"], tasks)
    assert {name: counts["n_exact"] for name, counts in found.items()} == {"one": 2, "two": 1}


def test_texts_of_one_form_are_all_met():
    found = counts_of(["Go!"], ("go", "Go!"), ("GO", "stay"))
    assert (found["n_exact"], found["n_same"]) == (1, 3)


def test_the_corpus_is_gone_through_once():
    assert counts_of((text for text in ["a cat sat"]), ("a cat sat", "a dog ran"))["n_exact"] == 1


@pytest.mark.parametrize(
    ("line", "is_near"),
    [
        (LONG, True),
        (f"it is said that {LONG} and left again", True),
        (LONG.replace("rainy", "sunny"), True),  # 3 of 15 trigrams are others
        (LONG.replace("ministers", "elders").replace("rainy", "sunny"), False),
        (" ".join(reversed(LONG.split())), False),
        (LONG[: len(LONG) // 2], False),
    ],
)
def test_near_is_four_fifths_of_the_trigrams(line, is_near):
    assert counts_of([line], (LONG, "a cat sat"))["n_near"] == int(is_near)


def test_short_texts_are_not_looked_for_nearly():
    short = "a man is playing a big guitar"
    assert counts_of([f"look how {short}"], (short, "a cat sat"))["n_near"] == 0
    assert counts_of([f"look how {short} today"], (f"{short} today", "a cat sat"))["n_near"] == 1


def test_near_texts_are_those_that_a_plain_search_finds(texts):
    texts = texts[:160]

    def grams(text):
        words = plain_form(text).split()
        return {tuple(words[start : start + 3]) for start in range(len(words) - 2)}

    corpus = [f"{text} {other}" for text, other in zip(texts[::3], texts[1::3], strict=False)] + list(texts[2::5])
    wanted = [" ".join(text.split()[1:]) for text in texts]
    expected = sum(
        plain_form(text) in map(plain_form, corpus)
        or (
            len(plain_form(text).split()) >= 8
            and any(len(grams(text) & grams(line)) >= 0.8 * len(grams(text)) for line in corpus)
        )
        for text in set(wanted)
    )
    found = count_overlap(corpus, {"T": [(text, text) for text in wanted]})["T"]
    assert found["n_near"] == expected > found["n_same"]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("  Two\t spaces ", "two spaces"),
        ("state-of-the-art, isn't it?", "state of the art isn t it"),
        ("\uff21\uff22\u3000\ufb01n", "ab fin"),  # full width, ligature
        ("Stra\u00dfe", "strasse"),
        ("na\u00efve", "na\u00efve"),
        ("nai\u0308ve", "na\u00efve"),  # a combining mark
        ("\u0915\u093f\u0924\u093e\u092c", "\u0915\u093f\u0924\u093e\u092c"),  # vowel signs of Devanagari stay
        ("$5 + 3", "5 3"),
        ("?!", "?!"),
        ("", ""),
    ],
)
def test_the_plain_form_of_a_text(text, form):
    assert plain_form(text) == form


def test_pairs_of_sts_are_its_items(write_stsb, tmp_path):
    (task,) = read_sts(write_stsb(tmp_path, n_pairs=9))
    (subset,) = task.subsets
    found = count_overlap([subset.first[0], subset.second[0], subset.first[1]], {"STSB": sts_task(task).items})["STSB"]
    assert (found["n_items"], found["n_items_same"]) == (9, 1)
