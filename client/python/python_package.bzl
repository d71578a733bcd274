# SPDX-License-Identifier: Apache-2.0

"""python_package: a folder that is laid out as the installed Python package."""

def _install(file, place, mode, folder):
    # -D makes install create the missing folders of the path.
    return "install -D -m %s '%s' '%s/%s'" % (mode, file.path, folder.path, place)

def _python_package_impl(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name)
    own = ctx.label.package + "/"
    commands = [_install(file, file.short_path[len(own):], "644", folder) for file in ctx.files.srcs]
    commands += [_install(file, "ronda/" + file.basename, "755", folder) for file in ctx.files.extensions]

    # The loader looks for the library by its soname.
    commands += [_install(file, "ronda/lib/libronda.so.0", "755", folder) for file in ctx.files.library]
    commands += [_install(file, "ronda/lib/" + file.basename, "755", folder) for file in ctx.files.libs]
    ctx.actions.run_shell(
        outputs = [folder],
        inputs = ctx.files.srcs + ctx.files.extensions + ctx.files.library + ctx.files.libs,
        command = "\n".join(["set -euo pipefail"] + commands),
        mnemonic = "PythonPackage",
        progress_message = "Laying out the Python package",
    )
    return [DefaultInfo(files = depset([folder]), runfiles = ctx.runfiles([folder]))]

python_package = rule(
    implementation = _python_package_impl,
    doc = "The folder bazel-bin/<package>/<name>, for PYTHONPATH, with the Python package ronda in it.",
    attrs = {
        "srcs": attr.label_list(allow_files = True, doc = "Python's sources, below ronda/."),
        "extensions": attr.label_list(doc = "Extension modules."),
        "library": attr.label(allow_single_file = True, doc = "libronda.so; without it the package has no lib/."),
        "libs": attr.label_list(doc = "Programs, and plugins, which libronda.so looks for beside itself: ronda/lib/."),
    },
)
