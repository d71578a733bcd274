"""Compiles .proto files with the system's protoc, which the system's libprotobuf belongs to."""

def ronda_proto_library(name, src, grpc = False, deps = [], **kwargs):
    """A cc_library with the messages of `src` and, with `grpc`, its services.

    The generated headers are included by their path from the workspace root, as in "proto/ronda/v1/negotiation.pb.h".
    """
    stem = src[:-len(".proto")]
    outs = [stem + ".pb.h", stem + ".pb.cc"]
    plugin = ""
    if grpc:
        outs += [stem + ".grpc.pb.h", stem + ".grpc.pb.cc"]
        plugin = "--grpc_out=$(BINDIR) --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin"
    native.genrule(
        name = name + "_gen",
        srcs = [src],
        outs = outs,
        cmd = "protoc -I. --cpp_out=$(BINDIR) " + plugin + " $(location " + src + ")",
    )
    native.cc_library(
        name = name,
        srcs = [o for o in outs if o.endswith(".cc")],
        hdrs = [o for o in outs if o.endswith(".h")],
        deps = deps + ["//third_party/protobuf"] + (["//third_party/grpc"] if grpc else []),
        **kwargs
    )
