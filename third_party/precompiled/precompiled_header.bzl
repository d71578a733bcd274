# SPDX-License-Identifier: Apache-2.0

"""precompiled_header: a header of system headers, parsed once for all files instead of once for each."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _compile_flags(ctx, toolchain, features):
    """Returns the flags of every C++ compilation. GCC uses a precompiled header only if its flags are the same."""
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts,
        use_pic = True,
    )
    return cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = variables,
    )

def _precompile(ctx, toolchain):
    """Makes `<name>.h`, a copy of the source, and beside it `<name>.h.gch`, where GCC looks first."""
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.symlink(output = header, target_file = ctx.file.src)
    precompiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    arguments = ctx.actions.args()
    arguments.add_all(_compile_flags(ctx, toolchain, features))
    arguments.add_all(["-iquote", ".", "-x", "c++-header", "-c", header.path, "-o", precompiled.path])
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
        ),
        arguments = [arguments],
        inputs = depset([header] + ctx.files.hdrs, transitive = [toolchain.all_files]),
        outputs = [precompiled],
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling %s" % ctx.file.src.short_path,
    )
    return [header, precompiled]

def _leave_empty(ctx):
    """Makes an empty header for other compilers. They parse each file's own includes, and so report missing ones."""
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.write(header, "")
    return [header]

def _precompiled_header(ctx):
    toolchain = find_cpp_toolchain(ctx)
    is_gcc = "clang" not in toolchain.compiler_executable
    headers = depset(_precompile(ctx, toolchain) if is_gcc else _leave_empty(ctx))
    return [
        DefaultInfo(files = headers),
        CcInfo(compilation_context = cc_common.create_compilation_context(headers = headers)),
    ]

precompiled_header = rule(
    implementation = _precompiled_header,
    attrs = {
        "src": attr.label(mandatory = True, allow_single_file = [".h"]),
        "hdrs": attr.label_list(allow_files = [".h"], doc = "headers of ours that `src` includes"),
        "copts": attr.string_list(doc = "those of --per_file_copt for the files that include it"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
