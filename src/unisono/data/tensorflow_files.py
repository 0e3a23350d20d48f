"""The files a `tf.data` pipeline reads: their names and sizes, the same on all workers, and who gets which."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from unisono.data import pieces, tensorflow_seeds
from unisono.data.file_difference import SORT, difference
from unisono.data.tensorflow_arguments import components_read
from unisono.data.tensorflow_graph import PipelineGraph
from unisono.data.tensorflow_stages import Stage
from unisono.errors import ConfigurationError, DataError, DivergenceError

_MANY = 1_000_000
"""Length from which a list of files counts as not known."""


@dataclass(frozen=True)
class Files:
    """The files of one stage.

    Args:
        names: Names, once each, in the order of the list.
        sizes: Bytes of each; None where that is not known.
    """

    names: tuple[str, ...]
    sizes: tuple[int | None, ...]

    @property
    def all_sizes(self) -> list[int] | None:
        """Bytes of each file, or None if one is not known."""
        known = [size for size in self.sizes if size is not None]
        return known if len(known) == len(self.sizes) else None


def text_of(name: bytes) -> str:
    """Returns the name of a file as text, whatever its bytes."""
    return name.decode(errors="replace")


def names_at(graph: PipelineGraph, stage: Stage, spec: Any) -> int | None:
    """Returns which component of the elements of a list of files is the name; None if none is it by itself.

    Args:
        graph: The pipeline.
        stage: Where it opens the files.
        spec: Element spec of the list, of flat components.
    """
    components = spec if isinstance(spec, tuple) else (spec,)
    texts = [at for at, each in enumerate(components) if each.dtype == tf.string and each.shape.rank == 0]
    read = components_read(graph.graph, stage.node)
    return next((at for at in texts if not read or read == {at}), None)


def files_of(graph: PipelineGraph, stages: Sequence[Stage], *, sized: bool) -> list[Files | None]:
    """Returns the files of each stage as this worker sees them; None where they cannot be listed.

    Args:
        graph: The pipeline.
        stages: Where it opens files.
        sized: Whether to ask for their sizes.
    """
    found = [_names(graph, stage) for stage in stages]
    return [None if names is None else Files(names, sizes_of(names) if sized else ()) for names in found]


def compare(mine: Sequence[Files | None], chief: Sequence[Files | None]) -> None:
    """Compares the files of this worker with the chief's.

    Raises:
        DivergenceError: If this worker sees other files.
    """
    if len(mine) != len(chief):
        raise DivergenceError(
            f"This worker's tf.data pipeline opens files in {len(mine)} places, the chief's in {len(chief)}.",
            remedy="build the same pipeline on all workers.",
        )
    for here, there in zip(mine, chief, strict=True):
        if here is not None and there is not None and here.names != there.names:
            if set(here.names) == set(there.names):
                raise DivergenceError(
                    "This worker's tf.data pipeline reads the files in another order than the chief's.", remedy=SORT
                )
            raise DivergenceError(
                f"This worker's tf.data pipeline reads other files than the chief's, {len(here.names):,} of them where "
                f"the chief has {len(there.names):,}: "
                f"{difference(dict.fromkeys(here.names), dict.fromkeys(there.names))}.",
                remedy="give all workers the same list of files. If the script shares them out by itself, say so: "
                "options = tf.data.Options(); options.experimental_distribute.auto_shard_policy = "
                "tf.data.experimental.AutoShardPolicy.OFF; dataset = dataset.with_options(options).",
            )


class Among:
    """Tells whether the file of an element is one of some, as a filter.

    Args:
        names: The files.
        at: Which component of an element is the name.
    """

    def __init__(self, names: Sequence[str], at: int) -> None:
        self._names = tf.constant(list(names), tf.string)
        self._at = at

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def __call__(self, *element: Any) -> Any:
        """Returns whether to keep an element, as a tensor."""
        return tf.reduce_any(tf.equal(self._names, element[self._at]))


def check_sizes(names: Sequence[str], sizes: Sequence[int | None]) -> None:
    """Compares the sizes of files that this worker is going to read with those that the chief sees.

    Raises:
        DivergenceError: If a file has another size here, or is not here at all.
    """
    for name, here, there in zip(names, sizes_of(names), sizes, strict=True):
        if there is not None and here != there:
            what = "does not exist here" if here is None else f"has {here:,} bytes here"
            raise DivergenceError(
                f"{name} {what}, but {there:,} bytes on the chief's host.",
                remedy="give all workers the same files.",
            )


def check_whole(names: Sequence[str], sizes: Sequence[int], rank: int) -> None:
    """Compares files that have been read with what was there to be read.

    Args:
        names: The files.
        sizes: Bytes of each when the workers shared them.
        rank: This worker.

    Raises:
        DataError: If a file has become shorter: then records are missing that nobody has noticed.
    """
    for name, here, there in zip(names, sizes_of(names), sizes, strict=True):
        if here is not None and here < there:
            raise DataError(
                f"Worker {rank} cannot read its data: {name} has {here:,} bytes now; it had {there:,} when the workers "
                "shared it.",
                remedy="leave the files alone while they are read.",
                rank=rank,
            )


def sizes_of(names: Sequence[str]) -> tuple[int | None, ...]:
    """Returns the bytes of each file; None for what cannot be asked, and for folders."""
    with ThreadPoolExecutor(min(16, len(names) or 1)) as pool:
        return tuple(pool.map(_size, names))


def number_of(files: Sequence[Files | None], paired: bool) -> int | None:
    """Returns how many files a pipeline reads; None if that is not known.

    Args:
        files: The files of each stage; None where they are not known.
        paired: Whether a worker must get the same number of files of each stage.

    Raises:
        ConfigurationError: If they must come in pairs and do not.
    """
    known = [len(listed.names) for listed in files if listed is not None]
    if len(known) < len(files):
        return None
    if paired and len(set(known)) > 1:
        raise ConfigurationError(
            f"auto_shard_policy=FILE, but the pipeline joins data sets of {' and '.join(map(str, known))} files.",
            remedy="use AutoShardPolicy.AUTO or DATA, or write the same number of files for each.",
        )
    return known[0] if paired else sum(known)


def owners_of(files: Sequence[Files | None], paired: bool, size: int) -> list[list[list[int]] | None]:
    """Returns, for each stage and worker, the positions of its files; None for stages whose files are not known.

    Args:
        files: The files of each stage.
        paired: Whether a worker must get the files at the same positions of each stage.
        size: Number of workers.
    """
    if paired:
        first = next((listed for listed in files if listed is not None), None)
        owners = None if first is None else pieces.whole_files(first.sizes, size)
        return [owners if listed is not None else None for listed in files]
    at = [(i, j) for i, listed in enumerate(files) if listed is not None for j in range(len(listed.names))]
    sizes = [listed.sizes[j] for i, j in at if (listed := files[i]) is not None]
    whole = pieces.whole_files(sizes, size)
    return [
        None if listed is None else [[at[k][1] for k in mine if at[k][0] == i] for mine in whole]
        for i, listed in enumerate(files)
    ]


def _size(name: str) -> int | None:
    try:
        found = tf.io.gfile.stat(name)
    except tf.errors.OpError:
        return None
    return None if found.is_directory else int(found.length)


def _names(graph: PipelineGraph, stage: Stage) -> tuple[str, ...] | None:
    if stage.tensor is not None:
        values = graph.value(graph.copy(), stage.tensor).numpy().reshape(-1)
    elif stage.base is not None and not tensorflow_seeds.varies_before(graph.graph, stage.base):
        listed = graph.at(graph.copy(), stage.base)
        at = names_at(graph, stage, listed.element_spec)
        if at is None:
            return None
        elements = listed.take(_MANY + 1).as_numpy_iterator()
        values = [element[at] if isinstance(element, tuple) else element for element in elements]
        if len(values) > _MANY:
            return None
    else:
        return None
    return tuple(dict.fromkeys(text_of(value) for value in values))
