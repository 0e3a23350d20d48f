"""Where the main thread of this process is, asked by another thread."""

import concurrent.futures

import pytest

from unisono.control import stack


def test_the_innermost_calls_of_the_main_thread_are_told():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        told = pool.submit(stack.main_thread).result()
    lines = told.splitlines()
    assert len(lines) == 8 and all(line.startswith('  File "') for line in lines)
    (mine,) = [n for n, line in enumerate(lines) if "in test_the_innermost_calls_of_the_main_thread_are_told" in line]
    assert f'"{__file__}"' in lines[mine] and all(
        "concurrent" in line or "threading" in line for line in lines[mine + 1 :]
    )


def test_no_file_is_read(monkeypatch):
    monkeypatch.setattr("linecache.getlines", lambda *_: pytest.fail("it may lie on a file system that hangs"))
    assert "test_no_file_is_read" in stack.main_thread()


def test_what_is_told_fits_a_message():
    def deep(levels):
        if levels:
            return deep(levels - 1)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(stack.main_thread).result()

    told = deep(50)
    assert 0 < len(told) <= 4000
