"""TF_CONFIG: the JSON that lists a cluster and says which task this process is, read and written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from unisono import env
from unisono.cluster import address
from unisono.cluster.forgiving_json import decoded, lower_keys, mapping
from unisono.cluster.spec import Address, Cluster, Declined, Task
from unisono.errors import ClusterError

NAME = "TF_CONFIG"
EXAMPLE = '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'

_TRAINING_ROLES = ("chief", "worker")
_ROLES = (*_TRAINING_ROLES, "evaluator")
_SPELLINGS = {"master": "chief"}


def resolve(environ: Mapping[str, str]) -> Cluster | Declined:
    """Returns the cluster that the variable TF_CONFIG describes, or why it describes none.

    Args:
        environ: The environment to look in.

    Raises:
        ClusterError: If TF_CONFIG is set and wrong.
    """
    text = env.read(NAME, environ)
    if text is None:
        return Declined("TF_CONFIG is not set" if NAME not in environ else "TF_CONFIG is empty")
    config = read_json(text)
    if not config:
        return Declined(f"TF_CONFIG={text} is empty")
    return from_mapping(config)


def parse(text: str) -> Cluster:
    """Returns the cluster that a TF_CONFIG text describes.

    Raises:
        ClusterError: If the text is not JSON or describes no cluster that can work.
    """
    return from_mapping(read_json(text))


def write(cluster: Cluster, rank: int | None = None) -> str:
    """Returns the TF_CONFIG text for one process of a cluster.

    Args:
        cluster: A cluster whose addresses are known.
        rank: For which worker; the process that `cluster` itself is written for if None.

    Raises:
        ClusterError: If the cluster has no addresses, because an MPI launcher holds them.
    """
    if len(cluster.addresses) != cluster.size:
        raise ClusterError(f"The addresses of the {cluster.size} workers from {cluster.source} are not known.")
    task = cluster.task if rank is None else cluster.tasks[rank]
    jobs: dict[str, list[str]] = {}
    for of, where in zip(cluster.tasks, cluster.addresses, strict=True):
        jobs.setdefault(of.type, []).append(str(where))
    if cluster.evaluators:
        jobs["evaluator"] = [str(where) for where in cluster.evaluators]
    return json.dumps({"cluster": jobs, "task": {"type": task.type, "index": task.index}})


def read_json(text: str) -> dict[str, Any]:
    """Returns the object that a TF_CONFIG text holds.

    Raises:
        ClusterError: If it is not JSON (the message shows where), or not an object.
    """
    return _object(text, NAME)


def from_mapping(config: Mapping[str, Any], source: str = NAME) -> Cluster:
    """Returns the cluster that a decoded TF_CONFIG describes.

    Args:
        config: Has the keys "cluster" (addresses by role) and "task" ("type" and "index"); others are ignored.
        source: Where it came from, for messages.

    Returns:
        The cluster. Rank 0 is the chief: the task of that role, or worker 0 when there is none. A cluster of
        one worker, and an evaluator's, need no meeting (`bootstrap` is "none").

    Raises:
        ClusterError: If it cannot work.
    """
    config = lower_keys(config, source)
    jobs = _jobs(config.get("cluster"), source)
    type_, index = _task(config.get("task"), source)
    addresses = tuple(entry for role in _TRAINING_ROLES for entry in jobs.get(role, ()))
    tasks = tuple(Task(role, i) for role in _TRAINING_ROLES for i in range(len(jobs.get(role, ()))))
    evaluators = jobs.get("evaluator", ())
    if len(jobs.get("chief", ())) > 1:
        raise ClusterError(
            f"{source} lists {len(jobs['chief'])} chiefs: {_joined(jobs['chief'])}; a job has one.",
            remedy='move the others to "worker".',
        )
    if not tasks and evaluators:
        raise ClusterError(f"{source} lists evaluators but no worker.", remedy=f"write for example {EXAMPLE}.")
    _refuse_duplicates(tasks, addresses, source)
    if type_ == "evaluator":
        _check_index(type_, index, len(evaluators), source, listed=bool(evaluators))
        alone = Task("worker", 0)
        return Cluster(
            tasks=tasks or (alone,),
            addresses=addresses,
            rank=0,
            source=source,
            is_evaluator=True,
            bootstrap="none",
            evaluators=evaluators,
            evaluator_index=index or 0,
        )
    rank = _rank(type_, index, tasks, source)
    return Cluster(
        tasks=tasks or (Task(type_ or "worker", 0),),
        addresses=addresses,
        rank=rank,
        source=source,
        bootstrap="coordinator" if len(tasks) > 1 else "none",
        evaluators=evaluators,
    )


def _rank(type_: str | None, index: int | None, tasks: tuple[Task, ...], source: str) -> int:
    """Returns which of the tasks this process is."""
    if not tasks:
        if index:
            raise ClusterError(
                f"{source} says that this process is {type_ or 'task'} {index}, but lists no cluster.",
                remedy=f"add the addresses of all workers, for example {EXAMPLE}.",
            )
        return 0
    if type_ is None or index is None:
        if len(tasks) == 1:
            return 0
        missing = "task" if type_ is None and index is None else "task type" if type_ is None else "task index"
        raise ClusterError(
            f"{source} lists {len(tasks)} workers but gives no {missing}, so this process cannot know which it is.",
            remedy='add for example "task": {"type": "worker", "index": 0}, with another index in each process.',
        )
    roles = [task.type for task in tasks]
    if type_ not in roles:
        raise ClusterError(
            f"{source} says that this process is {type_} {index}, but its cluster lists no {type_!r} "
            f"(only {_joined(sorted(set(roles)))}).",
            remedy=f'add its address under "cluster", or set the task type to {roles[0]!r}.',
        )
    _check_index(type_, index, roles.count(type_), source)
    return tasks.index(Task(type_, index))


def _check_index(type_: str, index: int | None, count: int, source: str, listed: bool = True) -> None:
    if index is not None and listed and index >= count:
        valid = "index 0" if count == 1 else f"an index from 0 to {count - 1}"
        raise ClusterError(
            f"{source} says that this process is {type_} {index}, but its cluster lists {count} of that role.",
            remedy=f"use {valid}, or list the missing addresses.",
        )


def _refuse_duplicates(tasks: tuple[Task, ...], addresses: tuple[Address, ...], source: str) -> None:
    seen: dict[tuple[str, int], Task] = {}
    for task, where in zip(tasks, addresses, strict=True):
        first = seen.setdefault((where.host.lower(), where.port), task)
        if first is not task:
            raise ClusterError(
                f"{source} gives the address {where} to both {first.type} {first.index} and {task.type} {task.index}.",
                remedy="give each worker an address of its own; workers on one host need different ports.",
            )


def _jobs(value: Any, source: str) -> dict[str, tuple[Address, ...]]:
    """Returns the addresses by role, in this package's names of the roles."""
    if value is None:
        return {}
    jobs: dict[str, tuple[Address, ...]] = {}
    written: dict[str, str] = {}
    where = f'"cluster" of {source}'
    for name, entries in _object(value, where).items():
        addresses = _addresses(name, entries, source)
        if not addresses:
            continue
        role = _role(name, source)
        if role in jobs:
            raise ClusterError(
                f'{source} lists both "{written[role]}" and "{name}", which are the same role.',
                remedy="keep one of them.",
            )
        jobs[role], written[role] = addresses, name
    return jobs


