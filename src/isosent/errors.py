"""Errors and warnings.

Every error raised on purpose is an `IsosentError`; the command line prints its message and exits with 2. Each is also
the built-in error of its kind, so that ``except ValueError`` and ``except OSError`` work.
"""


class IsosentError(Exception):
    """Base of every error that isosent raises on purpose."""


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


class NonFiniteLossError(IsosentError, ArithmeticError):
    """The loss or a gradient of training became NaN or infinite; the last checkpoint is kept."""


class MissingExtraError(IsosentError, ImportError):
    """An optional package that is not installed."""


class IsosentWarning(UserWarning):
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
