"""Where files come from: the Hugging Face hub, or a folder that is laid out like it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from isosent import _check
from isosent.errors import InputFileError

_TIMEOUT_S = 10.0


class Hub(Protocol):
    """What gives the files of repositories; a file that it cannot give is an `InputFileError`."""

    def commit(self, repository: str, wanted: str | None) -> str:
        """Return the commit to fetch: the wanted one, else that of now; "" where there is no telling."""
        ...

    def fetch(self, repository: str, revision: str, file: str) -> Path:
        """Return where a file of a repository lies on this machine, whole."""
        ...


class HuggingFaceHub:
    """The Hugging Face hub, by `huggingface_hub`, whose cache keeps what was fetched."""

    def commit(self, repository: str, wanted: str | None) -> str:
        """Return the commit to fetch.

        Parameters
        ----------
        repository : str
            Name of the repository.
        wanted : str, optional
            A commit; the one it is at now where left out.

        Returns
        -------
        str
            The commit.

        Raises
        ------
        InputFileError
            If none is wanted, and the hub cannot be reached or does not have the repository.
        """
        return wanted or self._ask(repository, None)

    def fetch(self, repository: str, revision: str, file: str) -> Path:
        """Return where a file lies in the cache, fetched if it was not there.

        Parameters
        ----------
        repository : str
            Its repository.
        revision : str
            The commit.
        file : str
            Its name.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        InputFileError
            If it is not in the cache, and the hub cannot be reached or does not have it.
        """
        import huggingface_hub
        from huggingface_hub.errors import LocalEntryNotFoundError

        def download(*, here: bool) -> Path:
            return Path(
                huggingface_hub.hf_hub_download(
                    repository, file, repo_type="dataset", revision=revision, local_files_only=here
                )
            )

        try:
            return download(here=True)
        except LocalEntryNotFoundError:
            self._ask(repository, revision)  # tells at once what a download would try five times
        try:
            return download(here=False)
        except Exception as error:
            raise _not_given(repository, error) from error

    def _ask(self, repository: str, revision: str | None) -> str:
        import huggingface_hub

        try:
            info = huggingface_hub.HfApi().dataset_info(repository, revision=revision, timeout=_TIMEOUT_S)
        except Exception as error:  # whatever its HTTP client raises
            raise _not_given(repository, error) from error
        return str(info.sha)


class Mirror:
    """A folder that is laid out like the hub: ``REPOSITORY/FILE``.

    Parameters
    ----------
    folder : path-like
        The folder.

    Raises
    ------
    InputFileError
        If there is no such folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = _check.input_folder(folder)

    def commit(self, repository: str, wanted: str | None) -> str:
        """Return "": a folder does not tell its commit."""
        return ""

    def fetch(self, repository: str, revision: str, file: str) -> Path:
        """Return where a file lies; parameters as for `HuggingFaceHub.fetch`, the revision without effect."""
        return _check.input_file(self._folder / repository / file)


def _not_given(repository: str, error: Exception) -> InputFileError:
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
    return InputFileError(f"the hub did not give {repository}: {reason}")
