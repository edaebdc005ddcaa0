"""The files that configurations serve and include: the same for both, with a fixed time of modification."""

import gzip
import os

MODIFIED = 1_700_000_000

PAGE = "<!DOCTYPE html><html><head><title>{0}</title></head><body><h1>{0}</h1>" + "<p>Some text.</p>\n" * 30 + "</body></html>\n"

DOCUMENTS = {
    **{path: PAGE.format(path) for path in (
        "index.html", "about.html", "404.html", "50x.html", "maintenance.html", "docs/index.html", "app/index.html",
        "blog/index.html", "blog/first.html", "downloads/readme.html", "error/403.html")},
    "css/site.css": "body { margin: 0 }\n" * 100,
    "js/app.js": "console.log('app');\n" * 200,
    "js/app.3f2a9c.js": "console.log('hashed');\n" * 200,
    "img/logo.png": "\x89PNG\r\n\x1a\n" + "x" * 500,
    "img/photo.jpg": "JFIF" * 300,
    "fonts/text.woff2": "wOF2" * 200,
    "favicon.ico": "icon" * 50,
    "robots.txt": "User-agent: *\nDisallow: /private/\n",
    "data.json": '{"a": [1, 2, 3]}\n' * 40,
    "feed.xml": "<?xml version='1.0'?><feed/>\n" * 20,
    "empty.txt": "",
    "big.txt": "".join(f"line {n}\n" for n in range(4000)),
    "with space.txt": "a space\n",
    "percent%41.txt": "a percent sign\n",
    "na\u00efve.txt": "an umlaut\n",
    "noextension": "no extension\n",
    "archive.tar.gz": "not really packed\n",
    ".htaccess": "Deny from all\n",
    ".git/config": "[core]\n",
    ".well-known/acme-challenge/token": "token.thumbprint\n",
    "private/secret.html": PAGE.format("secret"),
    "uploads/2024/05/picture.jpg": "JFIF" * 100,
    "uploads/shell.php": "<?php ?>",
    "protected/css/site.css": "protected { }\n" * 20,
    "listing/a.txt": "a", "listing/b.txt": "bb", "listing/sub/c.txt": "c",
    "docs/guide.html": PAGE.format("guide"),
}

TYPES = {
    "text/html": "html htm", "text/css": "css", "text/xml": "xml rss", "text/plain": "txt", "image/png": "png",
    "image/jpeg": "jpeg jpg", "image/gif": "gif", "image/svg+xml": "svg", "image/x-icon": "ico", "font/woff2": "woff2",
    "application/javascript": "js", "application/json": "json", "application/pdf": "pdf", "application/zip": "zip",
}


def make(directory):
    """Makes `www` and `etc` in the directory."""
    www, etc = directory / "www", directory / "etc"
    for path, text in DOCUMENTS.items():
        write(www / path, text.encode("latin-1" if text.startswith("\x89") else "utf-8"))
    # One file is there packed as well, and one only packed.
    write(www / "css/site.css.gz", gzip.compress(DOCUMENTS["css/site.css"].encode(), mtime=0))
    write(www / "js/only.js.gz", gzip.compress(b"only();\n" * 100, mtime=0))
    write(etc / "mime.types", "".join(f"    {kind} {names};\n" for kind, names in TYPES.items()).join(
        ("types {\n", "}\n")).encode())
    # htpasswd -B is slow on purpose, so the password is in SHA-1: "secret".
    write(etc / "htpasswd", b"jane:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\njoe:{PLAIN}open\n")
    write(etc / "proxy_params", b"proxy_set_header Host $http_host;\nproxy_set_header X-Real-IP $remote_addr;\n"
                                b"proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n"
                                b"proxy_set_header X-Forwarded-Proto $scheme;\n")
    write(etc / ".htpasswd", (etc / "htpasswd").read_bytes())
    for kind in ("fastcgi", "uwsgi"):
        write(etc / f"{kind}_params", f"{kind}_param REQUEST_METHOD $request_method;\n{kind}_param QUERY_STRING $query_string;\n".encode())
    write(etc / "geo.txt", b"127.0.0.0/8 local;\n10.0.0.0/8 office;\n203.0.113.0/24 partner;\n")
    write(etc / "redirects.map", b"/old-page /about.html;\n/old-blog /blog/;\n/caf%C3%A9 /menu;\n")
    for path in [*www.rglob("*"), www]:
        os.utime(path, (MODIFIED, MODIFIED))


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
