# SPDX-License-Identifier: Apache-2.0

"""cuda_library: like cc_library, for .cu files, which nvcc compiles."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@cuda//:toolkit.bzl", "ARCHITECTURES", "MAJOR", "NVCC", "PRESENT")

# A target that needs a toolkit has target_compatible_with = CUDA_ONLY.
CUDA_ONLY = [] if PRESENT else ["//third_party/cuda:no_toolkit"]

# A target that needs the types of CUDA 13's runtime has target_compatible_with = CUDA_13_ONLY.
CUDA_13_ONLY = [] if MAJOR == 13 else ["//third_party/cuda:no_toolkit"]

# The lowest compute capability of each group of GPUs. The machine code for a group is made from the PTX of the group's
# oldest GPU. From 8.0 on GPUs have bfloat16, and from 8.9 on conversions to 8 bits. The PTX of the newest group is
# included for future GPUs.
_GROUPS = [0, 80, 89]

# nvcc rewrites our code before it passes it to the host's compiler. These warnings concern only the rewritten code.
_GENERATED_CODE_FLAGS = ["-Wno-unused-parameter", "-Wno-unused-function", "-Wno-gnu-designator"]

def _architecture_flags():
    """Returns flags for machine code for each GPU, from the PTX of as few GPUs as possible: PTX takes most time."""
    flags = []
    for begin, end in zip(_GROUPS, _GROUPS[1:] + [1000]):
        group = [number for number in ARCHITECTURES if begin <= number and number < end]
        if not group:
            continue
        codes = ["sm_%d" % number for number in group]
        if group[-1] == ARCHITECTURES[-1]:
            codes.append("compute_%d" % group[0])
        flags.append("--generate-code=arch=compute_%d,code=[%s]" % (group[0], ",".join(codes)))
    return flags

def _host_flags(ctx, toolchain, features):
    """Returns the flags of a C++ compilation, in the form in which nvcc passes them on."""
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts,
        use_pic = True,
    )
    flags = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = variables,
    )

    # nvcc has its own option for the C++ standard, and treats a comma as the end of an option.
    kept = [flag for flag in flags if not flag.startswith("-std=")] + _GENERATED_CODE_FLAGS
    return ["-Xcompiler=" + flag.replace(",", "\\,") for flag in kept]

def _include_flags(context):
    flags = ["-I" + path for path in context.includes.to_list() + context.quote_includes.to_list()]
    flags += ["-isystem=" + path for path in context.system_includes.to_list()]
    return flags + ["-D" + define for define in context.defines.to_list()]

def _compile(ctx, toolchain, features, context, source):
    object = ctx.actions.declare_file("_objs/%s/%s.o" % (ctx.label.name, source.basename[:-len(".cu")]))
    arguments = ctx.actions.args()
    arguments.add_all(["-c", source.path, "-o", object.path, "-std=c++20", "--threads=2"])
    arguments.add("-ccbin=" + cc_common.get_tool_for_action(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
    ))
    arguments.add_all(_architecture_flags())
    arguments.add("--compress-mode=size" if MAJOR >= 13 else "-Xfatbin=-compress-all")

    # constexpr functions can also be called on the device. A multiplication and an addition are not fused, so the
    # results equal the CPU's.
    arguments.add_all(["--expt-relaxed-constexpr", "--fmad=false", "--Werror=all-warnings"])
    arguments.add_all(_host_flags(ctx, toolchain, features))
    arguments.add_all(_include_flags(context))
    ctx.actions.run(
        executable = NVCC,
        arguments = [arguments],
        inputs = depset(
            [source] + ctx.files.hdrs + ctx.files._version,
            transitive = [context.headers, toolchain.all_files],
        ),
        outputs = [object],
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        mnemonic = "CudaCompile",
        progress_message = "Compiling %s" % source.short_path,
    )
    return object

def _cuda_library(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    deps = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps + [ctx.attr._cudart]])
    workspace = cc_common.create_compilation_context(
        headers = depset(ctx.files.hdrs),
        quote_includes = depset([".", ctx.genfiles_dir.path]),
    )
    context = cc_common.merge_cc_infos(
        cc_infos = [CcInfo(compilation_context = workspace), deps],
    ).compilation_context
    objects = depset([_compile(ctx, toolchain, features, context, source) for source in ctx.files.srcs])
    linking, _ = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        name = ctx.label.name,
        feature_configuration = features,
        cc_toolchain = toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(objects = objects, pic_objects = objects),
        linking_contexts = [deps.linking_context],
        disallow_dynamic_library = True,
        alwayslink = ctx.attr.alwayslink,
    )
    return [
        DefaultInfo(files = objects),
        CcInfo(compilation_context = context, linking_context = linking),
    ]

_cuda_library_rule = rule(
    implementation = _cuda_library,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "alwayslink": attr.bool(),
        "_cudart": attr.label(default = "@cuda//:cudart"),
        "_version": attr.label(default = "@cuda//:version.txt", allow_files = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def cuda_library(**attributes):
    """Like cc_library, but `srcs` are .cu files. Bazel skips the target if there is no toolkit."""
    _cuda_library_rule(target_compatible_with = CUDA_ONLY, **attributes)
