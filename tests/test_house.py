"""The walls of the house: a part's collections are its own, constructors narrow, names single.

Decision 0032 says what the first rule is for. Each rule reads the syntax tree of the product: all
of `src/gapless` but `testing`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parent.parent / "src" / "gapless"
PRODUCT = [path for path in sorted(SOURCE.rglob("*.py")) if "testing" not in path.parts]
ARGUMENTS_MAX = 7
PRODUCT_LINES_MAX = 88_000
"""No more than today, until something has gone: a new capability pays for itself. Decision 0048 has
what the last thousands are for, and the aim."""

TWINS = {  # `gapless.sync` has the names of the client; a receipt is a message, and what users get
    "Client",
    "GroupSubscription",
    "JointReader",
    "JointSubscription",
    "Publisher",
    "Receipt",
    "Stager",
    "Subscription",
    "Transaction",
}
CHANGES = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem",
    "popleft", "remove", "setdefault", "update",
}  # fmt: skip


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def classes_of(path: Path) -> Iterator[ast.ClassDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef))


def constructor_of(cls: ast.ClassDef) -> ast.FunctionDef | None:
    functions = [each for each in cls.body if isinstance(each, ast.FunctionDef)]
    return next((each for each in functions if each.name == "__init__"), None)


def arguments_of(function: ast.FunctionDef) -> list[str]:
    return [each.arg for each in (*function.args.args[1:], *function.args.kwonlyargs)]


def parts_of(cls: ast.ClassDef) -> set[str]:
    """The attributes of an object that its constructor was given: other parts, not its own."""
    function = constructor_of(cls)
    if function is None:
        return set()
    given = set(arguments_of(function))
    return {
        target.attr
        for each in ast.walk(function)
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Name)
        if each.value.id in given
        for target in each.targets
        if isinstance(target, ast.Attribute)
    }


def place_of(node: ast.expr) -> tuple[str, str] | None:
    """`('x', 'y')` of `self.x.y`, or of an item of it."""
    if isinstance(node, ast.Subscript):
        return place_of(node.value)
    match node:
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr=part), attr=name):
            return part, name
        case _:
            return None


def changes_in(cls: ast.ClassDef) -> Iterator[tuple[int, tuple[str, str]]]:
    """Every assignment to, deletion from or mutation of `self.x.y`."""
    for node in ast.walk(cls):
        targets: list[ast.expr] = []
        match node:
            case ast.Assign(targets=some) | ast.Delete(targets=some):
                targets = [
                    one
                    for each in some
                    for one in (each.elts if isinstance(each, ast.Tuple) else [each])
                ]
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                targets = [target]
            case ast.Call(func=ast.Attribute(value=value, attr=verb)) if verb in CHANGES:
                targets = [value]
        for each in targets:
            if (place := place_of(each)) is not None:
                yield each.lineno, place


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_no_part_changes_the_collections_of_another(path: Path) -> None:
    if path.relative_to(SOURCE).parts[0] in ("node", "client"):
        for cls in classes_of(path):
            parts = parts_of(cls)
            writes = [(line, *place) for line, place in changes_in(cls) if place[0] in parts]
            assert writes == [], f"{cls.name}: give the owner a method for it"


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_a_constructor_has_at_most_seven_arguments(path: Path) -> None:
    for cls in classes_of(path):
        function = constructor_of(cls)
        if function is not None:
            assert len(arguments_of(function)) <= ARGUMENTS_MAX, cls.name


def test_a_class_name_occurs_once_in_the_product() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in PRODUCT:
        for cls in classes_of(path):
            places[cls.name].append(name_of(path))
    twice = {name: some for name, some in places.items() if len(some) > 1 and name not in TWINS}
    assert twice == {}


def test_no_two_modules_of_a_package_are_one_letter_apart() -> None:
    folders: dict[Path, list[str]] = defaultdict(list)
    for path in PRODUCT:
        folders[path.parent].append(path.stem)
    for folder, stems in folders.items():
        for one, other in pairwise(sorted(stems)):
            assert other not in (f"{one}s", f"{one}_"), f"{folder.name}: {one}, {other}"


def test_the_product_does_not_grow_without_a_decision() -> None:
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in PRODUCT)
    assert lines <= PRODUCT_LINES_MAX, f"{lines:,} lines: what can go?"


# --- the rules can fail ---------------------------------------------------------------------------


def first_class(text: str) -> ast.ClassDef:
    [cls] = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ClassDef)]
    return cls


@pytest.mark.parametrize(
    "statement",
    [
        "self.other.items[1] = 2",
        "self.other.items.pop(1)",
        "del self.other.items[1]",
        "self.other.count += 1",
        "mine, self.other.items = self.other.items, []",
    ],
)
def test_a_write_into_another_part_is_seen(statement: str) -> None:
    cls = first_class(
        "class Part:\n"
        "    def __init__(self, other):\n        self.other = other\n        self.own = Own()\n"
        f"    def act(self):\n        {statement}\n        self.own.items.clear()\n"
    )
    assert parts_of(cls) == {"other"}
    assert [place for _, place in changes_in(cls) if place[0] in parts_of(cls)] != []
    assert ("own", "items") in [place for _, place in changes_in(cls)]
