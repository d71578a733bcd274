# SPDX-License-Identifier: Apache-2.0

"""Gives the C++ rules, which are built into Bazel 4, the labels from which other rule sets load them."""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
cc_proto_library = native.cc_proto_library
