"""Addresses of model servers, however a person writes them."""

from __future__ import annotations

from urllib.parse import urlsplit

_TAILS = ("/chat/completions", "/responses", "/messages", "/models")


def normal_url(api: str, url: str) -> str:
    """The base that the wire format appends its path to: without a trailing slash, with or
    without `/v1` as the format wants it. An address without a scheme gets one."""
    url = url.strip()
    if not url:
        return ""
    if "://" not in url:
        url = ("http://" if is_loopback(f"http://{url}") else "https://") + url
    if host_of(url) is None:
        return url
    url = url.rstrip("/")
    for tail in _TAILS:
        url = url.removesuffix(tail)
    url = url.rstrip("/")
    if api == "anthropic":
        return url.removesuffix("/v1")
    if api == "gemini":
        return url.removesuffix("/v1beta").removesuffix("/v1")
    return url + "/v1" if _path(url) == "" else url


def ollama_url(host: str) -> str:
    """OLLAMA_HOST as Ollama reads it: the port may be missing, and may be a listening address."""
    url = host.strip().rstrip("/")
    url = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80 if "://" in host else 11434)
        name = parts.hostname or "localhost"
    except ValueError:
        return url
    name = "127.0.0.1" if name == "0.0.0.0" else f"[{name}]" if ":" in name else name  # noqa: S104 - compared
    return f"{parts.scheme}://{name}:{port}{parts.path}"


def host_of(url: str) -> str | None:
    """Host and port, lower-case; None when this is no http or https URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return f"{parts.hostname}:{port}" if port else parts.hostname


def origin_of(url: str) -> tuple[str, str] | None:
    """Scheme and host: what has to be the same for a secret to go to the same place."""
    host = host_of(url)
    return None if host is None else (urlsplit(url).scheme, host)


def is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host in ("localhost", "::1", "0.0.0.0") or host.endswith(".localhost"):  # noqa: S104 - compared, not bound
        return True
    return host.startswith("127.") and host.replace(".", "").isdigit()


def _path(url: str) -> str:
    try:
        return urlsplit(url).path.strip("/")
    except ValueError:
        return ""
