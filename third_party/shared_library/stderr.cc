// SPDX-License-Identifier: Apache-2.0

// Object files that are compiled for executables treat a variable of a shared library as a variable of the executable.
// So the linker's option --wrap gives such object files in libronda.so this `stderr` instead of glibc's.
#include <cstdio>

extern "C" {

// The stream to which glibc's `stderr` points.
extern FILE _IO_2_1_stderr_;

extern FILE* __wrap_stderr;
FILE* __wrap_stderr = &_IO_2_1_stderr_;
}
