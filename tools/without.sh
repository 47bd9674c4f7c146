#!/usr/bin/env bash
# Show that a part can be deleted: a copy of the tree loses it and its tests, everything that is left must pass.
#
#   tools/without.sh lab               without the laboratory: the product alone
#   tools/without.sh lab/paper         without the reproduction
#   tools/without.sh lab tests/tables  some of the tests that are left
#
# PYTHON: an interpreter with graphcal's dependencies (default: the .venv of this tree). WORKERS: test processes (default: 2).
set -euo pipefail
cd "$(dirname "$0")/.."
part="${1:?which part: lab or lab/paper}"
shift
python="${PYTHON:-$(pwd)/.venv/bin/python}"
copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT
tar --exclude=./.git --exclude=./.venv --exclude=__pycache__ -cf - . | tar -xf - -C "$copy"
cd "$copy"
rm -r "src/graphcal/$part" "tests/$part"
export PYTHONPATH="$copy/src" OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

"$python" -c "
import importlib.util, pathlib, sys, graphcal
assert pathlib.Path(graphcal.__file__).is_relative_to(pathlib.Path.cwd()), f'{graphcal.__file__} is not the copy'
assert importlib.util.find_spec(sys.argv[1]) is None
" "graphcal.${part//\//.}"
"$python" -m graphcal methods >/dev/null
"$python" -m pytest -m "not slow" -n "${WORKERS:-2}" --dist worksteal "${@:-tests}"
