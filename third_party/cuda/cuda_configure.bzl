# SPDX-License-Identifier: Apache-2.0

"""Finds the CUDA toolkit: in CUDA_HOME, else in /usr/local/cuda.

The repository it makes has

    @cuda//:toolkit.bzl     what cuda_library.bzl has to know
    @cuda//:headers         the runtime's, and cuBLAS's
    @cuda//:cudart          the runtime, statically, with its headers
    @cuda//:nvtx            NVTX, which is headers alone
    @cuda//:cublas          cuBLAS, which is not static

Without a toolkit, or with one that is too old, the same targets are there, and fit no platform: Bazel skips them, and
whatever needs them, in //... patterns.
"""

# From 12.1 on, a launch has 32,764 bytes of parameters: kernels/cuda/block.h.
_OLDEST = (12, 1)

# Compute capabilities to compile for, as far as the toolkit knows them: CUDA 13 has dropped 7.0. Others of the same
# major number run the one below.
_CAPABILITIES = [70, 75, 80, 86, 89, 90, 100, 120]

_TOOLKIT = """
PRESENT = {present}
MAJOR = {major}
NVCC = "{nvcc}"
ARCHITECTURES = {architectures}
"""

_BUILD_WITH = """
package(default_visibility = ["//visibility:public"])

# Changes with the toolkit: its object files depend on this file.
exports_files(["version.txt"])

cc_library(
    name = "headers",
    hdrs = glob(["include/*.h", "include/*.hpp", "include/crt/*"]),
    includes = ["include"],
)

cc_library(
    name = "nvtx",
    hdrs = glob(["include/nvtx3/**"]),
    includes = ["include"],
    linkopts = ["-ldl"],
)

cc_import(
    name = "cudart_archive",
    static_library = "lib64/libcudart_static.a",
)

cc_library(
    name = "cudart",
    linkopts = ["-ldl", "-lpthread", "-lrt"],
    deps = [":cudart_archive", ":headers"],
)

cc_library(
    name = "cublas",
    linkopts = ["-L{home}/lib64", "-lcublas", "-Wl,-rpath,{home}/lib64"],
    deps = [":headers"],
)
"""

_BUILD_WITHOUT = """
package(default_visibility = ["//visibility:public"])

exports_files(["version.txt"])

[
    cc_library(name = name, target_compatible_with = ["@ronda//third_party/cuda:no_toolkit"])
    for name in ["headers", "cudart", "cublas", "nvtx"]
]
"""

def _release(text):
    """"... release 13.0, V13.0.88 ..." is (13, 0)."""
    words = text.partition("release ")[2].partition(",")[0].split(".")
    return (int(words[0]), int(words[1])) if len(words) == 2 else (0, 0)

def _architectures(context, nvcc):
    """Those of _CAPABILITIES that nvcc knows."""
    known = context.execute([nvcc, "--list-gpu-arch"]).stdout.split("\n")
    return [number for number in _CAPABILITIES if "compute_" + str(number) in known]

def _without(context, why):
    # buildifier: disable=print
    print("No CUDA toolkit: %s. Targets that need one are not built; all others are." % why)
    context.file("version.txt", "none")
    context.file("toolkit.bzl", _TOOLKIT.format(present = False, major = 0, nvcc = "", architectures = []))
    context.file("BUILD.bazel", _BUILD_WITHOUT)

def _cuda_configure(context):
    home = context.os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    nvcc = context.path(home + "/bin/nvcc")
    if not nvcc.exists:
        return _without(context, "there is no %s (CUDA_HOME says where to look)" % nvcc)
    version = context.execute([nvcc, "--version"]).stdout
    if _release(version) < _OLDEST:
        return _without(context, "%s is older than %d.%d" % ((home,) + _OLDEST))
    context.symlink(home + "/include", "include")
    context.symlink(home + "/lib64", "lib64")
    context.file("version.txt", version)
    context.file("toolkit.bzl", _TOOLKIT.format(
        present = True,
        major = _release(version)[0],
        nvcc = nvcc,
        architectures = _architectures(context, nvcc),
    ))
    context.file("BUILD.bazel", _BUILD_WITH.format(home = home))
    return None

cuda_configure = repository_rule(
    implementation = _cuda_configure,
    environ = ["CUDA_HOME"],
    configure = True,
    local = True,
)
