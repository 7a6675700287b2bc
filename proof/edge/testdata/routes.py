"""Serves routes as WSGI frameworks do: by the decoded path, without its final slash."""

import json


def app(environ, start_response):
    path = environ.get("PATH_INFO", "")
    bare = path.rstrip("/") or "/"
    parts = bare.split("/")[1:]
    if bare in ("/checkout", "/sale"):
        served = bare[1:]
    elif parts[0] in ("api", "static"):
        served = parts[0]
    elif parts[0] == "item" and len(parts) == 2 and parts[1]:
        served = "item"
    else:
        served = "page"
    body = json.dumps({"served": served}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
