#!/usr/bin/env bash
# The product stands without the reproduction: a copy of the tree loses graphcal.lab.paper and its tests, everything else must pass.
#
#   tools/without_paper.sh                     all tests that are left
#   tools/without_paper.sh tests/bench ...     some of them
#
# PYTHON: an interpreter with graphcal's dependencies (default: the .venv of this tree). WORKERS: test processes (default: 2).
# COVERAGE=1: report which lines and branches of the product the tests reach.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-$(pwd)/.venv/bin/python}"
copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT
tar --exclude=./.git --exclude=./.venv --exclude=__pycache__ -cf - . | tar -xf - -C "$copy"
cd "$copy"
rm -r src/graphcal/paper tests/paper
export PYTHONPATH="$copy/src" OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

graphcal() { "$python" -c "from graphcal.cli import main; main()" "$@"; }

"$python" -c "
import importlib.util, pathlib, graphcal
assert pathlib.Path(graphcal.__file__).is_relative_to(pathlib.Path.cwd()), f'{graphcal.__file__} is not the copy'
assert importlib.util.find_spec('graphcal.lab.paper') is None
"
graphcal bench list
graphcal run citeseer --seeds 2 --out "$copy/report"
covered=()
[ -z "${COVERAGE:-}" ] || covered=(--cov=graphcal --cov-branch --cov-report=term:skip-covered)
"$python" -m pytest -n "${WORKERS:-2}" --dist worksteal "${covered[@]}" "${@:-tests}"
