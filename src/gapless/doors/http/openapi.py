"""The description of the HTTP door: an OpenAPI 3.1 document, and a page that shows it.

The document is data, written by hand. A test compares it with the routes, and another runs the
examples of docs/how-to/http.md.
"""

from __future__ import annotations

from html import escape
from typing import Any

POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

Fields = dict[str, Any]

TOPIC: Fields = {
    "name": "topic",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "The topic; a / in its name is written %2F.",
}
NAME: Fields = {**TOPIC, "name": "name", "description": "The name; a / in it is written %2F."}
PUBLISHER: Fields = {
    "name": "Gapless-Publisher",
    "in": "header",
    "schema": {"type": "string"},
    "description": "A publisher's name: with its number, a retry publishes nothing twice.",
}
SEQUENCE: Fields = {
    "name": "Gapless-Sequence",
    "in": "header",
    "schema": {"type": "integer", "minimum": 0},
    "description": "The number of the first event of this request under that name, from 0 on.",
}
LAST_ID: Fields = {
    "name": "Last-Event-ID",
    "in": "header",
    "schema": {"type": "string"},
    "description": "Go on behind this token; an EventSource sends it. It counts before `from`.",
}


def parameter(name: str, description: str, kind: str = "string") -> Fields:
    schema = {"type": kind}
    return {"name": name, "in": "query", "schema": schema, "description": description}


WHERE = parameter("where", "A SQL condition over attributes; without it, all events.")
FROM = parameter("from", "earliest, latest, or a token: events below it are skipped.")


def answer(description: str, media_types: dict[str, str] | None = None) -> Fields:
    content = {
        media: {"schema": {"$ref": f"#/components/schemas/{schema}"} if schema else {}}
        for media, schema in (media_types or {}).items()
    }
    return {"description": description, **({"content": content} if content else {})}


def body(description: str, media_types: dict[str, str], *, required: bool = True) -> Fields:
    return {**answer(description, media_types), "required": required}


PROBLEM = answer("What is wrong, and what to do", {"application/problem+json": "Problem"})


def operation(summary: str, parameters: list[Fields], answers: Fields, **more: Any) -> Fields:
    found = {"summary": summary, "responses": {**answers, "default": PROBLEM}, **more}
    return {**found, "parameters": parameters} if parameters else found


PATHS: Fields = {
    "/": {"get": operation("This description as a page", [], {"200": answer("A page")})},
    "/openapi.json": {
        "get": operation("This description", [], {"200": answer("OpenAPI 3.1")}),
    },
    "/topics": {
        "get": operation(
            "List the topics that the caller has any right on",
            [],
            {"200": answer("Topics", {"application/json": "Topics"})},
        )
    },
    "/topics/{topic}": {
        "get": operation(
            "Show a topic", [TOPIC], {"200": answer("A topic", {"application/json": "Topic"})}
        ),
        "put": operation(
            "Create a topic; fine if the same topic exists",
            [TOPIC],
            {"200": answer("The topic", {"application/json": "Topic"})},
            requestBody=body("Settings", {"application/json": "TopicSettings"}, required=False),
        ),
        "delete": operation(
            "Delete a topic with its events and all subscriptions to it",
            [TOPIC],
            {"204": answer("It is gone")},
        ),
    },
    "/topics/{topic}/events": {
        "post": operation(
            "Publish events; the answer comes when they are on stable storage",
            [
                TOPIC,
                PUBLISHER,
                SEQUENCE,
                parameter("confirmed", "For a reliable topic: wait for all brokers.", "boolean"),
            ],
            {"200": answer("A receipt", {"application/json": "Receipt"})},
            requestBody=body(
                "Events. CloudEvents in binary mode have ce- headers and any content type.",
                {
                    "application/json": "Event",
                    "application/x-ndjson": "Event",
                    "application/cloudevents+json": "CloudEvent",
                    "application/cloudevents-batch+json": "CloudEvents",
                },
            ),
        ),
        "get": operation(
            "Read the log between two tokens",
            [
                TOPIC,
                FROM,
                parameter("to", "Where to end: latest, or a token."),
                WHERE,
                parameter("limit", "The most events, up to 10000; without it, all.", "integer"),
                parameter("wait", "If there is none, wait this many seconds, up to 60.", "number"),
            ],
            {
                "200": {
                    **answer(
                        "Events, in the form that Accept asks for",
                        {
                            "application/x-ndjson": "Delivery",
                            "application/vnd.apache.arrow.stream": "",
                            "application/cloudevents-batch+json": "CloudEvents",
                        },
                    ),
                    "headers": {
                        "Gapless-Next": {
                            "description": "The token to go on from",
                            "schema": {"type": "string"},
                        }
                    },
                },
                "204": answer("Nothing came while the read waited"),
            },
        ),
    },
    "/topics/{topic}/publishers/{name}": {
        "post": operation(
            "Take a publisher's name over, and learn its next number",
            [TOPIC, NAME],
            {"200": answer("The next number", {"application/json": "Position"})},
        )
    },
    "/topics/{topic}/subscribe": {
        "get": operation(
            "Subscribe: server-sent events, or with Upgrade a WebSocket",
            [TOPIC, WHERE, FROM, parameter("name", "A durable subscription's name."), LAST_ID],
            {
                "200": answer(
                    "Each id is a token; gaps are events named gap", {"text/event-stream": ""}
                ),
                "101": answer("A WebSocket: JSON messages, each with a token"),
            },
        )
    },
    "/subscriptions": {
        "get": operation(
            "List the caller's named subscriptions at this broker",
            [],
            {"200": answer("Subscriptions", {"application/json": "Subscriptions"})},
        )
    },
    "/subscriptions/{name}": {
        "put": operation(
            "Create a named subscription; fine if the same one exists",
            [NAME],
            {"200": answer("The subscription", {"application/json": "Subscription"})},
            requestBody=body("Topic, condition, start", {"application/json": "Subscription"}),
        ),
        "delete": operation(
            "End a named subscription for good", [NAME], {"204": answer("It is gone")}
        ),
    },
    "/subscriptions/{name}/acknowledge": {
        "post": operation(
            "Let the broker release everything below a token",
            [NAME],
            {"204": answer("It is on stable storage")},
            requestBody=body("A token", {"application/json": "Token"}),
        )
    },
}


