"""``python -m graphcal``."""

import subprocess
import sys


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "graphcal", "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("graphcal ")
