// SPDX-License-Identifier: Apache-2.0
#include "aggregator/ingest/testing/sample_batch.h"

#include <zstd.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/row_block.h"

namespace fleetblame::aggregator {

v1::Hello SampleHello(const std::string& host_id, uint64_t spool_epoch) {
  v1::Hello hello;
  hello.set_protocol_version(1);
  hello.set_host_id(host_id);
  hello.set_hostname(host_id + ".example");
  hello.set_boot_id("5f0c1b2e-0000-4000-8000-000000000001");
  hello.set_spool_epoch(spool_epoch);
  hello.set_agent_version("0.1.0");
  hello.set_kernel_release("6.1.0-test");
  hello.set_tracer("replay");
  (*hello.mutable_labels())["role"] = "db";
  hello.set_realtime_unix_ns(absl::GetCurrentTimeNanos());
  hello.set_boottime_ns(1'000'000'000);
  return hello;
}

v1::Definitions SampleDefinitions() {
  v1::Definitions definitions;
  definitions.set_dictionary_id(kSampleDictionary);
  v1::Intent& intent = (*definitions.mutable_intents())[1];
  intent.set_intent_id(std::string(16, 'i'));
  intent.add_frames("ext4_file_write_iter");
  intent.add_frames("write");
  v1::Actor& actor = (*definitions.mutable_actors())[1];
  actor.set_comm("postgres");
  actor.set_cgroup("/system.slice/postgresql.service");
  v1::Device& device = (*definitions.mutable_devices())[1];
  device.set_name("sda");
  device.set_major(8);
  v1::File& file = (*definitions.mutable_files())[1];
  file.set_path("/var/lib/postgresql/base/1");
  file.set_inode(12);
  return definitions;
}

v1::Batch SampleBatch(uint64_t seq, int rows, bool with_definitions) {
  RowBlockBuilder builder;
  for (int i = 0; i < rows; ++i) {
    BlockRow row;
    row.dirtier_intent = row.issuer_intent = 1;
    row.dirtier_actor = row.issuer_actor = 1;
    row.device = 1;
    row.file = i % 2 == 0 ? 1 : 0;
    row.operation = static_cast<v1::Operation>(1 + i % 5);
    row.confidence = static_cast<v1::Confidence>(1 + i / 10 % 6);
    row.ios = 10 + i;
    row.bytes = row.ios * 4096;
    row.wait_ns = row.ios * 50'000;
    row.io_ns = row.ios * 200'000;
    row.wait.Add(HistogramBucket(50'000), row.ios);
    row.io.Add(HistogramBucket(200'000), row.ios);
    builder.Add(row);
  }
  v1::Batch batch;
  batch.set_seq(seq);
  batch.set_spool_epoch(kSampleEpoch);
  batch.set_dictionary_id(kSampleDictionary);
  v1::Window& window = *batch.mutable_window();
  constexpr uint64_t kBoot = 100'000'000'000;
  window.set_start_boot_ns(kBoot + seq * 10'000'000'000);
  window.set_end_boot_ns(kBoot + (seq + 1) * 10'000'000'000);
  window.set_realtime_offset_ns(absl::ToUnixNanos(absl::Now() - absl::Hours(1)));
  window.set_boot_id("5f0c1b2e-0000-4000-8000-000000000001");
  batch.set_rows(builder.Finish().SerializeAsString());
  batch.set_rows_plain_bytes(batch.rows().size());
  batch.set_row_count(rows);
  if (with_definitions) *batch.mutable_definitions() = SampleDefinitions();
  v1::CoverageSample& coverage = *batch.add_coverage();
  coverage.set_device(1);
  coverage.set_direction(v1::OPERATION_WRITE);
  coverage.set_recorded_bytes(4096);
  coverage.set_kernel_bytes(4096);
  v1::LossCounter& loss = *batch.add_losses();
  loss.set_name("page_table_full");
  loss.set_delta(2);
  return batch;
}

v1::Batch Compressed(v1::Batch batch) {
  std::string packed(ZSTD_compressBound(batch.rows().size()), '\0');
  packed.resize(
      ZSTD_compress(packed.data(), packed.size(), batch.rows().data(), batch.rows().size(), 3));
  batch.set_rows_plain_bytes(batch.rows().size());
  batch.set_rows(packed);
  batch.set_encoding(v1::Batch::ENCODING_ZSTD);
  return batch;
}

}  // namespace fleetblame::aggregator
