"""Fails when a private name of JAX that the package leans on moves, or comes to mean something else."""

import subprocess
import sys

import pytest

pytest.importorskip("jax")

INLINE = """
import threading
import jax, numpy as np
from unisono.backends.jax_private import computes_inline, run_inline
assert not computes_inline()
assert run_inline()
assert computes_inline()
seen = []
def note(x):
    seen.append(threading.get_ident())
    return x
shape = jax.ShapeDtypeStruct((), np.float32)
jax.jit(lambda x: jax.pure_callback(note, shape, x))(np.float32(1)).block_until_ready()
assert not run_inline(), "JAX has begun to work, and does not ask any more"
print(seen == [threading.get_ident()])
"""


def test_jax_computes_in_the_thread_that_asks_for_it():
    done = subprocess.run([sys.executable, "-c", INLINE], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "True", done.stderr