def fields(**properties: Fields) -> Fields:
    return {"type": "object", "properties": properties}


def many(schema: str) -> Fields:
    return {"type": "array", "items": {"$ref": f"#/components/schemas/{schema}"}}


TEXT: Fields = {"type": "string"}
WHOLE: Fields = {"type": "integer"}
VALUE: Fields = {
    "type": ["boolean", "integer", "number", "string", "object"],
    "description": (
        'An object has one of the fields float ("NaN", "Infinity", "-Infinity"), timestamp (RFC '
        "3339) and bytes (Base64)."
    ),
}
ATTRIBUTES: Fields = {"type": "object", "additionalProperties": VALUE}
SETTINGS: Fields = {
    "service": {"enum": ["durable", "reliable", "multicast"]},
    "pubends": WHOLE,
    "hosts": {"type": "array", "items": TEXT},
    "retention_seconds": {"type": "number"},
    "retention_bytes": WHOLE,
    "keep_seconds": {"type": "number"},
    "keep_bytes": WHOLE,
    "ordered": {"type": "boolean"},
}

SCHEMAS: Fields = {
    "Token": {
        "type": "object",
        "additionalProperties": WHOLE,
        "description": "By pubend: everything below this tick is consumed.",
        "examples": [{"trades/0": 1234}],
    },
    "Event": {
        **fields(attributes=ATTRIBUTES, body=TEXT, body_base64=TEXT),
        "description": "An object without these fields is the attributes themselves.",
    },
    "Delivery": {
        **fields(
            attributes=ATTRIBUTES,
            body=TEXT,
            body_base64=TEXT,
            topic=TEXT,
            pubend=TEXT,
            tick=WHOLE,
            published=TEXT,
            publisher=TEXT,
            sequence=WHOLE,
            gap=fields(start=WHOLE, end=WHOLE),
        ),
        "description": "An event; or, with gap, ticks whose events are lost.",
    },
    "CloudEvent": {
        **fields(specversion={"const": "1.0"}, id=TEXT, source=TEXT, type=TEXT),
        "required": ["specversion", "id", "source", "type"],
    },
    "CloudEvents": many("CloudEvent"),
    "Receipt": {
        "oneOf": [
            fields(receipts={"type": "array", "items": fields(pubend=TEXT, tick=WHOLE)}),
            fields(publisher=TEXT, first=WHOLE, next=WHOLE, repeated=WHOLE),
        ],
        "description": "Without a publisher's name, and with one.",
    },
    "Position": fields(publisher=TEXT, next=WHOLE),
    "TopicSettings": fields(**SETTINGS),
    "Topic": fields(name=TEXT, **{**SETTINGS, "pubends": {}}),
    "Topics": fields(topics=many("Topic")),
    "Subscription": fields(
        name=TEXT,
        topic=TEXT,
        where=TEXT,
        **{"from": {"type": ["string", "object"]}},
        attached={"type": "boolean"},
        acknowledged={**TEXT, "description": "A token"},
    ),
    "Subscriptions": fields(subscriptions=many("Subscription")),
    "Problem": fields(
        type=TEXT, title=TEXT, status=WHOLE, detail=TEXT, remedy=TEXT, position=WHOLE, caret=TEXT
    ),
}


def document() -> Fields:
    """The OpenAPI document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gapless",
            "version": "1",
            "summary": "Publish/subscribe that never leaves a silent gap",
        },
        "paths": PATHS,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def page() -> str:
    """The document as HTML, without scripts and without anything from elsewhere."""
    rows = "".join(
        f"<tr><td><code>{method.upper()}</code></td><td><code>{escape(path)}</code></td>"
        f"<td>{escape(found['summary'])}{shown_parameters(found.get('parameters', []))}</td></tr>"
        for path, methods in PATHS.items()
        for method, found in methods.items()
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>gapless</title>'
        '<meta name="viewport" content="width=device-width">'
        "<style>:root{color-scheme:light dark}body{font:16px/1.5 system-ui;max-width:64rem;"
        "margin:2rem auto;padding:0 1rem}td{padding:.4rem .8rem .4rem 0;vertical-align:top}"
        "dl{margin:.3rem 0;font-size:.85em}dt{float:left;margin-right:.5em}</style>"
        "<h1>gapless over HTTP</h1><p>The same as <a href=openapi.json>OpenAPI</a>.</p>"
        f"<table>{rows}</table>"
    )


def shown_parameters(parameters: list[Fields]) -> str:
    rows = "".join(
        f"<dt><code>{escape(each['name'])}</code></dt><dd>{escape(each['description'])}</dd>"
        for each in parameters
        if each["in"] != "path"
    )
    return f"<dl>{rows}</dl>" if rows else ""
