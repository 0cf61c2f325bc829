"""What isosent raises and warns with.

Everything raised on purpose is an `IsosentError`; the command line prints its sentence and exits with 2. A missing
file raises the built-in class beside it too, so `except ValueError` and `except OSError` go on working::

    IsosentError
    ├── InputError (ValueError)          a value, shape or dtype that cannot be used
    │   ├── ModelReferenceError          a model reference or option outside the grammar
    │   ├── TaskNotFoundError            the files of a task that are not in the folder
    │   ├── InputFileError (OSError)     a file that is missing, a folder, or unreadable
    │   │   └── FileFormatError          a file whose content is not what its format promises
    │   └── ModelFolderError             a model folder that cannot be opened
    ├── InputTypeError (TypeError)       a value of the wrong type
    ├── OutputError (OSError)            a result that could not be written; the old file is intact
    ├── NonFiniteLossError (ArithmeticError)  training that came to a loss that is no number
    └── MissingExtraError (ImportError)  an optional package that is not installed

    IsosentWarning (UserWarning)
    ├── RankWarning                      fewer components than asked for, or than the vectors have dimensions
    ├── TruncationWarning                texts longer than the encoder's maximum were cut
    ├── DuplicateWordWarning             a word-vector file lists a word more than once
    ├── FrequencyWarning                 many tokens have no frequency
    ├── UnknownWordsWarning              many tokens are unknown to the encoder
    ├── UndecodableWordWarning           a word-vector file holds words that are not UTF-8
    ├── CacheWarning                     a cache could not be written; the work is done again next time
    ├── MemoryWarning                    a batch did not fit into memory and was halved
    ├── PaddingWarning                   a tokenizer has no padding token; another id stands for it, unseen
    ├── PermissionIgnoredWarning         a file grants a permission, which only the caller can do
    └── EvaluationWarning                a score that is undefined, or a task read in part
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
    """The files of a task are not in the folder; the sentence says which, and where they are expected."""


class InputFileError(InputError, OSError):
    """A file that is missing, a folder, or unreadable."""


class FileFormatError(InputFileError):
    """A file whose content is not what its format promises."""


class ModelFolderError(InputError):
    """A model folder that cannot be opened."""


class OutputError(IsosentError, OSError):
    """A result that could not be written; what was there before is intact."""


class NonFiniteLossError(IsosentError, ArithmeticError):
    """Training came to a loss or a gradient that is no finite number; the last checkpoint is kept."""


class MissingExtraError(IsosentError, ImportError):
    """An optional package that is not installed."""


class IsosentWarning(UserWarning):
    """Base of every warning that isosent gives."""


class RankWarning(IsosentWarning):
    """Fewer components than asked for, or than the vectors have dimensions."""


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
    """A tokenizer has no padding token; another id stands for it, which the network does not see."""


class PermissionIgnoredWarning(IsosentWarning):
    """A file holds a permission, or a setting of the machine, that only the caller can give; it was ignored."""


class EvaluationWarning(IsosentWarning):
    """A score that is undefined, or a task that was read in part."""
