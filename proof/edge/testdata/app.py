"""Says what WSGI and Python's library read in a request."""

import http.cookies
import json
import posixpath
import urllib.parse


def app(environ, start_response):
    cookies = http.cookies.SimpleCookie()
    try:
        cookies.load(environ.get("HTTP_COOKIE", ""))
    except http.cookies.CookieError:
        pass
    path = posixpath.normpath(environ.get("PATH_INFO", ""))
    body = json.dumps({
        "header": environ.get("HTTP_X_API_KEY", ""),
        "query": urllib.parse.parse_qs(environ.get("QUERY_STRING", "")).get("sku_id", [""])[0],
        "cookie": cookies["session"].value if "session" in cookies else "",
        "admin": path == "/admin" or path.startswith("/admin/"),
        "length": environ.get("HTTP_CONTENT_LENGTH", ""),
    }).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
