# SPDX-License-Identifier: Apache-2.0

"""The C++ rules under the labels that other rule sets load them from; Bazel 4 has them built in."""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
cc_proto_library = native.cc_proto_library
