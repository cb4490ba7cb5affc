"""The description of the door: every route is in it, and nothing else; the page shows it."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from starlette.routing import Route

from gapless.client.client import Client
from gapless.doors.clients import DoorClients
from gapless.doors.http import app
from gapless.doors.http.openapi import PATHS, SCHEMAS, SETTINGS, document
from tests.broker.stage import make_broker, run
from tests.doors.http.caller import Caller

ROOT = Path(__file__).parents[3]


def test_the_document_has_every_route_and_no_other() -> None:
    async def main() -> None:
        routes = app.HttpApp(DoorClients("gapless://127.0.0.1:1"), lambda *_: []).routes()
        there = {
            (each.path, method.lower())
            for each in routes
            if isinstance(each, Route)
            for method in (each.methods or set()) - {"HEAD"}
        }
        assert there == {(path, method) for path, methods in PATHS.items() for method in methods}

    run(main())


def test_every_schema_that_is_named_exists_and_is_used() -> None:
    text = json.dumps(document())
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named <= SCHEMAS.keys()
    assert SCHEMAS.keys() - named == set()


def test_a_topic_has_the_settings_that_the_client_gives_it() -> None:
    given = set(inspect.signature(Client.create_topic).parameters) - {"self", "name"}
    assert given == app.TOPIC_FIELDS == SETTINGS.keys()


def test_every_path_and_parameter_is_in_the_reference() -> None:
    reference = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    for path, methods in PATHS.items():
        for method, found in methods.items():
            assert f"`{method.upper()} {path}`" in reference
            parameters: list[dict[str, Any]] = found.get("parameters", [])
            for parameter in parameters:
                if parameter["in"] != "path":
                    assert f"`{parameter['name']}`" in reference


def test_the_door_shows_its_description_and_a_page_without_scripts(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            assert (await caller.get("/openapi.json")).json == document()
            page = await caller.get("/")
            assert "default-src 'none'" in page.headers["content-security-policy"]
            assert b"<script" not in page.body
            for path in PATHS:
                assert path.encode() in page.body

    run(main())
