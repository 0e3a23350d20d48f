"""From a cluster to a running job: control plane, then engine.

runtime = connect(cluster, options)
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable

from unisono import env, log
from unisono.clock import Deadline
from unisono.cluster.spec import Address, Cluster
from unisono.collectives.base import Collectives
from unisono.collectives.loopback import Alone
from unisono.collectives.objects import all_gather_object, broadcast_object
from unisono.collectives.options import CommunicationOptions, require_engine
from unisono.control import children, coordinator, identity, interfaces, verdicts
from unisono.control.client import Client
from unisono.control.coordinator import Coordinator
from unisono.control.meeting import Endpoint, meet, open_pmi
from unisono.control.membership import Plan
from unisono.control.progress import Progress
from unisono.control.sockets import is_loopback
from unisono.control.watch import ControlWatch
from unisono.data import randomness
from unisono.errors import ClusterError, ConfigurationError, UnisonoError, WorkerFailedError
from unisono.log import logger
from unisono.runtime.job import FAIL_SECONDS, Line, Runtime

_live: list[Runtime] = []


def connect(cluster: Cluster, options: CommunicationOptions, *, startup_seconds: float | None = None) -> Runtime:
    """Meets the other workers and starts the engine between them.

    MPI can be started once in a process: while a runtime is live, the same cluster gets the same runtime.

    Args:
        cluster: Who is in the job.
        options: How arrays are exchanged, and how long a worker may be late.
        startup_seconds: How long to wait for the others; `options` or `UNISONO_STARTUP_TIMEOUT` decide if None.

    Returns:
        The running job.

    Raises:
        StartupError: If the workers have not all met in time.
        ConfigurationError: If this process is in a job with another cluster, or its job is over, or it was started by
            the worker that it would be.
    """
    require_engine(options)
    if _live:
        return _again(_live[0], cluster, options)
    if cluster.is_evaluator or cluster.bootstrap == "none":
        alone = Alone()
        return Runtime(cluster, alone, alone.channel("agreement"), None, 0.0)
    log.set_up(cluster.rank, cluster.size)
    timeout = env.read_seconds("UNISONO_TIMEOUT") if options.timeout_seconds is None else options.timeout_seconds
    startup = options.startup_timeout_seconds if startup_seconds is None else startup_seconds
    startup = env.read_seconds("UNISONO_STARTUP_TIMEOUT") if startup is None else startup
    silence, generation = env.read_seconds("UNISONO_SILENCE_TIMEOUT"), env.read_count("UNISONO_GENERATION")
    children.refuse_twin(cluster, generation)
    start = _Start(cluster, timeout, Deadline.after(startup), silence, generation)
    runtime = start.under_launcher() if cluster.bootstrap == "pmi" else start.from_addresses()
    children.mark(cluster, generation)
    _live.append(runtime)
    os.register_at_fork(after_in_child=runtime.disown)
    # All workers run one script: where it splits or shuffles data without a seed, they must do it alike.
    randomness.take_over(lambda state: broadcast_object(runtime.agreement, state))
    return runtime


def _again(runtime: Runtime, cluster: Cluster, options: CommunicationOptions) -> Runtime:
    if runtime.pid != os.getpid():
        raise children.forked(runtime.rank, runtime.pid)
    if runtime.closed:
        raise ConfigurationError(
            "The job of this process is over; workers can meet once in a process.",
            remedy="start the script again, on all workers.",
        )
    if runtime.cluster != cluster:
        raise ConfigurationError(
            f"This process is {runtime.cluster.name_of(runtime.rank)} of {runtime.cluster.size} already, as "
            f"{cluster.source} said when the first strategy was made; now it describes another cluster, of "
            f"{cluster.size}.",
            remedy="set it before the first strategy is made, or restart the process.",
        )
    if options.timeout_seconds not in (None, runtime.timeout_seconds):
        logger.warning(
            "timeout_seconds=%g comes too late: the workers have met already, and %g s hold for the whole job. "
            "Give the options to the first strategy.",
            options.timeout_seconds,
            runtime.timeout_seconds,
        )
    return runtime


class _Start:
    """The way from a cluster to a runtime.

    Args:
        cluster: Who is in the job.
        timeout: Longest wait in one operation, in seconds.
        deadline: By when the workers must have met.
        silence: Seconds of silence after which a worker counts as lost.
        generation: How often the job has been restarted.
    """

    def __init__(self, cluster: Cluster, timeout: float, deadline: Deadline, silence: float, generation: int) -> None:
        self._cluster = cluster
        self._timeout = timeout
        self._deadline = deadline
        self._silence = silence
        self._generation = generation
        self._progress = Progress(phase="start-up")
        self._watch = ControlWatch(cluster.rank, self._progress, deadline.left)
        self._coordinator: Coordinator | None = None

    def from_addresses(self) -> Runtime:
        """Meets at the chief's address, then starts MPI from there."""
        from unisono.collectives import mpi

        chief = self._cluster.addresses[0]
        where = chief
        if self._cluster.rank == 0:
            self._coordinator = coordinator.start(chief.host, chief.port, self._plan())
            # The chief's address may be one that only the others can use, e.g. one that is translated on the way.
            where = chief if is_loopback(chief.host) else Address("127.0.0.1", chief.port)
        try:
            endpoint = self._meet([where])
            client = self._client(endpoint)
        except BaseException:
            self._let_go()
            raise
        try:
            self._choose_network()
            fd = open_pmi(endpoint, self._cluster.rank, self._deadline.left + 1.0)
            data = mpi.connect(self._watch, pmi=(fd, self._cluster.rank, self._cluster.size))
            return self._runtime(client, data)
        except BaseException as error:
            self._give_up(client, error)
            raise

    def under_launcher(self) -> Runtime:
        """Starts MPI, which knows everyone, then meets at an address that worker 0 chooses."""
        from unisono.collectives import mpi

        data = mpi.connect(self._watch, pmi=None)
        if (data.rank, data.size) != (self._cluster.rank, self._cluster.size):
            raise ClusterError(
                f"{self._cluster.source} says that this is worker {self._cluster.rank} of {self._cluster.size}, "
                f"but MPI says {data.rank} of {data.size}.",
                remedy="start all workers with the mpiexec of the MPI library that mpi4py uses (MPICH).",
            )
        one_host = len(set(all_gather_object(data, identity.place()))) == 1
        addresses: list[Address] = []
        if data.rank == 0:
            self._coordinator = coordinator.start("localhost" if one_host else "", 0, self._plan())
            port = self._coordinator.port
            addresses = [Address(host, port) for host in (["127.0.0.1"] if one_host else interfaces.own_hosts())]
        try:
            client = self._client(self._meet(broadcast_object(data, addresses)))
        except BaseException as error:
            data.abandon(error if isinstance(error, UnisonoError) else WorkerFailedError(str(error)))
            self._let_go()
            raise
        try:
            return self._runtime(client, data)
        except BaseException as error:
            self._give_up(client, error)
            raise

    def _choose_network(self) -> None:
        """Has MPI use the network that leads to the addresses of the workers, not any other this machine has."""
        other = self._cluster.addresses[1 if self._cluster.rank == 0 else 0]
        name = interfaces.towards(other.host)
        if name is not None:
            env.export({"FI_TCP_IFACE": name}, overwrite=False)

    def _plan(self) -> Plan:
        cluster = self._cluster
        return Plan(
            addresses=tuple(map(str, cluster.addresses)) or ("",) * cluster.size,
            fingerprint=identity.fingerprint(cluster),
            source=cluster.source,
            generation=self._generation,
            job=secrets.token_hex(8),
            startup_seconds=self._deadline.left,
            silence_seconds=self._silence,
        )

    def _meet(self, addresses: list[Address]) -> Endpoint:
        check: Callable[[], None] = self._coordinator.check if self._coordinator is not None else lambda: None
        hello = identity.hello(self._cluster, self._generation)
        return meet(addresses, hello, self._cluster.name_of(0), self._deadline.left, check)

    def _client(self, endpoint: Endpoint) -> Client:
        client = Client(endpoint, self._cluster.name_of(0), self._progress, self._silence)
        client.start()
        self._watch.client = client
        return client

    def _runtime(self, client: Client, data: Collectives) -> Runtime:
        agreement = data.channel("agreement")
        self._progress.phase = "ready"
        self._watch.timeout_seconds = self._timeout
        line = Line(client, self._progress, self._coordinator)
        return Runtime(self._cluster, data, agreement, line, self._timeout)

    def _give_up(self, client: Client, error: BaseException) -> None:
        client.fail(verdicts.failed(error, self._cluster.rank, -1, "start-up"), FAIL_SECONDS)
        self._let_go()

    def _let_go(self) -> None:
        if self._coordinator is not None:
            self._coordinator.wait()
            self._coordinator.release()
