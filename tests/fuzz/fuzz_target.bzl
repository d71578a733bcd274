# SPDX-License-Identifier: Apache-2.0

"""Fuzz targets: one LLVMFuzzerTestOneInput each, built twice."""

def fuzz_target(name, deps):
    """Builds <name>.cc as a test that replays corpus/<name>, and, with --config=fuzz, as <name>_fuzzer.

    Args:
      name: of the target; its source is <name>.cc.
      deps: of the source.
    """
    native.cc_test(
        name = name + "_corpus_test",
        size = "small",
        srcs = [name + ".cc"],
        args = ["tests/fuzz/corpus/" + name],
        data = native.glob(["corpus/" + name + "/*"]),
        deps = deps + [":replay"],
    )
    native.cc_binary(
        name = name + "_fuzzer",
        testonly = True,
        srcs = [name + ".cc"],
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = deps,
    )
