"""How workers should exchange arrays, in TensorFlow's names."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from unisono.clock import LONGEST_SECONDS, is_duration
from unisono.errors import ConfigurationError


class CommunicationImplementation(enum.Enum):
    """The engine that carries collective operations. RING and NCCL are TensorFlow's names for what is not here yet."""

    AUTO = "AUTO"
    """The best engine that is there: MPI."""
    MPI = "MPI"
    """MPI over host memory."""
    RING = "RING"
    """The ring of the framework's own runtime. Not available yet: it is refused with a `ConfigurationError`."""
    NCCL = "NCCL"
    """NVIDIA's library, for GPUs. Not available yet: it is refused with a `ConfigurationError`."""


@dataclass(frozen=True)
class CommunicationOptions:
    """Options of collective operations.

    Args:
        implementation: Which engine carries them; a member of `CommunicationImplementation` or its name.
        timeout_seconds: Seconds a worker may be late in one step before the wait ends with
            `CollectiveTimeoutError`; `UNISONO_TIMEOUT` decides if None.
        bytes_per_pack: Largest number of bytes sent in one piece; 0 sends everything in one.
        startup_timeout_seconds: Seconds to wait until all workers have met, before `StartupError` names those who
            have not come; `UNISONO_STARTUP_TIMEOUT` decides if None.

    Raises:
        ConfigurationError: If a value cannot work.
    """

    implementation: CommunicationImplementation = CommunicationImplementation.AUTO
    timeout_seconds: float | None = None
    bytes_per_pack: int = 0
    startup_timeout_seconds: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "implementation", _implementation(self.implementation))
        _check_seconds("timeout_seconds", self.timeout_seconds, "UNISONO_TIMEOUT")
        _check_seconds("startup_timeout_seconds", self.startup_timeout_seconds, "UNISONO_STARTUP_TIMEOUT")
        size = self.bytes_per_pack
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ConfigurationError(
                f"bytes_per_pack must be a whole number of bytes, 0 or more. Received: {size!r}.",
                remedy="use 0 to send everything in one piece, or for example 50 * 1024 * 1024.",
            )


def require_engine(options: CommunicationOptions) -> None:
    """Refuses an engine that is not there.

    Args:
        options: What the user asked for.

    Raises:
        ConfigurationError: If it is neither AUTO nor MPI.
    """
    if options.implementation not in (CommunicationImplementation.AUTO, CommunicationImplementation.MPI):
        raise ConfigurationError(
            f"CommunicationOptions(implementation={options.implementation.name}) asks for an engine that this "
            "version does not have yet.",
            remedy="leave implementation out, or choose CommunicationImplementation.MPI.",
        )


def _implementation(value: object) -> CommunicationImplementation:
    if isinstance(value, CommunicationImplementation):
        return value
    # TensorFlow's own enumeration has the same names; its members are accepted by name.
    name = getattr(value, "name", value)
    if isinstance(name, str) and name.upper() in CommunicationImplementation.__members__:
        return CommunicationImplementation[name.upper()]
    raise ConfigurationError(
        f"implementation={value!r} is not an engine.",
        remedy=f"use one of {', '.join(CommunicationImplementation.__members__)}.",
    )


def _check_seconds(name: str, seconds: object, variable: str) -> None:
    if seconds is not None and not (_is_number(seconds) and is_duration(seconds)):  # type: ignore[arg-type]
        raise ConfigurationError(
            f"{name} must be a number of seconds above 0, at most {LONGEST_SECONDS:.0f}, or None. "
            f"Received: {seconds!r}.",
            remedy=f"leave it out to wait as long as {variable} says.",
        )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
