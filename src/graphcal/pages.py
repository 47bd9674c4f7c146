"""A content security policy for a page that stands alone: it runs its own scripts, loads nothing, sends nothing.

Scripts and styles are allowed by the SHA-256 of their text, taken when the page is made; a script that gets into the page in any
other way does not run.
"""

from __future__ import annotations

import base64
import hashlib
import re

CHARSET = '<meta charset="utf-8">'


def with_policy(page: str) -> str:
    """The page with its policy in the head, after the character set.

    >>> page = '<html><head><meta charset="utf-8"></head><body><script>draw()</script></body></html>'
    >>> "script-src 'sha256-" in with_policy(page)
    True
    """
    if CHARSET not in page:
        raise ValueError(f"a page needs {CHARSET} in its head, where the policy belongs")
    rules = [
        "default-src 'none'",
        f"script-src {_sources(page, 'script')}",
        f"style-src {_sources(page, 'style')}",
        "style-src-attr 'unsafe-inline'",  # the length of a bar
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    meta = f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(rules)}">'
    return page.replace(CHARSET, f"{CHARSET}\n{meta}", 1)


def _sources(page: str, tag: str) -> str:
    """The texts of all elements of that name, as hashes; 'none' without any."""
    texts = re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", page, flags=re.DOTALL)
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in dict.fromkeys(texts))
    return " ".join(f"'sha256-{one}'" for one in hashes) or "'none'"
