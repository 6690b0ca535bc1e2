"""A library that, preloaded into a process, steps its wall clock as often as a file in the process's folder is written.

Monotonic clocks stay as they are.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernfed_testing.limits import LIMIT_S

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long told(const char *name) {
    char text[32];
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    long size = read(file, text, sizeof text - 1);
    close(file);
    text[size > 0 ? size : 0] = 0;
    return atol(text);
}

static long shift(void) {
    return getenv("CLOCK_FILE") ? told(getenv("CLOCK_FILE")) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, out);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) out->tv_sec += shift();
    return result;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


FILE = ".clock"
"""In the folder that a process runs in: seconds by which its wall clock is ahead."""


def set_by_file(folder: Path) -> dict[str, str]:
    """Environment of processes whose wall clocks follow the file `FILE` in their own folders."""
    return {"LD_PRELOAD": _library(folder), "CLOCK_FILE": FILE}


def _library(folder: Path) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler, which makes the clock that jumps")
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(_SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True, timeout=LIMIT_S)
    return str(library)
