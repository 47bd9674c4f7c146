"""Which columns of a table hold what: five layouts, told by the columns' names.

    wide        a column per class    prob_0, logit_3, log_prob_cat, calibrated_prob_2, cat_PROB; or the class names, with --kind
    list        one list per row      probs, logits, log_probs; any list column with --kind; in CSV text joined by ';'
    long        a row per id, class   class, and prob, logit, log_prob; or score with --kind
    top-label   the winner alone      prediction and confidence; calibrated_prediction and calibrated_confidence
    binary      one number per row    prob, logit, log_prob of the second class; or score with --kind

Where a table holds calibrated scores (calibrated_...) beside others, the calibrated ones are read. Where columns are named after
classes and the order of the classes is given, the scores are in that order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from graphcal.containers.batches import holds_text
from graphcal.tables.classes import canonical_name
from graphcal.tables.kinds import kind_named

LAYOUTS = ("wide", "list", "long", "top-label", "binary")
ROLES = {  # what a column is for, and the names it is known by; a name of your own is given by --columns role=name
    "id": ("id", "nid", "node_id", "nodeid", "entity", "n_id", "node"),
    "label": ("label", "y", "true_label", "labels"),
    "split": ("split",),
    "prediction": ("prediction", "predictedclass", "predicted_class", "predicted", "pred", "target_pred", "y_pred"),
    "confidence": ("calibrated_confidence", "confidence", "conf"),
    "class": ("class",),
    "source": ("src", "source", "src_nid", "source_id", "src_id", "src_node", "sourcenodeid", "from"),
    "target": ("dst", "target", "dst_nid", "target_id", "dst_id", "dst_node", "targetnodeid", "to"),
    "scores": (),
}
OTHER_NAMES = ("id", "source", "target")  # of a node: files may call it each by its own name
KIND_WORDS = {
    "log_prob": "log-probs", "logprob": "log-probs", "log_proba": "log-probs", "prob": "probs", "proba": "probs",
    "probability": "probs", "logit": "logits",
}  # fmt: skip
_WORDS = "|".join(KIND_WORDS)
PREFIXED = re.compile(rf"(calibrated_)?({_WORDS})_(.+)", re.IGNORECASE)
SUFFIXED = re.compile(rf"(.+?)_({_WORDS})", re.IGNORECASE)
WHOLE_ROW = re.compile(rf"(calibrated_)?(?:({_WORDS})s|probabilities)", re.IGNORECASE)
ONE_NUMBER = re.compile(rf"(calibrated_)?({_WORDS}|score)s?", re.IGNORECASE)
NUMBERED = re.compile(r"(.*?)[ _.]?([0-9]+)")  # score_3, p3, 3
OPPOSITE = {"True": "False", "true": "false", "TRUE": "FALSE", "1": "0"}  # of the class a single column is named after


@dataclass(frozen=True)
class TableLayout:
    """What a table's columns hold."""

    form: str
    kind: str
    scores: tuple[str, ...]  # the columns of scores, in the order of the classes
    names: tuple[str, ...] | None = None  # of the classes, where the columns say them
    roles: Mapping[str, str] = field(default_factory=dict)  # role -> column


def roles_of(names: list[str], given: Mapping[str, str], where: str | Path) -> dict[str, str]:
    """Which column has which role: as given, else by the names a role is known by.

    One --columns goes with several files: predictions may say ``paper`` where labels say ``nid``. `table_checks` refuses
    names that no file has.
    """
    unknown = sorted(set(given) - set(ROLES))
    if unknown:
        raise ValueError(f"--columns: unknown role {unknown[0]!r}; choose among {', '.join(ROLES)}")
    by_lower = {name.lower(): name for name in reversed(names)}
    found = {}
    for role, known in ROLES.items():
        if given.get(role) in names:
            found[role] = given[role]
        elif role not in given or role in OTHER_NAMES:
            match = next((by_lower[name] for name in known if name in by_lower), None)
            if match is not None:
                found[role] = match
    return found


