"""What the system refuses names the file, and is never taken for damage."""

import errno
import os
import sys

import numpy as np
import pytest

from isosent.errors import FileFormatError
from isosent.io.arrow import reading_with_pyarrow
from isosent.io.bounds import folders_below
from isosent.io.system import read_bytes, system_error, uninterrupted
from isosent.search.build import Spill


@pytest.mark.skipif(sys.platform != "linux", reason="a file that can be opened and not read")
def test_an_error_while_a_file_is_read_names_it():
    with pytest.raises(OSError, match="Input/output error: '/proc/self/mem'") as caught:
        read_bytes("/proc/self/mem")
    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize(
    "message", ["could not open x for reading: Too many open files", "I/O error: nothing (os error 24)"]
)
def test_what_native_code_says_of_the_system_is_not_about_the_content(message):
    assert system_error(RuntimeError(message), "x").errno == errno.EMFILE
    assert system_error(RuntimeError("fourcc 0x0 is unknown"), "x") is None


def test_a_healthy_parquet_file_is_not_called_damaged():
    with pytest.raises(OSError, match="Too many open files") as caught, reading_with_pyarrow("rows.parquet"):
        raise OSError(errno.EMFILE, "[Errno 24] Failed to open local file 'rows.parquet'")
    assert not isinstance(caught.value, FileFormatError)
    assert caught.value.filename == "rows.parquet"


def test_a_folder_that_cannot_be_listed_is_not_taken_for_empty(tmp_path, monkeypatch):
    def refuse(code):
        def scandir(path):
            raise OSError(code, os.strerror(code), str(path))

        monkeypatch.setattr(os, "scandir", scandir)

    refuse(errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files"):
        list(folders_below(tmp_path))
    refuse(errno.EACCES)
    assert list(folders_below(tmp_path)) == []


def test_vectors_that_cannot_be_read_back_are_not_taken_for_fewer(tmp_path):
    spill = Spill(tmp_path, 4)
    spill.fill([np.ones((6, 4), np.float32)])
    np.testing.assert_array_equal(np.concatenate(list(spill.blocks(4))), np.ones((6, 4)))
    spill.shape = (12, 4)  # as if the disk gave half of them
    with pytest.raises(OSError, match="Input/output error"):
        list(spill.blocks())
    spill.close()


def test_an_interrupted_native_call_is_made_again():
    answers = iter([RuntimeError("could not open: Interrupted system call"), "opened"])

    def call():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert uninterrupted(call) == "opened"
