"""What came of one fault."""

import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class Outcome:
    """One fault: the target it hit, what came of it, and what is wrong.

    Parameters
    ----------
    target : str
        The command, reader or file.
    outcome : str
        A word to count by.
    detail : str
        What is wrong, or where it was harmless.
    is_failure : bool
        Whether a promise was broken.
    reproducer : str
        Where the files are that show it, if they were kept.
    """

    target: str
    outcome: str
    detail: str = ""
    is_failure: bool = False
    reproducer: str = ""

    def keep_folder(self, keep: Path, folder: Path) -> None:
        """Keep the folder that shows a failure."""
        self.reproducer = str(keep / f"{self.target.replace(' ', '_')}-{uuid.uuid4().hex[:8]}")
        shutil.copytree(folder, self.reproducer)
