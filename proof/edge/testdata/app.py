"""Says what WSGI and Python's library read in a request.

X-Seen says what a message is about, the body what a limit may be about.
"""

import hashlib
import http.cookies
import json
import posixpath
import urllib.parse


def app(environ, start_response):
    data = environ["wsgi.input"].read()
    target = environ.get("RAW_URI") or environ.get("REQUEST_URI", "-")
    seen = [
        environ["REQUEST_METHOD"], target, environ.get("HTTP_HOST", "-"),
        str(len(data)), hashlib.sha256(data).hexdigest()[:8], environ.get("HTTP_USER_AGENT", "-"),
    ]
    cookies = http.cookies.SimpleCookie()
    try:
        cookies.load(environ.get("HTTP_COOKIE", ""))
    except http.cookies.CookieError:
        pass
    path = posixpath.normpath(environ.get("PATH_INFO", ""))
    body = json.dumps({
        "method": environ["REQUEST_METHOD"].upper(),  # as Django and Werkzeug read it
        "header": environ.get("HTTP_X_API_KEY", ""),
        "query": urllib.parse.parse_qs(environ.get("QUERY_STRING", "")).get("sku_id", [""])[0],
        "cookie": cookies["session"].value if "session" in cookies else "",
        "admin": path == "/admin" or path.startswith("/admin/"),
        "length": environ.get("HTTP_CONTENT_LENGTH", ""),
    }).encode()
    start_response("200 OK", [
        ("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("X-Seen", " ".join(seen)),
    ])
    return [body]


application = app  # uWSGI's name for it
