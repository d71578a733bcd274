// SPDX-License-Identifier: Apache-2.0

// A rank whose program has its own copies of libraries that Ronda also contains: gRPC, Protocol Buffers with arenas,
// and Abseil. The program uses its own copies before, during and after a job.
#include <google/protobuf/arena.h>
#include <google/protobuf/struct.pb.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/ronda.h"
#include "client/ronda/operations.h"
#include "proto/ronda/v1/rendezvous.grpc.pb.h"

namespace {

void Expect(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s; Ronda's last error: %s\n", what.c_str(), ronda_last_error());
  std::exit(1);
}

// The program's own gRPC service, which has the same name as a Ronda service in the same process.
class Service final : public ronda::v1::Rendezvous::Service {
  grpc::Status Challenge(grpc::ServerContext*, const ronda::v1::ChallengeRequest*,
                         ronda::v1::ChallengeResponse* response) override {
    response->set_nonce("the neighbour's");
    return grpc::Status::OK;
  }
};

void UseGrpc(const std::string& when) {
  Service service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto stub = ronda::v1::Rendezvous::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  ronda::v1::ChallengeResponse response;
  const grpc::Status status = stub->Challenge(&context, {}, &response);
  Expect(status.ok() && response.nonce() == "the neighbour's", "gRPC " + when + ": " + status.error_message());
}

// Ronda's protobuf has no arenas.
void UseMessages(const std::string& when) {
  google::protobuf::Arena arena;
  auto* const table = google::protobuf::Arena::CreateMessage<google::protobuf::Struct>(&arena);
  for (int i = 0; i < 100; ++i) (*table->mutable_fields())[absl::StrCat("field ", i)].set_number_value(i);
  google::protobuf::Struct copy;
  Expect(copy.ParseFromString(table->SerializeAsString()) && copy.fields().at("field 99").number_value() == 99,
         "messages " + when);
}

void UseTables(const std::string& when) {
  absl::flat_hash_map<int, int> table;
  for (int i = 0; i < 1000; ++i) table[i] = i;
  for (int i = 0; i < 1000; i += 2) table.erase(i);
  for (int i = 0; i < 1000; ++i) table[-i] = i;
  Expect(table.size() == 1500 && table.at(-998) == 998, "hash tables " + when);
}

void UseAll(const std::string& when) {
  UseGrpc(when);
  UseMessages(when);
  UseTables(when);
}

void AddUp() {
  const int64_t one = 1;
  float value = 1;
  ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
  args.tensor.name = "value";
  args.tensor.ndim = 1;
  args.tensor.shape = &one;
  args.input = args.output = &value;
  Expect(ronda_allreduce(&args) == RONDA_OK, "an allreduce");
  Expect(value == static_cast<float>(ronda_size()), "the sum");
}

// Ronda, which has its own C++ library, catches exceptions thrown by a callback.
void ThrowInACallback() {
  const ronda_callback callback = [](void*, ronda_status, const char*) {
    throw std::runtime_error("the neighbour's exception");
  };
  const int64_t one = 1;
  float value = 1;
  ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
  args.tensor.name = "with a callback";
  args.tensor.ndim = 1;
  args.tensor.shape = &one;
  args.input = args.output = &value;
  ronda_handle handle = 0;
  Expect(ronda_init(nullptr) == RONDA_OK, "ronda_init");
  Expect(ronda_allreduce_async(&args, &handle) == RONDA_OK, "an allreduce with a callback");
  Expect(ronda_on_completion(handle, callback, nullptr) == RONDA_OK, "ronda_on_completion");
  while (ronda_barrier(/*process_set=*/0) == RONDA_OK) {
  }
  const absl::string_view said = ronda_last_error();
  Expect(absl::StrContains(said, "callback of tensor 'with a callback' threw: the neighbour's exception"), "the error");
  ronda_shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "throw") {
    ThrowInACallback();
    std::puts("all is well");
    return 0;
  }
  UseAll("before the job");
  Expect(ronda_init(nullptr) == RONDA_OK, "ronda_init");
  for (int round = 0; round < 20; ++round) {
    AddUp();
    UseAll("during the job");
  }
  Expect(ronda_shutdown() == RONDA_OK, "ronda_shutdown");
  UseAll("after the job");
  std::puts("all is well");
}
