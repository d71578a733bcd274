# SPDX-License-Identifier: Apache-2.0

"""Finds the CUDA toolkit: in CUDA_HOME, else in /usr/local/cuda.

The repository that this rule makes has

    @cuda//:toolkit.bzl     the facts that cuda_library.bzl needs
    @cuda//:headers         the headers of the runtime and of cuBLAS
    @cuda//:cudart          the runtime, linked statically, and its headers
    @cuda//:nvtx            NVTX, which consists only of headers
    @cuda//:cublas          cuBLAS, a shared library

Without a toolkit, or with a toolkit that is too old, the same targets exist, but fit no platform. So in //... patterns
Bazel skips these targets, and all targets that need them.
"""

# From CUDA 12.1 on, a kernel can have 32,764 bytes of parameters, which kernels/cuda/block.h needs.
_OLDEST = (12, 1)

# The compute capabilities to compile for, if the toolkit knows them. (CUDA 13 has dropped 7.0.) A GPU with another
# capability runs the code for the next lower one with the same major number.
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
    """Returns those of _CAPABILITIES that nvcc knows."""
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