def find_layout(
    schema: pa.Schema,
    kind: str | None = None,
    form: str | None = None,
    columns: Mapping[str, str] | None = None,
    classes: tuple[str, ...] | None = None,
    where: str | Path = "the table",
) -> TableLayout:
    """The layout of a table, or a refusal that says what would do."""
    if form is not None and form not in LAYOUTS:
        raise ValueError(f"unknown layout {form!r}; choose one of {', '.join(LAYOUTS)}")
    kind = None if kind is None else kind_named(kind)
    roles = roles_of(schema.names, columns or {}, where)
    found = [layout for layout in _possible(schema, kind, roles, classes, where) if form in (None, layout.form)]
    calibrated = [layout for layout in found if is_calibrated(layout)]
    found = calibrated or found
    if len(found) > 1 and kind is not None:
        found = [layout for layout in found if layout.kind == kind]
    if not found and form is None and "prediction" in roles:
        raise ValueError(
            f"{where}: the column {roles['prediction']!r} is a class without its confidence, which cannot be calibrated; write "
            f"the scores beside it, as prob_0.. or logit_0.., or its probability as `confidence`. The columns are "
            f"{', '.join(schema.names)}"
        )
    if len(found) != 1:
        what = "none of them" if not found else " and ".join(_described(layout) for layout in found)
        raise ValueError(
            f"{where}: expected columns prob_0.., logit_0.. or log_prob_0.. (or one list column probs, logits, log_probs; or "
            f"class with prob; or prediction with confidence; or one column prob), found {what}; the columns are "
            f"{', '.join(schema.names)}. --kind {'|'.join(('logits', 'log-probs', 'probs'))} says what columns without such "
            "names hold (score_0.., or those that --classes names), --columns scores=NAME which one it is"
        )
    layout = found[0]
    if not layout.kind:
        raise ValueError(
            f"{where}: the column {layout.scores[0]!r} does not say what it holds; say --kind logits, log-probs or probs"
        )
    if layout.form == "wide" and layout.names is not None and classes and set(classes) == set(layout.names):
        by_name = dict(zip(layout.names, layout.scores))
        return replace(layout, names=classes, scores=tuple(by_name[name] for name in classes))
    return layout


def _described(layout: TableLayout) -> str:
    return layout.scores[0] if len(layout.scores) == 1 else f"{layout.scores[0]}.."


def _possible(
    schema: pa.Schema, kind: str | None, roles: dict[str, str], classes: tuple[str, ...] | None, where: str | Path
) -> list[TableLayout]:
    """Every layout that the columns' names allow; a kind of '' is one that nobody has said."""
    found = []
    named = roles.get("scores")
    by_class = {canonical_name(name): name for name in schema.names}
    if named is None:
        wide = _wide(schema, roles, where)
        found += wide
        if not wide and classes and kind and all(c in by_class for c in classes):
            found.append(TableLayout("wide", kind, tuple(by_class[c] for c in classes), classes, roles))
    for name in [named] if named else schema.names:
        word = WHOLE_ROW.fullmatch(name)
        said = KIND_WORDS[(word[2] or "prob").lower()] if word else kind or ""
        if is_list(schema.field(name).type) and (word or named or (name not in roles.values() and kind)):
            found.append(TableLayout("list", said, (name,), None, roles))
        elif named is None and holds_text(schema.field(name).type) and (word or (kind and name.lower() == "scores")):
            found.append(TableLayout("list", said, (name,), None, roles))  # joined by ';'
    lists = [n for n in schema.names if is_list(schema.field(n).type) and n in roles.values() and kind]
    if not found and len(lists) == 1:  # GraphStorm calls its list `pred`
        found.append(
            TableLayout("list", kind or "", (lists[0],), None, {r: n for r, n in roles.items() if n != lists[0]})
        )
    if found:  # fraud_PROB and, calibrated, calibrated_prob
        return found + _one_column(
            schema, kind, roles, [n for n in schema.names if n == "calibrated_prob" and not named]
        )
    found = _one_column(schema, kind, roles, [named] if named else schema.names)
    if not found and "confidence" in roles:
        if is_calibrated_name(roles["confidence"]) and "calibrated_prediction" in schema.names:
            roles = {**roles, "prediction": "calibrated_prediction"}  # of which it is the confidence
        if "prediction" in roles:
            found.append(TableLayout("top-label", "probs", (roles["confidence"],), None, roles))
    if not found and kind and named is None:
        found = [TableLayout("wide", kind, columns, None, roles) for columns in _numbered(schema, roles)]
    return found


