"""A small package index in the format of apt, for tests."""

SECTIONS = ("games", "libs", "python", "web")


def stanza(name: str, section: str, depends: str = "", source: str = "", **more: str) -> str:
    fields = {"Package": name, "Source": source, "Section": section, "Depends": depends, **more}
    return "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in fields.items() if value) + "\n"


def synthetic_index(size: int = 300, first: int = 0) -> tuple[str, str]:
    """Packages and Translation-en of packages number ``first`` to ``first + size - 1``; section and words go together."""
    packages, translations = [], []
    for k in range(first, first + size):
        section = SECTIONS[k % 4]
        depends = ", ".join(f"pkg{j:05d} (>= 1.0) | virtual" for j in (k - 4, k - 8, k - 7 * (k % 5)) if first <= j < k)
        packages.append(stanza(f"pkg{k:05d}", section, depends, f"source{k // 3}", Installed_Size=str(k)))
        words = f"{section}word {section} common filler{'abcdefghij'[k % 10]} {SECTIONS[k // 4 % 4]}noise"
        translations.append(f"Package: pkg{k:05d}\nDescription-en: {words}\n with a second line\n\n")
    return "".join(packages), "".join(translations)
