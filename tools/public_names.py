"""List every public name of gapless, with its signature: what users may rely on.

    python tools/public_names.py

`tests/test_public_names.py` compares the names of each release, in `tests/public_names`, with
today's. Make such a list when a version is released, from its tag.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module

MODULES = ("gapless", "gapless.spark", "gapless.testing")
CLASSES = {
    "gapless.client.client": ("Client",),
    "gapless.client.group_subscription": ("GroupSubscription",),
    "gapless.client.publisher": ("Publisher",),
    "gapless.client.subscription": ("Subscription",),
    "gapless.client.transaction": ("Transaction",),
}
"""Classes that users get from calls, and never import. What `gapless.sync` has too is public."""


def signature(of: object) -> str:
    """The parameters with their defaults; types may become more precise without notice."""
    try:
        found = inspect.signature(of)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    kept = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in found.parameters.values()
        if each.name != "self" and not each.name.startswith("_")
    ]
    text = str(found.replace(parameters=kept, return_annotation=inspect.Signature.empty))
    return re.sub("<object object at 0x[0-9a-f]+>", "...", text)


def members(name: str, of: type) -> list[str]:
    """The public methods and attributes of a class, inherited ones of ours too."""
    if issubclass(of, Exception):
        return [name]
    lines = [f"{name}{signature(of)}"]
    for base in of.__mro__:
        if not base.__module__.startswith("gapless"):
            continue
        for each in [*vars(base), *getattr(base, "__annotations__", {})]:
            if not each.startswith("_"):
                value = getattr(of, each, None)
                lines.append(f"{name}.{each}{signature(value) if inspect.isroutine(value) else ''}")
    return lines


def public_names() -> list[str]:
    """All lines, sorted."""
    lines: set[str] = set()
    for module in MODULES:
        found = import_module(module)
        for name in getattr(found, "__all__", ()):
            value = getattr(found, name)
            full = f"{module}.{name}"
            if inspect.isclass(value):
                lines.update(members(full, value))
            elif not inspect.ismodule(value):
                lines.add(full + (signature(value) if callable(value) else ""))
    for module, names in CLASSES.items():
        for name in names:
            twin = set(dir(getattr(import_module("gapless.sync"), name)))
            found_members = members(name, getattr(import_module(module), name))[1:]
            lines.update(each for each in found_members if re.split(r"[.(]", each)[1] in twin)
    return sorted(lines)


if __name__ == "__main__":
    print("\n".join(public_names()))