def _one_column(schema: pa.Schema, kind: str | None, roles: dict[str, str], names: Sequence[str]) -> list[TableLayout]:
    """Long and binary layouts, whose scores are one column of numbers; numbers written as text are numbers."""
    found = []
    for name in names:
        word, named = ONE_NUMBER.fullmatch(name), name == roles.get("scores")
        text = holds_text(schema.field(name).type)
        if not (word or named) or not (text or is_number(schema.field(name).type)):
            continue
        said = (KIND_WORDS.get(word[2].lower()) if word else None) or kind or ""
        joined = text and (named or name.lower().endswith("s"))  # by ';'
        form = "list" if joined else "long" if {"class", "id"} <= set(roles) else "binary"
        found.append(TableLayout(form, said, (name,), None, roles))
    return found


def _numbered(schema: pa.Schema, roles: dict[str, str]) -> list[tuple[str, ...]]:
    """Columns of numbers that are counted from 0 without a gap, by what their names begin with: score_0, score_1, ..."""
    groups: dict[str, dict[int, str]] = {}
    for name in schema.names:
        match = NUMBERED.fullmatch(name)
        if match and name not in roles.values() and is_number(schema.field(name).type):
            groups.setdefault(match[1].lower(), {})[int(match[2])] = name
    whole = [group for group in groups.values() if len(group) > 1 and set(group) == set(range(len(group)))]
    return [tuple(group[k] for k in range(len(group))) for group in whole]


def _wide(schema: pa.Schema, roles: dict[str, str], where: str | Path) -> list[TableLayout]:
    """Groups of columns per kind, each a wide layout; a single <class>_PROB is a binary one."""
    groups: dict[tuple[str, bool], dict[str, str]] = {}
    for name in schema.names:
        start, end = PREFIXED.fullmatch(name), SUFFIXED.fullmatch(name)
        if start:
            group = groups.setdefault((KIND_WORDS[start[2].lower()], bool(start[1])), {})
            group[canonical_name(start[3])] = name
        elif end and not ONE_NUMBER.fullmatch(name):
            groups.setdefault((KIND_WORDS[end[2].lower()], False), {})[canonical_name(end[1])] = name
    found = []
    for (kind, _), group in groups.items():
        numbers = [c for c in group if c.isdigit()]
        if numbers == ["1"] and kind == "probs" and len(group) == 1:  # of the second class: the first has the rest
            found.append(TableLayout("binary", kind, (group["1"],), None, roles))
        elif len(numbers) == len(group):
            last = max(map(int, numbers))
            if last >= len(group):
                gap = next(k for k in range(last) if str(k) not in group)
                any_name = group[str(last)]
                missing = any_name[: any_name.rindex(str(last))] + str(gap)
                raise ValueError(f"{where}: column {missing} is missing; there is {any_name}")
            ordered = tuple(group[str(k)] for k in range(len(group)))
            found.append(TableLayout("wide", kind, ordered, None, roles))
        elif len(group) == 1 and SUFFIXED.fullmatch(next(iter(group.values()))):
            ((positive, name),) = group.items()
            found.append(
                TableLayout("binary", kind, (name,), (OPPOSITE.get(positive, f"not {positive}"), positive), roles)
            )
        else:
            found.append(TableLayout("wide", kind, tuple(group.values()), tuple(group), roles))
    return found


def is_calibrated(layout: TableLayout) -> bool:
    return is_calibrated_name(layout.scores[0])


def is_calibrated_name(column: str) -> bool:
    return column.lower().startswith("calibrated_")


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind))