def _role(name: Any, source: str) -> str:
    """Returns the role that a name in TF_CONFIG means."""
    role = str(name).strip().lower()
    role = _SPELLINGS.get(role, role)
    if role == "ps":
        raise ClusterError(
            f'{source} has the role "{name}" (parameter server), which MultiWorkerMirroredStrategy does not support.',
            remedy="leave out the parameter servers and start every process as chief or worker: "
            "each holds the whole model.",
        )
    if role not in _ROLES:
        raise ClusterError(
            f'{source} has the role "{name}", which is not supported.',
            remedy=f"use {_joined(_ROLES)} (master means chief).",
        )
    return role


def _addresses(role: str, entries: Any, source: str) -> tuple[Address, ...]:
    """Returns the addresses of one role: a list, or an object from index to address as TensorFlow allows."""
    if entries is None:
        return ()
    if isinstance(entries, Mapping):
        by_index = {_integer(key, f'an index in "{role}" of {source}'): entry for key, entry in entries.items()}
        if sorted(by_index) != list(range(len(by_index))):
            raise ClusterError(
                f'{source} numbers the tasks of "{role}" {_joined(sorted(by_index))}; they must be numbered from 0 '
                "without gaps.",
            )
        entries = [by_index[i] for i in range(len(by_index))]
    if not isinstance(entries, list | tuple):
        raise ClusterError(
            f'"{role}" of {source} must be a list of "host:port". Received: {entries!r}.',
            remedy=f'write "{role}": ["host0:2222", "host1:2222"].',
        )
    return tuple(address.parse(entry, f"{role} {i}", source) for i, entry in enumerate(entries))


def _task(value: Any, source: str) -> tuple[str | None, int | None]:
    """Returns the type and index of this process's task, each None if not given."""
    if value is None:
        return None, None
    where = f'"task" of {source}'
    task = lower_keys(_object(value, where), where)
    type_ = task.get("type")
    if type_ is not None and not isinstance(type_, str):
        raise ClusterError(f'The task type in {source} must be a text such as "worker". Received: {type_!r}.')
    given = {key: task[key] for key in ("index", "id") if task.get(key) is not None}
    indices = {_integer(number, f"the task {key} in {source}") for key, number in given.items()}
    if len(indices) > 1:
        raise ClusterError(f"{where} gives both index {task['index']!r} and id {task['id']!r}.")
    return (_role(type_, source) if type_ and type_.strip() else None), (indices.pop() if indices else None)


def _integer(value: Any, what: str) -> int:
    """Returns a whole number of 0 or more that may be written as a text."""
    # More than `int` takes, such as "1_0", is a mistake here.
    digits = value.strip() if isinstance(value, str) else str(value)
    plain = digits.isascii() and digits.isdecimal() and len(digits) < 10
    if isinstance(value, bool) or not isinstance(value, int | str) or not plain:
        raise ClusterError(f"{what[0].upper()}{what[1:]} must be a number from 0. Received: {value!r}.")
    return int(digits)


def _object(value: Any, what: str) -> dict[str, Any]:
    return mapping(decoded(value, what, EXAMPLE), what, EXAMPLE)


def _joined(items: Iterable[object]) -> str:
    return ", ".join(str(item) for item in items)
