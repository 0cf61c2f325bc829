"""Print the lowest version that pyproject.toml allows of each dependency, as constraints for pip.

Usage: python .ci/lowest.py [EXTRA ...]; base dependencies are always included.
"""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
requirements = list(project["dependencies"])
for extra in sys.argv[1:]:
    requirements += project["optional-dependencies"][extra]
for requirement in sorted(set(requirements)):
    if match := re.match(r"([\w.-]+)(?:\[.*\])?>=([\w.]+)", requirement):
        sys.stdout.write("{}=={}\n".format(*match.groups()))
