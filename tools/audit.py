"""Known vulnerabilities of the locked packages, by pip-audit: `python tools/audit.py`. Exits with 1 only when one is found.

pip-audit says "No known vulnerabilities found" also when it could look nothing up. Here every package is counted: looked up,
skipped, or with a finding.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parent.parent / "requirements.lock"


def told(report: dict[str, Any]) -> tuple[str, int]:
    """What an audit came to, in words, and the exit code."""
    packages = report.get("dependencies", [])
    skipped = [package for package in packages if "skip_reason" in package]
    faulty = [package for package in packages if package.get("vulns")]
    lines = [
        f"{package['name']} {package['version']}: {vuln['id']}, fixed in {', '.join(vuln['fix_versions']) or 'no version yet'}"
        for package in faulty
        for vuln in package["vulns"]
    ]
    looked_up = len(packages) - len(skipped)
    if not looked_up:
        return f"not audited: none of {len(packages)} packages could be looked up; is the database reachable?", 0
    lines.append(f"{looked_up} of {len(packages)} packages looked up, {len(faulty)} with known vulnerabilities")
    return "\n".join(lines), 1 if faulty else 0


def main() -> None:
    audit = [sys.executable, "-m", "pip_audit", "--requirement", LOCK, "--no-deps", "--disable-pip", "--format", "json"]
    try:
        done = subprocess.run([*audit, "--timeout", "10"], capture_output=True, text=True, timeout=240)
        words, code = told(json.loads(done.stdout))
    except subprocess.TimeoutExpired:
        words, code = "not audited: no answer of the database within 240 seconds", 0
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1]
        words, code = f"not audited: {last}", 0
    print(words)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
