"""Errors and warnings.

Every error raised on purpose is an `IsosentError`; the command line prints its message and exits with 2. Each is also
the built-in error of its kind, so that ``except ValueError`` and ``except OSError`` work.

A message is worded for whoever reads it. An error knows its parts: the function that refuses (``where``), and of a
wrong value the parameter, the rule and the value (`wrong_value`). An `option` in a message is a parameter in Python and
a flag in the shell, and what to do next may be a command in one and a call in the other (`next_step`). ``str(error)``
is the message for Python; `isosent.cli.main` words ``error.marked`` for the shell. No message shows the password of a
URL (`without_passwords`).
"""

import re
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

# marked by characters that no font and no file has a use for
_OPTION = re.compile("\ue000([^=\ue001]+)=?([^\ue001]*)\ue001")
_PLAIN = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?|N")  # numbers
_NEXT_STEP = re.compile("\ue002([^\ue003]*)\ue003([^\ue004]*)\ue004")
# of user:password@host after a scheme, which a path may have shortened to one slash; and of an option of a URL
_PASSWORD = re.compile(
    r"(?<=[a-zA-Z0-9]:/)(/?[^\s/:@'\"]*:)\S*(?=@)"
    r"|(?<=[?&])([\w-]*(?:password|secret|signature|token|(?:api|account|secret)_?key)=)[^\s&'\"]+"
)


def option(name: str, value: object = "") -> str:
    """An option in a message, by the name of its parameter, perhaps with a value to choose; True is that of a flag."""
    return f"\ue000{name}{value and '='}{value}\ue001"


def next_step(command: str, call: str) -> str:
    """What to do, in a message: a command in the shell, a call in Python."""
    return f"\ue002{command}\ue003{call}\ue004"


def in_shell(message: str, write: Callable[[str, str], str]) -> str:
    """A message for the shell, where each `option` is written as ``write(name, value)``."""
    return _OPTION.sub(lambda found: write(found[1], found[2]), _NEXT_STEP.sub(r"\1", message))


def without_passwords(message: str) -> str:
    """A message where *** stands for the passwords of URLs."""
    return _PASSWORD.sub(lambda found: f"{found[1] or found[2]}***", message)


def quoted(error: object) -> str:
    """The message of an error for another message, with its options marked, so that the shell words both."""
    if not isinstance(error, _Message):
        return str(error)
    return f"{error.where}: {error.marked}" if error.where else error.marked


class WrongValue(NamedTuple):
    """A value that a rule forbids: ``parameter`` must ``rule``; got ``value``."""

    parameter: str
    rule: str  # such as "be from 0 to 1"
    value: str
    advice: str = ""  # what to do, a sentence

    def __str__(self) -> str:
        return f"{self.parameter} must {self.rule}; got {self.value}.{self.advice and ' '}{self.advice}"


class _Message(Exception):  # noqa: N818 - warnings have it too
    """What errors and warnings have in common."""

    wrong: WrongValue | None = None  # if a value breaks a rule

    where = ""  # the function, class or command that refuses

    def __init__(self, message: object = "", *, where: str = "") -> None:
        self.where = where
        self.marked = without_passwords(quoted(message))
        super().__init__(_for_python(self.marked))

    @cached_property
    def marked(self) -> str:
        """The message without `where`; a class that calls no `__init__` of ours has what it was made of."""
        return super().__str__()

    def __str__(self) -> str:
        return _for_python(quoted(self))

    def reword(self, change: Callable[[str], str]) -> None:
        """Put another message in place of this one."""
        self.marked = without_passwords(change(self.marked))
        self.args = (_for_python(self.marked),)


def _for_python(message: str) -> str:
    return _OPTION.sub(lambda found: _argument(found[1], found[2]), _NEXT_STEP.sub(r"\2", message))


def _argument(name: str, value: str) -> str:
    is_text = value and value != "True" and not _PLAIN.fullmatch(value)
    return f"{name}{value and '='}{repr(value) if is_text else value}"


class IsosentError(_Message):
    """Base of every error that isosent raises on purpose."""


def wrong_value(
    where: str, parameter: str, rule: str, value: object, advice: str = "", *, error: type[IsosentError] | None = None
) -> IsosentError:
    """An `InputError`, or another error, of a parameter that breaks a rule."""
    wrong = WrongValue(parameter, rule, without_passwords(f"{value}"), advice)
    raised = (error or InputError)(str(wrong), where=where)
    raised.wrong = wrong
    return raised


class InputError(IsosentError, ValueError):
    """A value, shape or dtype that cannot be used."""


class InputTypeError(IsosentError, TypeError):
    """A value of the wrong type."""


class ModelReferenceError(InputError):
    """A model reference or option outside the grammar."""


class TaskNotFoundError(InputError):
    """The files of a task are not in the folder; the message says which, and where they are expected."""


class InputFileError(InputError, OSError):
    """A file that is missing, a folder, or unreadable."""


class FileFormatError(InputFileError):
    """A file whose content does not follow its format."""


class ModelFolderError(InputError):
    """A model folder that cannot be opened."""


class OutputError(IsosentError, OSError):
    """A result that could not be written; an older file is intact."""


class WorkerError(IsosentError, RuntimeError):
    """Workers that died or failed again and again."""


class ApiError(IsosentError, RuntimeError):
    """An embedding API that cannot be reached, refuses a request, or has another model than before."""


class NonFiniteLossError(IsosentError, ArithmeticError):
    """The loss or a gradient of training became NaN or infinite; the last checkpoint is kept."""


class MissingExtraError(IsosentError, ImportError):
    """An optional package that is not installed."""


class IsosentWarning(_Message, UserWarning):
    """Base of every warning that isosent gives."""


class RankWarning(IsosentWarning):
    """Fewer components than requested, or than the vectors have dimensions."""


class TruncationWarning(IsosentWarning):
    """Texts longer than the encoder's maximum were cut."""


class DuplicateWordWarning(IsosentWarning):
    """A word-vector file lists a word more than once."""


class FrequencyWarning(IsosentWarning):
    """Many tokens have no frequency."""


class UnknownWordsWarning(IsosentWarning):
    """Many tokens are unknown to the encoder."""


class UndecodableWordWarning(IsosentWarning):
    """A word-vector file holds words that are not UTF-8."""


class CacheWarning(IsosentWarning):
    """A cache could not be written; the work is done again next time."""


class MemoryWarning(IsosentWarning):
    """A batch did not fit into memory and was halved; the vectors are the same."""


class PaddingWarning(IsosentWarning):
    """A tokenizer has no padding token; another id is used, which the network does not see."""


class PermissionIgnoredWarning(IsosentWarning):
    """A file holds a permission, or a setting of the machine, that only the caller can give; it was ignored."""


class EvaluationWarning(IsosentWarning):
    """A score that is undefined, or a task that was read in part."""
