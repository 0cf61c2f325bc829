"""Community question answering: which related questions ask the same as a new one (SemEval task 3, subtask B)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.parsers.expat import ErrorString

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, InputError, TaskNotFoundError
from isosent.evaluation.result import Items, Measurement
from isosent.evaluation.rte import FIXED_THRESHOLD
from isosent.evaluation.sizes import CANDIDATES, QUESTIONS
from isosent.evaluation.task import Task, TaskEncoder
from isosent.io import bounds
from isosent.io.bounds import decode_utf8, folders_below, read_lines, split_fields
from isosent.io.system import open_to_read
from isosent.numeric.ranking import (
    Ranks,
    average_precision,
    expected_average_precision,
    ranks_by_score,
    reciprocal_rank,
)
from isosent.numeric.similarity import pairwise_cosine

TEXT_PARTS = ("subject+body", "subject", "body")
# Options of `isosent.load` for GEM as its paper (Yang et al. 2019) sets it for this task
GEM_OPTIONS: Mapping[str, str] = {"weighting": "gem", "window": "6", "n_removed": "15", "ranking": "unweighted"}


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A new question, and the related ones that a search engine returned for it."""

    text: str
    candidates: tuple[str, ...]  # the related questions, in the order of the search engine
    relevant: NDArray[np.bool_]  # whether each is labelled PerfectMatch or Relevant


