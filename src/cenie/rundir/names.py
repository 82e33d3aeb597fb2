"""Names from elsewhere as names of files: the only way from a domain, suite or column to a path. No JAX."""

import hashlib
import re

_LONGEST = 120
"""Bytes: most file systems take 255, and a name gets a beginning and an end yet."""


def file_name(text: str) -> str:
    """A name of one file, in no other directory, by which people know the text again.

    Letters, digits and `_.+-` stay; colons, blanks and @ become hyphens. If anything else has to go, the name
    ends with a few digits of the hash of the whole text, so that different texts have different names.
    """
    plain = re.sub(r"[:@ ]", "-", text)
    kept = re.sub(r"[^\w.+-]+", "-", plain).lstrip(".")
    kept = kept.encode()[:_LONGEST].decode(errors="ignore")
    if kept == plain and kept:
        return kept
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{kept}-{digest}" if kept else digest
