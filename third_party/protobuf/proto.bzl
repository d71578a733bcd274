# SPDX-License-Identifier: Apache-2.0

"""Compiles .proto files with the system's protoc, which the system's libprotobuf belongs to."""

def _protoc_library(name, src, suffix, flags, **kwargs):
    stem = src[:-len(".proto")] + suffix
    native.genrule(
        name = name + "_gen",
        srcs = [src],
        outs = [stem + ".h", stem + ".cc"],
        cmd = "protoc -I. " + flags + " $(location " + src + ")",
    )
    native.cc_library(
        name = name,
        srcs = [stem + ".cc"],
        hdrs = [stem + ".h"],
        **kwargs
    )

def ronda_proto_library(name, src, **kwargs):
    """Makes a cc_library with the messages of `src`.

    The generated headers are included by their path from the workspace root, as in "proto/ronda/v1/negotiation.pb.h".
    """
    _protoc_library(name, src, ".pb", "--cpp_out=$(BINDIR)", deps = ["//third_party/protobuf"], **kwargs)

def ronda_grpc_library(name, src, messages, **kwargs):
    """Makes a cc_library with the services of `src` (".grpc.pb.h"). The target `messages` has the messages of `src`."""
    _protoc_library(
        name,
        src,
        ".grpc.pb",
        "--grpc_out=$(BINDIR) --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin",
        deps = [messages, "//third_party/grpc"],
        **kwargs
    )
