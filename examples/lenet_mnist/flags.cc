// SPDX-License-Identifier: Apache-2.0

#include "examples/lenet_mnist/flags.h"

#include <cstddef>
#include <cstdint>
#include <limits>

namespace lenet {
namespace {

bool ParseCompression(const std::string& text, ronda::Compression* compression) {
  if (text == "none") *compression = ronda::Compression::none;
  if (text == "fp16") *compression = ronda::Compression::fp16;
  if (text == "bf16") *compression = ronda::Compression::bf16;
  return text == "none" || text == "fp16" || text == "bf16";
}

// Returns the flags of the program; their values go to *flags.
std::vector<Flag> FlagsOf(Flags* flags) {
  constexpr std::size_t kMillion = 1'000'000;
  TrainingOptions* const training = &flags->training;
  return {
      TextFlag("--data", "a directory", &flags->data,
               "where the four MNIST files are, gzipped or not (default: the 10,000 digits included)"),
      NumberFlag<std::size_t>("--epochs", 1, kMillion, &training->epochs,
                              "how often to go through the training digits"),
      NumberFlag<std::size_t>("--batch-size", 1, kMillion, &training->batch_size, "digits a step, over all ranks",
                              std::to_string(kImagesPerRank) + " a rank"),
      NumberFlag<double>("--lr", 0, 1000, &training->learning_rate,
                         "learning rate for a batch of 16, scaled to the batch in use"),
      NumberFlag<double>("--momentum", 0, 1, &training->momentum, "of the gradient descent"),
      NumberFlag<std::uint64_t>("--seed", 0, std::numeric_limits<std::uint64_t>::max(), &training->seed,
                                "of the weights and of the order of the digits"),
      {"--compression", "none, fp16 or bf16", "format in which gradients travel (default: none)",
       [training](const std::string& value) { return ParseCompression(value, &training->compression); }},
      NumberFlag<std::size_t>("--steps", 0, kMillion, &training->max_steps, "stop training after so many steps",
                              "at the end of the last epoch"),
      TextFlag("--checkpoints", "a folder", &training->checkpoints,
               "save the training there after each epoch and at its end, and go on from the last (default: do not)"),
      TextFlag("--dump-parameters", "a file", &flags->dump_parameters,
               "write the trained parameters there, as raw floats (default: do not)"),
  };
}

}  // namespace

Flags ParseFlags(const std::vector<std::string>& arguments) {
  Flags flags;
  if (!ReadFlags(FlagsOf(&flags), arguments)) flags.action = Flags::Action::kShowHelp;
  return flags;
}

std::string Usage(const std::string& program) {
  Flags defaults;
  return HelpText("Trains LeNet-5 on MNIST digits, on all ranks of the job it is started in:\n  rondarun -np 2 " +
                      program + " [flags]\n\n",
                  FlagsOf(&defaults));
}

}  // namespace lenet
