# SPDX-License-Identifier: Apache-2.0

"""abi_tests: tests of today's library with the headers and the program of an earlier release."""

def abi_tests(headers, is_elastic):
    """Makes two tests in the package of an earlier release (docs/abi.md).

    `abi_test` runs old_client.c, which was built with the copied headers, with today's library. `declarations_test`
    compares the copied headers with today's.

    Args:
      headers: the copied headers; the first one is ronda.h.
      is_elastic: whether old_client.c also has a program of an elastic job.
    """
    native.cc_binary(
        name = "old_client",
        testonly = True,
        srcs = ["old_client.c", "//client:libronda.so"] + headers,
        copts = ["-std=c99", "-pedantic"],
    )
    programs = [":old_client"] + (["//programs/rondarun"] if is_elastic else [])
    native.sh_test(
        name = "abi_test",
        size = "small",
        srcs = ["//tests/client/abi:abi_test.sh"],
        args = ["$(location %s)" % program for program in programs],
        data = programs + ["//client:libronda.so"],
        tags = ["nosan"],  # the program is built without the sanitizer, whose runtime would have to be loaded first
    )
    native.sh_test(
        name = "declarations_test",
        size = "small",
        srcs = ["//tools/bindings:abi_changes.py"],
        args = ["$(location %s)" % headers[0], "client/ronda.h"],
        data = headers + ["//client:headers", "//tools/bindings"],
    )
