"""Duplicates by their words: small changes are found, and what differs in one fact is no duplicate."""

from pathlib import Path

import numpy as np
import pytest

from isosent.search import find_duplicates
from isosent.search.wording import Difference, Wordings

CONTRASTS = [line.split("|")[1:] for line in (Path(__file__).parent / "contrasts.txt").read_text("utf-8").splitlines()]
# pairs of texts that say the same
CHANGED = [
    ("Where is my new card?", "Where is my new card? Thanks."),
    ("Where is my new card?", "Hello, where is my new card"),
    ("Where is my new card?", "WHERE IS MY NEW CARD?"),
    ("Where is my new card?", "Please where is  my new card ..."),
    ("My payment has been declined", "My payment has been delcined"),
    ("Why doesn't my phone work?", "Why does not my phone work"),
    ("I can't open the account", "I cannot open the account"),
    ("I ca n't open my friend 's account , n't", "I can't open my friend's account, not"),  # cut as in treebanks
    ("It 's what they 're doing here", "It is what they are doing here"),
    ("Is there a charge for the transfer", "is there a charge for the transfers"),
    ("Thank you, where do I find the code?", "Where do I find the code?"),
    ("Wo ist meine Karte?", "Hallo, wo ist meine Karte? Danke"),
    ("Où est ma carte ?", "Bonjour, où est ma carte ? Merci"),
]


def differences(pairs):
    """How the texts of each pair differ, among all of them."""
    wordings = Wordings([text for pair in pairs for text in pair])
    return [wordings.difference(2 * number, 2 * number + 1) for number in range(len(pairs))]


def group_of(found):
    return {row: number for number, rows in enumerate(found.groups) for row in rows}


@pytest.mark.parametrize("rate", [0.01, 0.2])
def test_texts_that_differ_in_one_fact_are_in_no_group(wordllama, texts, rate):
    listed = [*texts, *(text for pair in CONTRASTS for text in pair)]
    groups = group_of(find_duplicates(listed, wordllama, false_positives=rate))
    first = np.arange(len(texts), len(listed), 2)
    joined = [listed[row] for row in first if row in groups and groups[row] == groups.get(row + 1)]
    assert joined == []
    assert len(first) > 180


@pytest.mark.parametrize("n_others", [0, 300])
def test_small_changes_are_found(wordllama, texts, n_others):
    for original, copy in CHANGED:
        listed = [original, copy, "My payment has been late", "No payment has been declined", *texts[:n_others]]
        groups = group_of(find_duplicates(listed, wordllama, false_positives=0.001))
        assert groups.get(0, -1) == groups.get(1, -2), copy


def test_a_small_change_is_found_whatever_the_vectors_say():
    vectors = np.random.default_rng(0).normal(size=(2, 8))
    found = find_duplicates(["The invoice is late", "the invoice is late."], vectors=vectors)
    assert found.groups == ((0, 1),)


def test_texts_of_a_group_are_in_no_contrast_with_each_other():
    # each is near the first one, which has no color
    listed = ["I have lost my card", "I have lost my red card", "I have lost my blue card", "I have lost my Red card"]
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(300, 16))
    vectors[:4] = vectors[0] + 1e-3 * rng.normal(size=(4, 16))
    letters = [chr(ord("a") + number) for number in range(20)]
    others = [f"{one}x {other}x" for one in letters for other in letters][:296]
    groups = [set(rows) for rows in find_duplicates([*listed, *others], vectors=vectors).groups]
    assert all(not {1, 2} <= rows and not {2, 3} <= rows for rows in groups)
    assert any(len(rows & {0, 1, 2, 3}) >= 2 for rows in groups)


def test_contrasts_are_told_apart_in_large_groups():
    vectors = np.random.default_rng(0).normal(size=(400, 16))
    vectors[:100] = vectors[0]
    colors = ["red", "blue"]
    names = [f"{chr(97 + row // 20)}q{chr(97 + row % 20)}" for row in range(400)]
    listed = [f"The {colors[row % 2]} car is here" + "!" * row for row in range(100)] + names[100:]
    found = find_duplicates(listed, vectors=vectors)
    assert sorted(found.groups) == [tuple(range(0, 100, 2)), tuple(range(1, 100, 2))]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("Anna paid Peter", "Anna payed Peter", Difference.CONTRAST),  # nobody knows whether it is a word
        ("Anna payed Peter", "Peter paid Anna", Difference.CONTRAST),
        ("Peter paid Anna", "Anna paid Peter yesterday", Difference.CONTRAST),
        ("Anna, call me back now", "Peter, call me back now", Difference.CONTRAST),
        ("The internet rate rose", "The interest rate rose", Difference.CONTRAST),
        ("Sign the contract", "Sign the contact", Difference.CONTRAST),
        ("The rate is 5%", "The rate is 5", Difference.CONTRAST),
        ("It takes 30MB", "It takes 30 MB", Difference.SMALL),
        ("Sort a list in C#", "Sort a list in C", Difference.CONTRAST),
        ("Ich schalte das Licht ein", "Ich schalte das Licht aus", Difference.CONTRAST),
        ("Where is my card", "Where is my new card", Difference.ADDED),
        ("Call me back now", "Anna, call me back now", Difference.APART),
        ("I have paid the bill", "I have paid the bill. Any ideas?", Difference.APART),
        ("The code is wrong", "The code is wrong. Twice!", Difference.CONTRAST),
        ("How do I reset the code?", "How can I reset the code?", Difference.OTHER),
        ("", "", Difference.SMALL),
        ("", "one", Difference.OTHER),
        ("!", "?", Difference.SMALL),
        ("\u0e44\u0e21\u0e48\u0e14\u0e35", "\u0e14\u0e35", Difference.CONTRAST),  # Thai: not good, good
        ("\uff11\uff10 yen", "10 yen", Difference.SMALL),  # full-width digits
    ],
)
def test_differences_of_pairs(first, second, expected):
    assert differences([(first, second)]) == differences([(second, first)]) == [expected]


def test_a_misspelling_is_told_by_the_other_texts():
    others = ["The contract is signed", "the contract ends", "my contact is Anna", "a contact in Rome", "one contact"]
    wordings = Wordings(["Sign the contract", "Sign the contact", "Sign the contrct", "contract", *others])
    assert wordings.difference(0, 1) == Difference.CONTRAST
    assert wordings.difference(0, 2) == Difference.SMALL


def test_every_misspelling_in_a_long_text_is_found():
    letters = "bcdfghklmnprst"
    words = [
        f"{a}{b}o{c}a{a}{d}" for a, b, c, d in zip(*(letters[n:] + letters[:n] for n in (0, 3, 5, 7)), strict=True)
    ]
    original = " ".join(words)
    for at in range(1, 6):
        changes = (
            lambda word, at=at: word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            lambda word, at=at: word[:at] + word[at + 1 :],
            lambda word, at=at: f"{word[:at]}x{word[at + 1 :]}",
            lambda word: f"{word}ing",
        )
        copies = [" ".join(map(change, words)) for change in changes]
        wordings = Wordings([*[original] * 5, *copies])
        assert [wordings.difference(0, row) for row in range(5, 9)] == [Difference.SMALL] * 4


def test_each_word_counts_as_often_as_it_is_written():
    pairs = [("tea tea tea tea now", "tea tea tea now"), ("tea tea now", "tea tea tea tea tea now")]
    assert differences(pairs) == [Difference.ADDED, Difference.OTHER]
