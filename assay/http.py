"""What both servers, of the judge and of the viewer, refuse."""

AMBIGUOUS = {b"content-length", b"transfer-encoding"}
"""Headers: with both, a proxy and this server may see two different requests in the same bytes."""
