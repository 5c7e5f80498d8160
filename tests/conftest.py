"""Hypothesis without its deadline of 200 ms: a busy machine is no defect, and limits in time are tests of
their own."""

import os
import tempfile
from pathlib import Path

from hypothesis import settings

settings.register_profile("raceline", deadline=None)
settings.load_profile("raceline")

# No test sees the runs that whoever runs it has learned.
os.environ["RACELINE_HOME"] = str(Path(tempfile.gettempdir()) / "raceline-tests-learned-nothing")
