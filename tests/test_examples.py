"""The examples for users run."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_serving_one_node_is_serving_the_graph(capsys):
    runpy.run_path(str(EXAMPLES / "serve.py"), run_name="__main__")
    whole, alone, change = capsys.readouterr().out.splitlines()
    assert whole.split(":")[1].split() == alone.split(":")[1].split()
    assert float(change.split(":")[1]) < 1e-6
