"""From a condition of a table to what has to be run, as a value and as a command."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from isosent.encoders.reference import SCHEMES, parse_reference
from isosent.papers.reading import known_models
from isosent.papers.tables import EVALUATED, TARGET, Condition, PaperTable
from isosent.reproduction.at_hand import AtHand

Pairs = tuple[tuple[str, object], ...]

_COMMANDS = {
    "sts": "evaluate sts",
    "transfer": "evaluate transfer",
    "cqa": "evaluate cqa",
    "rte": "evaluate rte",
    "dims": "study dims",
    "layers": "study layers",
    "gem": "study gem",
}
_TASKLESS = ("layers", "rte", "cqa")
_FLAGS = {"n_components": "dims"}
STSB, DEV = "STSB", "STSB-dev"


@dataclass(frozen=True, slots=True)
class Request:
    """Something to run. Equal requests give equal numbers, so each is run once for all tables.

    Parameters
    ----------
    family : str
        A key of `FAMILIES` of the tables.
    reference : str
        Model reference, without the options of the condition.
    options : tuple of (str, str)
        These options.
    transform : str or None
        Fitted behind the model.
    settings : tuple of (str, object)
        Its settings.
    fit : str
        "target", "evaluated" or a path.
    sickr : str
        Pairs of SICK-R.
    aggregation : str or None
        For studies, which choose by it.
    study : str or None
        Setting that a study moves.
    """

    family: str
    reference: str
    options: tuple[tuple[str, str], ...] = ()
    transform: str | None = None
    settings: Pairs = ()
    fit: str = TARGET
    sickr: str = "full"
    aggregation: str | None = None
    study: str | None = None

    @property
    def model(self) -> str:
        """The model reference with all options; those of the condition win."""
        location, _, query = self.reference.partition("?")
        own = dict(part.partition("=")[::2] for part in query.split("&") if part)
        written = "&".join(f"{name}={value}" for name, value in (own | dict(self.options)).items())
        return f"{location}?{written}" if written else location

    def command(self, data: str, tasks: Sequence[str]) -> str:
        """Write it as a command.

        Parameters
        ----------
        data : str
            The data folder.
        tasks : sequence of str
            The tasks.

        Returns
        -------
        str
            What a shell runs. ``SENTENCES`` is a file of the sentences of the evaluated pairs, ``DEV`` a folder whose
            ``sts-test.csv`` is a copy of ``sts-dev.csv``.
        """
        if self.family == "speed":
            return shlex.join(["isosent", "encode", "SENTENCES", "-m", self.model])
        if DEV in tasks:
            others = [task for task in tasks if task != DEV]
            runs = [self.command(data, others)] if others else []
            return " && ".join([*runs, self.command("DEV", [STSB])])
        named = [] if self.family in _TASKLESS else ["--tasks", ",".join(tasks)]
        arguments = ["isosent", *_COMMANDS[self.family].split(), "--data", data, *named, "-m", self.model]
        if self.transform is not None and self.family != "layers":
            settings = ((f"--{_FLAGS.get(name, name)}", str(value)) for name, value in self.settings)
            arguments += ["--transform", self.transform, *(word for setting in settings for word in setting)]
        if self.fit != TARGET:
            arguments += ["--fit", "SENTENCES" if self.fit == EVALUATED else self.fit]
        if self.sickr != "full":
            arguments += ["--sickr", self.sickr]
        if self.aggregation is not None:
            arguments += ["--aggregation", self.aggregation]
        return shlex.join(arguments)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a condition is measured.

    Parameters
    ----------
    request : Request or None
        What to run; None where isosent has nothing of that kind.
    missing : tuple of str
        What is needed and not at hand. Where there is something, the request is how it would be run.
    stand_ins : tuple of Request
        The same with other models.
    """

    request: Request | None
    missing: tuple[str, ...]
    stand_ins: tuple[Request, ...]

    @property
    def runs(self) -> list[Request]:
        """What can be run."""
        own = [] if self.request is None or self.missing else [self.request]
        return [*own, *self.stand_ins]


def plan(table: PaperTable, condition: Condition, at_hand: AtHand) -> Plan:
    """Say how a condition is measured.

    Parameters
    ----------
    table : PaperTable
        Its table.
    condition : Condition
        The condition.
    at_hand : AtHand
        Models and files.

    Returns
    -------
    Plan
        What to run, or what is missing.
    """
    model = condition.model
    if model is None or table.family is None:
        return Plan(None, condition.needs, ())
    files = [name for name in (condition.fit, *condition.options.values()) if name and _is_file(name)]
    lacking = [_asked_for(name) for name in files if name not in at_hand.named]
    where = {name: at_hand.named.get(name, name) for name in files}
    known = known_models().get(model)
    public = known.reference if known and known.reference else None
    reference = at_hand.named.get(model, public)
    missing = [] if model in at_hand.named else [_asked_for(model)]
    is_study = table.family in ("dims", "layers")
    request = Request(
        table.family,
        reference or model,
        tuple((name, where.get(value, value)) for name, value in condition.options.items()),
        condition.transform,
        tuple(condition.settings.items()),
        where.get(condition.fit or TARGET, condition.fit or TARGET),
        table.sickr,
        condition.aggregation or table.aggregation if is_study else None,
        condition.study,
    )
    others = () if lacking or condition.needs else at_hand.stand_ins.get(model, ())
    return Plan(
        request if reference else None,
        (*missing, *lacking, *condition.needs),
        tuple(_instead(request, other) for other in others),
    )


def _instead(request: Request, reference: str) -> Request:
    """The same with another model, without the options that it does not take."""
    taken = SCHEMES[parse_reference(reference).scheme].options
    return replace(request, reference=reference, options=tuple(pair for pair in request.options if pair[0] in taken))


def _is_file(name: str) -> bool:
    known = known_models().get(name)
    return known is not None and known.reference is None


def _asked_for(name: str) -> str:
    known = known_models().get(name)
    return known.needs if known and known.needs else name


def needs(what: Iterable[str]) -> str:
    """Say what is missing.

    Parameters
    ----------
    what : iterable of str
        What is needed.

    Returns
    -------
    str
        A phrase.

    Examples
    --------
    >>> needs(["bert-base-uncased", "BERT-flow"])
    'missing: needs bert-base-uncased, BERT-flow'
    """
    return f"missing: needs {', '.join(what)}"
