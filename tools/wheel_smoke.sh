#!/usr/bin/env bash
# Build the wheel, install it into an empty environment, and run the main jobs from there, outside the repository.
set -euo pipefail
cd "$(dirname "$0")/.."
smoke="$(pwd)/tools/matrix_smoke.py"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/pip" wheel --quiet --progress-bar off --no-deps --wheel-dir "$work" . 2>/dev/null
"$work/venv/bin/pip" install --quiet --progress-bar off -c constraints.txt "$work"/graphcal-*.whl 2>/dev/null
cd "$work"
"$work/venv/bin/pip" check
"$work/venv/bin/graphcal" --version
"$work/venv/bin/python" "$smoke"
echo "the wheel works in an empty environment"