@dataclass(frozen=True, slots=True, eq=False)
class CQASet:
    """The development or test set of one year."""

    name: str  # such as CQA-2016-dev
    questions: tuple[Question, ...]
    files: tuple[Path, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """All questions, the new ones and the related ones of each."""
        return tuple(text for question in self.questions for text in (question.text, *question.candidates))


def cqa_tasks(folder: str | os.PathLike[str], *, text: str = TEXT_PARTS[0]) -> list[Task]:
    """Read the development and test sets."""
    protocol = {
        "similarity": "cosine",
        "text": text,
        # The official scorer does so; the mean over the other questions alone is higher: on the test set of 2017 the
        # search engine's order scores 41.85 by the first convention, and 62.42 by the second
        "no_relevant_candidate": "counts as 0",
        "threshold": FIXED_THRESHOLD,
    }
    return [
        Task(
            name=cqa_set.name,
            kind="cqa",
            texts={"text": cqa_set.texts},
            target_texts=cqa_set.texts,
            items=[(question,) for question in cqa_set.texts],
            score=partial(_measure, cqa_set),
            protocol=protocol,
            files=cqa_set.files,
            sizes={
                QUESTIONS: len(cqa_set.questions),
                CANDIDATES: sum(len(question.candidates) for question in cqa_set.questions),
            },
        )
        for cqa_set in read_cqa(folder, text=text)
    ]


def _measure(cqa_set: CQASet, encode: TaskEncoder, seed: int) -> Measurement:
    cosines = []
    for question in cqa_set.questions:
        candidates = encode(question.candidates)
        cosines.append(pairwise_cosine(np.broadcast_to(encode([question.text]), candidates.shape), candidates))
    relevant = [question.relevant for question in cqa_set.questions]
    # Candidates of equal cosine are ranked as by the search engine
    ranks = [ranks_by_score(scores)[labels] for scores, labels in zip(cosines, relevant, strict=True)]
    searched = [1 + np.flatnonzero(labels) for labels in relevant]  # ranks in the order of the search engine
    random = [expected_average_precision(len(own), len(labels)) for own, labels in zip(searched, relevant, strict=True)]
    precisions, labels = _precisions(ranks), np.concatenate(relevant)
    share = float(labels.mean())
    return Measurement(
        "map",
        {
            "map": float(precisions.mean()),
            "mrr": _mean_reciprocal_rank(ranks),
            "accuracy": float(np.mean((np.concatenate(cosines) > FIXED_THRESHOLD) == labels)),
            "accuracy_majority": max(share, 1 - share),
        },
        Items(precisions),
        {
            "search_engine": {"map": float(_precisions(searched).mean()), "mrr": _mean_reciprocal_rank(searched)},
            "random": {"map": float(np.mean(random))},
            "best": {"map": float(np.mean([is_relevant.any() for is_relevant in relevant]))},
            "n_candidates": len(labels),
            "n_relevant": int(labels.sum()),
            "n_without_relevant": sum(not is_relevant.any() for is_relevant in relevant),
        },
    )


def _precisions(ranks: Sequence[Ranks]) -> NDArray[np.float64]:
    return np.array([average_precision(question_ranks) for question_ranks in ranks])


def _mean_reciprocal_rank(ranks: Sequence[Ranks]) -> float:
    return float(np.mean([reciprocal_rank(question_ranks) for question_ranks in ranks]))


_XML_NAME = re.compile(r"SemEval(\d{4})-Task3-(?:CQA-QL|English)-(dev|test)(?:-input)?\.xml", re.IGNORECASE)
_LABEL_NAME = re.compile(r"SemEval(\d{4})-Task3-CQA-QL-(dev|test)\.xml\.subtaskB\.relevancy", re.IGNORECASE)
_IS_RELEVANT = {"PerfectMatch": True, "Relevant": True, "Irrelevant": False}
_LABELS = {"true": True, "false": False}


def read_cqa(folder: str | os.PathLike[str], *, text: str = TEXT_PARTS[0]) -> tuple[CQASet, ...]:
    """Find and read the development and test sets, anywhere below a folder."""
    root = _check.input_folder(folder).resolve()
    _check.one_of("read_cqa", "text", text, TEXT_PARTS)
    sets, labels = _find(root, _XML_NAME), _find(root, _LABEL_NAME)
    if not sets:
        raise TaskNotFoundError(
            f"{root} holds no questions of SemEval's task 3. They are called "
            "SemEval2016-Task3-CQA-QL-dev.xml or SemEval2016-Task3-CQA-QL-test-input.xml, with the labels of the "
            "test set in SemEval2016-Task3-CQA-QL-test.xml.subtaskB.relevancy."
        )
    return tuple(_read_set(root, name, path, labels.get(name), text) for name, path in sorted(sets.items()))


def _find(root: Path, pattern: re.Pattern[str]) -> dict[str, Path]:
    """Files of a name, by the name of the set; labeled questions rather than those without labels."""
    paths: dict[str, Path] = {}
    for folder, files in folders_below(root):
        for match in filter(None, map(pattern.fullmatch, sorted(files, reverse=True))):
            name, path = f"CQA-{match[1]}-{match[2].lower()}", folder / match[0]
            other = paths.setdefault(name, path)
            if other.parent != folder:
                raise InputError(f"{name} is in two folders: {other} and {path}. Name one of the folders.")
    return paths


class _CandidateText(NamedTuple):
    key: str
    rank: int
    text: str
    question_key: str
    question: str
    relevant: bool | None


def _read_set(root: Path, name: str, path: Path, label_path: Path | None, text: str) -> CQASet:
    candidates = _read_candidates(path, text)
    inline_labels = {candidate.key: candidate.relevant for candidate in candidates}
    if label_path is not None:
        relevant = _matched(path, inline_labels, label_path, _read_labels(label_path))
    elif unlabeled := [key for key, label in inline_labels.items() if label is None]:
        year, part = name.split("-")[1:]
        raise InputError(
            f"{path} has no label for {unlabeled[0]} and {len(unlabeled) - 1} more; the labels must lie in {root} or "
            f"below, as SemEval{year}-Task3-CQA-QL-{part}.xml.subtaskB.relevancy."
        )
    else:
        relevant = {key: bool(label) for key, label in inline_labels.items()}
    if not any(relevant.values()):
        raise FileFormatError(f"{path}: none of its {len(relevant)} candidates is relevant.")
    by_question: dict[str, list[_CandidateText]] = {}
    for candidate in candidates:
        by_question.setdefault(candidate.question_key, []).append(candidate)
    questions = []
    for related in by_question.values():
        related.sort(key=lambda candidate: candidate.rank)
        labels = np.array([relevant[candidate.key] for candidate in related])
        questions.append(Question(related[0].question, tuple(candidate.text for candidate in related), labels))
    return CQASet(name, tuple(questions), (path,) if label_path is None else (path, label_path))


def _read_candidates(path: Path, text: str) -> list[_CandidateText]:
    candidates: dict[str, _CandidateText] = {}
    for original in _parse(path).iter("OrgQuestion"):
        question_key, question = original.get("ORGQ_ID", ""), _text(original, "OrgQ", text)
        for related in original.iter("RelQuestion"):
            key, rank = related.get("RELQ_ID", ""), related.get("RELQ_RANKING_ORDER", "")
            if not question_key or not key or not rank.isdecimal():
                raise FileFormatError(
                    f"{path}: a question has ORGQ_ID {question_key!r}, RELQ_ID {key!r} and RELQ_RANKING_ORDER "
                    f"{rank!r}. Expected two ids and a whole number."
                )
            if key in candidates:
                raise FileFormatError(f"{path}: RELQ_ID {key} occurs twice.")
            relevant = _IS_RELEVANT.get(related.get("RELQ_RELEVANCE2ORGQ", ""))
            candidates[key] = _CandidateText(
                key, int(rank), _text(related, "RelQ", text), question_key, question, relevant
            )
    if not candidates:
        raise FileFormatError(f"{path} holds no related questions, in RelQuestion.")
    return list(candidates.values())


def _parse(path: Path) -> ElementTree.Element:
    # Declarations of entities and of defaults of attributes are refused: no file of the task has one, and both can be
    # made to fill the memory
    with open_to_read(_check.input_file(path)) as file:
        content = decode_utf8(str(path), bounds.read_bounded(str(path), file, bounds.LARGEST_XML))
    if "<!ENTITY" in content:
        raise FileFormatError(f"{path} declares entities (<!ENTITY). No file of the task does.")
    for declared in content.split("<!ATTLIST")[1:]:  # a default is copied into every element, whatever its length
        if {'"', "'"} & set(declared.partition(">")[0]):
            raise FileFormatError(
                f"{path} declares defaults of attributes: <!ATTLIST{declared[:60]}. No file of the task does."
            )
    try:
        return ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise FileFormatError(
            f"{path}, line {error.position[0]}: no valid XML: {ErrorString(error.code)}. Is the file complete?"
        ) from None


def _text(question: ElementTree.Element, prefix: str, text: str) -> str:
    parts = ((question.findtext(f"{prefix}{part.capitalize()}") or "").strip() for part in text.split("+"))
    return " ".join(filter(None, parts))


def _read_labels(path: Path) -> dict[str, bool]:
    labels: dict[str, bool] = {}
    for number, line in enumerate(read_lines(path), start=1):
        fields = split_fields(path, number, line, 5)
        if fields[4] not in _LABELS:
            raise FileFormatError(f"{path}, line {number}: expected true or false at its end, found {fields[4]!r}.")
        if fields[1] in labels or not fields[1].startswith(f"{fields[0]}_"):
            raise FileFormatError(
                f"{path}, line {number}: {fields[1]} is labeled twice, or is not related to {fields[0]}."
            )
        labels[fields[1]] = _LABELS[fields[4]]
    return labels


def _matched(
    path: Path, known: Mapping[str, bool | None], label_path: Path, labels: dict[str, bool]
) -> dict[str, bool]:
    """The labels of the file, one for each related question and the same as those in the XML."""
    if missing := sorted(known.keys() - labels.keys()):
        raise FileFormatError(f"{label_path} has no label for {missing[0]}, a related question of {path.name}.")
    if strange := sorted(labels.keys() - known.keys()):
        raise FileFormatError(f"{label_path} labels {strange[0]}, which is no related question of {path.name}.")
    if other := [key for key, label in known.items() if label is not None and label != labels[key]]:
        raise FileFormatError(f"{label_path} labels {other[0]} otherwise than {path.name}.")
    return labels
