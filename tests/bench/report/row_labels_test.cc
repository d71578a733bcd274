#include "bench/report/row_labels.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ronda::bench {
namespace {

RunRow RondaRow(double fusion, const std::string& wire, const std::string& lock) {
  RunRow row;
  row.texts = {{"preset", "gpt2"}, {"contestant", "ronda"}, {"wire", wire},
               {"lock", lock},     {"backend", "shm"},      {"compute_kind", "burn"}};
  row.numbers = {{"ranks", 4}, {"compute_ms", 12.5}, {"fusion_threshold", fusion}, {"cycle_time_us", 0}};
  return row;
}

TEST(RowLabels, NameOnlyWhatTheRunHasVaried) {
  const std::vector<RunRow> rows = {RondaRow(0, "none", "on"), RondaRow(1 << 20, "fp16", "on")};
  const ContestantLabels labels(rows);
  EXPECT_EQ(labels.Of(rows[0]), "ronda no fusion, fp32");
  EXPECT_EQ(labels.Of(rows[1]), "ronda fusion 1 MiB, fp16");
  EXPECT_EQ(ContestantLabels({rows[0]}).Of(rows[0]), "ronda");
}

TEST(RowLabels, LayersAreRondas) {
  RunRow row;
  row.texts = {{"contestant", "client"}, {"kind", "ronda"}, {"wire", "fp16"}};
  EXPECT_EQ(ContestantName(row), "ronda client, fp16");
  row.texts = {{"contestant", "openmpi"}, {"kind", "peer"}, {"wire", "none"}};
  EXPECT_EQ(ContestantName(row), "openmpi");
  row.texts = {{"contestant", "ronda"}};
  EXPECT_EQ(ContestantName(row), "ronda");
}

TEST(RowLabels, LocksAreNamedAsSuch) {
  const std::vector<RunRow> rows = {RondaRow(0, "none", "on"), RondaRow(0, "none", "off")};
  EXPECT_EQ(ContestantLabels(rows).Of(rows[1]), "ronda lock off");
}

TEST(RowLabels, PeersHaveNoSettings) {
  RunRow peer;
  peer.texts = {{"contestant", "gloo flat"}};
  EXPECT_EQ(ContestantLabels({RondaRow(0, "none", "on"), RondaRow(4, "none", "on"), peer}).Of(peer), "gloo flat");
}

TEST(RowLabels, ACaseIsModelRanksAndComputation) {
  RunRow row = RondaRow(0, "none", "on");
  EXPECT_EQ(CaseLabel(row), "gpt2, 4 ranks, 12.5 ms of backward (burn)");
  row.numbers["compute_ms"] = 0;
  EXPECT_EQ(CaseLabel(row), "gpt2, 4 ranks, no computation");
}

}  // namespace
}  // namespace ronda::bench
