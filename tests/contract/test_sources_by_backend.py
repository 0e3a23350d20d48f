"""What depends on Keras's backend: ragged and sparse inputs, floatx, processes; one fresh process for each backend."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = r"""
import numpy as np, scipy.sparse, keras, sys, warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", message=".*multi-threaded.*fork")   # Python 3.12 and later
from minutes import in_turn
from unisono.data.select import make_source

backend = sys.argv[1]
assert keras.backend.backend() == backend

def rows(build, size=3, **options):
    def work(rank, size, agreement):
        source = make_source(**build(), rank=rank, size=size, agreement=agreement)
        source.sample()
        return [list(source.epoch()) for _ in range(1)][0]
    return [p.data[0] for parts in zip(*in_turn(size, work)) for p in parts if p.data]

class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 4
    def __getitem__(self, k):
        return np.full((4, 1), k), np.full((4,), k)

if backend == "torch":   # forked processes: not beside the threads of JAX or TensorFlow
    import multiprocessing, torch
    from torch.utils.data import DataLoader, IterableDataset, TensorDataset

    def ids(parts):
        return [int(i) for p in parts for i in p[:, 0]]

    parts = rows(lambda: dict(x=Batches(workers=2, use_multiprocessing=True)), size=2)
    assert ids(parts) == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4, ids(parts)

    column = torch.arange(11.0)[:, None]
    doubled = lambda examples: torch.stack([2 * e[0] for e in examples])
    for persistent in (False, True):
        options = dict(batch_size=4, num_workers=1, collate_fn=doubled, drop_last=True, persistent_workers=persistent)
        parts = rows(lambda: dict(x=DataLoader(TensorDataset(column), **options)), size=2)
        assert ids(parts) == [2 * i for i in range(8)], ids(parts)

    class Stream(IterableDataset):
        def __iter__(self):
            return (column[i] for i in torch.randperm(11).tolist())

    parts = rows(lambda: dict(x=DataLoader(Stream(), batch_size=4, num_workers=1)), size=2)
    assert sorted(ids(parts)) == list(range(11)) != ids(parts), ids(parts)
    import gc; gc.collect()
    assert not multiprocessing.active_children()
import tensorflow as tf

def dense(a):
    if isinstance(a, tf.SparseTensor):
        return tf.sparse.to_dense(a).numpy()
    if isinstance(a, tf.RaggedTensor):
        return a.to_tensor(shape=[None, 5]).numpy()
    assert isinstance(a, np.ndarray), type(a)
    return a

ragged = tf.ragged.constant([[1.], [2., 3.], [], [4., 5., 6.], [7.]])
full = ragged.to_tensor().numpy()
sparse = tf.sparse.from_dense(full)
for x in (ragged, sparse, scipy.sparse.coo_matrix(full)):
    for build in (lambda: dict(x=x, batch_size=5, shuffle=True), lambda: dict(x=x, batch_size=4)):
        parts = rows(build)
        kinds = {type(p).__name__ for p in parts}
        own = "RaggedTensor" if x is ragged else "SparseTensor"
        assert kinds == {own if backend == "tensorflow" else "ndarray"}, kinds
        if backend != "tensorflow" and x is ragged:
            widths = [p.shape[1] for p in parts]
            assert widths in ([3] * 3, [3] * 3 + [1]), widths   # the width of the global batch
        found = np.concatenate([np.pad(dense(p), ((0, 0), (0, 5 - dense(p).shape[1]))) for p in parts])
        assert sorted(map(tuple, found[:, :3])) == sorted(map(tuple, full)), found
        assert found.dtype == "float32"
for x in (ragged, sparse):
    parts = rows(lambda: dict(x=tf.data.Dataset.from_tensor_slices(x).batch(4)))
    found = np.concatenate([np.pad(dense(p), ((0, 0), (0, 5 - dense(p).shape[1]))) for p in parts])
    assert np.array_equal(found[:, :3], full), found

keras.config.set_floatx("float64")
assert rows(lambda: dict(x=np.ones((4, 1), "float32")))[0].dtype == "float64"

print("done")
"""


@pytest.mark.timeout(400)  # a fresh process imports up to three frameworks
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_inputs_on_each_backend(backend: str) -> None:
    environment = {
        **os.environ,
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], *filter(None, sys.path)]),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, backend], env=environment, capture_output=True, text=True, timeout=360
    )
    assert done.returncode == 0 and done.stdout.strip() == "done", done.stderr[-3000:]
