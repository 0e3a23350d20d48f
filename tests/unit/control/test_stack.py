"""Where the main thread of this process is, asked by another thread."""

import concurrent.futures

from unisono.control import stack


def test_the_innermost_calls_of_the_main_thread_are_told():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        told = pool.submit(stack.main_thread).result()
    lines = told.splitlines()
    assert lines[-2].startswith("  File ") and "concurrent" not in lines[0]
    assert "in test_the_innermost_calls_of_the_main_thread_are_told" in told
    assert sum(line.startswith("  File ") for line in lines) == 8


def test_what_is_told_fits_a_message():
    def deep(levels):
        if levels:
            return deep(levels - 1)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(stack.main_thread).result()

    told = deep(50)
    assert 0 < len(told) <= 4000
