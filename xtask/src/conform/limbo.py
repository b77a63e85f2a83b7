"""Makes the cases of x509-limbo, with leaves of clients where it has those of servers.

usage: limbo.py FILE

Writes them as JSON. Cases from elsewhere, which the repository only stores, are left out.
"""

import inspect
import pathlib
import sys

from cryptography import x509
from limbo import testcases
from limbo.models import Limbo
from limbo.testcases import _core

SERVERS, CLIENTS = (x509.ExtendedKeyUsage([it]) for it in (x509.OID_SERVER_AUTH, x509.OID_CLIENT_AUTH))

make = _core.Builder.leaf_cert
usual = inspect.signature(make).parameters["eku"].default
of_client = type(usual)(CLIENTS, critical=usual.critical)


def leaf(self, *arguments, eku=of_client, **named):
    if eku is not None and eku.ext == SERVERS:
        eku = type(eku)(CLIENTS, critical=eku.critical)
    return make(self, *arguments, eku=eku, **named)


_core.Builder.leaf_cert = leaf
cases = [case() for case in testcases.registry.values()]
suite = Limbo(version=1, testcases=cases)
pathlib.Path(sys.argv[1]).write_text(suite.model_dump_json())
