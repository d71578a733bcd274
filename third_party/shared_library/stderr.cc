// SPDX-License-Identifier: Apache-2.0

// Objects for executables take a variable of a shared library for one of their own; so this is the `stderr` of those in
// libronda.so, by the linker's option --wrap.
#include <cstdio>

extern "C" {

// The name that glibc gives the stream to which its `stderr` points.
extern FILE _IO_2_1_stderr_;

extern FILE* __wrap_stderr;
FILE* __wrap_stderr = &_IO_2_1_stderr_;
}
