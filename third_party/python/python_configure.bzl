# SPDX-License-Identifier: Apache-2.0

"""Finds the headers of the system's Python (Debian's python3-dev) for extension modules.

The repository that this rule makes has @python//:headers. Extension modules define Py_LIMITED_API, so the headers of
any version from 3.10 on suffice, and another interpreter may load the modules.
"""

_BUILD = """
cc_library(
    name = "headers",
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],
    visibility = ["//visibility:public"],
)
"""

def _python_configure(context):
    interpreter = "/usr/bin/python3"
    found = context.execute([interpreter, "-c", "import sysconfig; print(sysconfig.get_path('include'))"])
    include = context.path(found.stdout.strip()) if found.return_code == 0 else None
    if include == None or not include.get_child("Python.h").exists:
        fail("There is no Python.h for %s: third_party/install.sh build installs it" % interpreter)
    context.symlink(include, "include")
    context.file("BUILD.bazel", _BUILD)

python_configure = repository_rule(
    implementation = _python_configure,
    configure = True,
    local = True,
)
