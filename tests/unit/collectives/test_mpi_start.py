"""What can be told about the start of MPI without starting it."""

from __future__ import annotations

from unisono.collectives import mpi_start

MAPS = """\
7f01808d4000-7f0180ada000 rw-s 00000000 00:1b 40                         /dev/shm/mpich_shm_f77bcd3c_0
7f01808da000-7f0180ada000 rw-s 00000000 00:1b 40                         /dev/shm/mpich_shm_f77bcd3c_0
7f02808d4000-7f0280ada000 rw-s 00000000 00:1b 41                         /dev/shm/mpich_shm_0a_1 (deleted)
7f03808d4000-7f0380ada000 rw-s 00000000 00:1b 42                         /dev/shm/torch_123
7fd000000000-7fd000001000 r--p 00000000 00:1b 43                         /srv/my/mpich_shm_notes
7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0                          [stack]
"""


def test_only_shared_memory_of_mpi_that_still_has_a_name_is_found():
    assert mpi_start._shared_paths(MAPS) == {"/dev/shm/mpich_shm_f77bcd3c_0"}


def test_names_are_removed_and_the_rest_is_left(tmp_path, monkeypatch):
    mine, other = tmp_path / "mpich_shm_1_0", tmp_path / "mpich_shm_2_0"
    mine.touch()
    other.touch()
    monkeypatch.setattr(mpi_start, "_shared_paths", lambda maps: {str(mine), str(tmp_path / "already_gone")})
    mpi_start.remove_shared_names()
    assert not mine.exists()
    assert other.exists()
