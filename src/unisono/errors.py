"""The exceptions of Unisono.

    UnisonoError
    |- ConfigurationError (also a ValueError)   what the user wrote cannot work
    |  `- ClusterError                          TF_CONFIG, launcher variables, addresses
    |- StartupError                             workers did not all meet in time
    |- WorkerLostError                          a worker died or went silent
    |- WorkerFailedError                        a worker raised; its message is repeated here
    |- CollectiveTimeoutError                   a worker did not arrive within the timeout
    |- DataError                                a file of a data set is broken, or is not like the others
    `- DivergenceError                          workers do different things, or hold different data

Every message says what is wrong in the user's own spelling, where the value came from and what to do;
the fields repeat the parts a program may want.
"""

from __future__ import annotations


class UnisonoError(RuntimeError):
    """Base of all exceptions of this package.

    Args:
        message: What is wrong and where it came from, one or two sentences.
        remedy: What to type or check instead; appended to the message as "Hint: ...".
        rank: Rank of the worker the message is about, if it is about one.
        host: "host:port" or host name of that worker.
        step: Step in which it happened, counted from 0 since the model was compiled.
        phase: What was going on, e.g. "start-up" or "gradient exchange".
    """

    def __init__(
        self,
        message: str,
        *,
        remedy: str | None = None,
        rank: int | None = None,
        host: str | None = None,
        step: int | None = None,
        phase: str | None = None,
    ) -> None:
        super().__init__(message if remedy is None else f"{message}\nHint: {remedy}")
        self.remedy = remedy
        self.rank = rank
        self.host = host
        self.step = step
        self.phase = phase


class ConfigurationError(UnisonoError, ValueError):
    """The script, an argument or a variable asks for something that cannot work."""


class ClusterError(ConfigurationError):
    """The description of the cluster (TF_CONFIG, a launcher's variables, a resolver) is wrong."""


class StartupError(UnisonoError):
    """The workers did not all meet before the start-up deadline."""


class WorkerLostError(UnisonoError):
    """Another worker died or fell silent; the message names it."""


class WorkerFailedError(UnisonoError):
    """Another worker raised an exception; the message names it and repeats what it said."""


class CollectiveTimeoutError(UnisonoError):
    """A worker did not arrive at a collective operation within the communication timeout."""


class DataError(UnisonoError):
    """A file holds what cannot be read, or changed while it was read; the message names the file and the place."""


class DivergenceError(UnisonoError):
    """Workers called different things, or hold different state or data where it must be equal."""
