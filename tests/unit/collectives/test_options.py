"""Communication options check themselves and take TensorFlow's names."""

import enum

import pytest

from unisono.collectives.options import CommunicationImplementation, CommunicationOptions, require_engine
from unisono.errors import ConfigurationError


def test_defaults():
    options = CommunicationOptions()
    assert options.implementation is CommunicationImplementation.AUTO
    assert options.timeout_seconds is None
    assert options.bytes_per_pack == 0


@pytest.mark.parametrize("value", ["RING", "ring", CommunicationImplementation.RING])
def test_an_implementation_may_be_named(value):
    assert CommunicationOptions(implementation=value).implementation is CommunicationImplementation.RING


def test_an_enumeration_with_the_same_names_is_taken():
    class Foreign(enum.Enum):
        NCCL = "whatever"

    assert CommunicationOptions(implementation=Foreign.NCCL).implementation is CommunicationImplementation.NCCL


@pytest.mark.parametrize("value", ["GLOO", None, 3])
def test_an_unknown_implementation_is_refused_with_the_list(value):
    with pytest.raises(ConfigurationError, match="AUTO, MPI, RING, NCCL") as caught:
        CommunicationOptions(implementation=value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), 10**7, "60", True])
@pytest.mark.parametrize("name", ["timeout_seconds", "startup_timeout_seconds"])
def test_a_timeout_that_is_no_duration_is_refused(name, value):
    with pytest.raises(ConfigurationError, match=f"^{name} must be .*Received: {value!r}"):
        CommunicationOptions(**{name: value})


@pytest.mark.parametrize("value", [-1, 1.5, "1", True])
def test_bytes_per_pack_must_be_a_size(value):
    with pytest.raises(ConfigurationError, match="bytes_per_pack"):
        CommunicationOptions(bytes_per_pack=value)


def test_options_are_values():
    assert CommunicationOptions(timeout_seconds=5) == CommunicationOptions(timeout_seconds=5)
    assert len({CommunicationOptions(), CommunicationOptions()}) == 1


@pytest.mark.parametrize("name", ["AUTO", "MPI"])
def test_the_engine_that_is_there_is_accepted(name):
    require_engine(CommunicationOptions(implementation=name))


@pytest.mark.parametrize("name", ["RING", "NCCL"])
def test_an_engine_that_is_not_there_is_refused_by_name(name):
    with pytest.raises(ConfigurationError, match=f"implementation={name}"):
        require_engine(CommunicationOptions(implementation=name))
